//! The steps, in two lanes and ordered so that failures show early, and the requirements of each.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use shootdown_qemu::{Arch, BARE_TARGET};

use super::child;
use super::needs::Need;
use super::workspace::{cargo, root};

/// A host that is neither Linux nor x86, to compile for: the sources must not depend on either. Nothing is run.
const OTHER_HOST: &str = "aarch64-apple-darwin";

/// Which steps run one after the other. The two lanes run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Builds, and tests on the host.
    Host,
    /// Emulated machines and their builds: much of that keeps one core busy only.
    Emulated,
}

/// One step.
pub struct Step {
    /// Short name, at most 8 letters.
    pub name: &'static str,
    /// Where it runs.
    pub lane: Lane,
    need: Option<Need>,
    env: &'static [(&'static str, &'static str)],
    arguments: &'static [&'static str],
    /// Further cargo commands, each with the arguments of the first.
    then: Vec<Vec<&'static str>>,
}

/// Every step.
pub fn all() -> Vec<Step> {
    let step = |name, arguments| Step {
        name,
        lane: Lane::Host,
        need: None,
        env: &[],
        arguments,
        then: Vec::new(),
    };
    vec![
        Step {
            need: Some(Need::Subcommand("fmt", "rustfmt", "rustfmt")),
            ..step("format", &["fmt", "--all", "--check"])
        },
        Step {
            need: Some(Need::Subcommand("clippy", "clippy", "rust-clippy")),
            ..step(
                "clippy",
                &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
            )
        },
        // The test profile optimises (opt-level 2) and keeps debug assertions: the simulation needs both.
        step("tests", &["test", "--workspace"]),
        step(
            "loom",
            &[
                "test",
                "-p",
                "shootdown-loom",
                "-p",
                "shootdown-loom-patched",
                "--features",
                "shootdown-loom/models,shootdown-loom-patched/models",
                "--test",
                "models",
                "--",
                "--nocapture",
            ],
        ),
        step(
            "mutants",
            &["run", "--quiet", "-p", "shootdown-mutants", "--", "--slice", "--brief"],
        ),
        Step {
            env: &[("RUSTDOCFLAGS", "-D warnings")],
            ..step("docs", &["doc", "--workspace", "--no-deps"]).then([vec!["xtask", "book"]])
        },
        Step {
            need: Some(Need::Target(OTHER_HOST)),
            ..step(
                "others",
                &[
                    "check",
                    // No other step compiles these without debug assertions.
                    "--release",
                    "-p",
                    "shootdown-cli",
                    "-p",
                    "shootdown-host",
                    "-p",
                    "shootdown-check",
                    "--target",
                    OTHER_HOST,
                ],
            )
        },
        Step {
            need: Some(Need::Target(BARE_TARGET)),
            ..step(
                "no-std",
                &[
                    "build",
                    "-p",
                    "shootdown",
                    "-p",
                    "shootdown-arch",
                    "-p",
                    "shootdown-cpu",
                    "-p",
                    "shootdown-c",
                    "--no-default-features",
                    "--target",
                    BARE_TARGET,
                ],
            )
            .then(FEATURES.map(engine_with))
        },
        Step {
            need: Some(Need::Embed),
            ..step(
                "bare",
                &[
                    "check",
                    "-p",
                    "shootdown-cpu",
                    "-p",
                    "shootdown-c",
                    "--no-default-features",
                    "--target",
                    BARE_TARGET,
                    "--target",
                    "aarch64-unknown-none",
                    "--target",
                    "aarch64-unknown-none-softfloat",
                    "--target",
                    "riscv64gc-unknown-none-elf",
                    "--target",
                    "riscv64imac-unknown-none-elf",
                ],
            )
        },
        Step {
            lane: Lane::Emulated,
            need: Some(Need::Kernel),
            ..step("kernel", &["xtask", "kernel"])
        },
        Step {
            lane: Lane::Emulated,
            need: Some(Need::Port(Arch::Aarch64)),
            ..step("aarch64", &["xtask", "kernel", "--arch", "aarch64"])
        },
        Step {
            lane: Lane::Emulated,
            need: Some(Need::Port(Arch::Riscv64)),
            ..step("riscv64", &["xtask", "kernel", "--arch", "riscv64"])
        },
        Step {
            lane: Lane::Emulated,
            need: Some(Need::Bochs),
            ..step("bochs", &["xtask", "bochs"])
        },
        Step {
            lane: Lane::Emulated,
            need: Some(Need::Embed),
            ..step("embed", &["xtask", "embed"])
        },
        Step {
            lane: Lane::Emulated,
            need: Some(Need::CMachine),
            ..step("c", &["xtask", "c-machine"]).then([vec!["xtask", "c-library"]])
        },
        Step {
            need: Some(Need::BareTargets),
            ..step("size", &["xtask", "size"])
        },
        Step {
            lane: Lane::Emulated,
            need: Some(Need::Programs(Arch::X86_64)),
            ..step("programs", &["xtask", "programs"])
        },
        Step {
            need: Some(Need::Publish),
            ..step("publish", &["xtask", "publish"])
        },
    ]
}

/// Sets of features of the engine, each of which must build without a warning.
const FEATURES: [&str; 5] = ["", "adaptive", "rar", "published", "adaptive,rar,published"];

/// The build of the engine with these features and no others.
fn engine_with(features: &'static str) -> Vec<&'static str> {
    let flags = "build.rustflags=['-Dwarnings']";
    let package = ["check", "-p", "shootdown", "--no-default-features", "--config", flags];
    let place = [
        "--target",
        BARE_TARGET,
        "--target-dir",
        "target/features",
        "--features",
        features,
    ];
    package.into_iter().chain(place).collect()
}

impl Step {
    fn then<const N: usize>(self, then: [Vec<&'static str>; N]) -> Step {
        Step {
            then: then.into(),
            ..self
        }
    }

    /// The commands, one after the other.
    fn commands(&self) -> impl Iterator<Item = &[&'static str]> {
        [self.arguments].into_iter().chain(self.then.iter().map(Vec::as_slice))
    }

    fn fresh_log(&self) -> Result<File, String> {
        let path = root().join(self.log());
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        folder
            .and_then(|()| File::create(&path))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// The last lines of the command's output, at most this many.
    pub fn last_lines(&self, count: usize) -> String {
        let bytes = std::fs::read(root().join(self.log())).unwrap_or_default();
        child::last_lines(&String::from_utf8_lossy(&bytes), count)
    }

    /// The command, as typed.
    pub fn shown(&self) -> String {
        let quote = |word: &str| {
            if word.contains('\'') {
                format!("\"{word}\"")
            } else if word.contains(' ') || word.is_empty() {
                format!("'{word}'")
            } else {
                word.to_string()
            }
        };
        let command = |arguments: &[&str]| {
            let env = self.env.iter().map(|(key, value)| format!("{key}={}", quote(value)));
            env.chain(["cargo".into()])
                .chain(arguments.iter().map(|word| quote(word)))
                .collect::<Vec<_>>()
                .join(" ")
        };
        self.commands().map(command).collect::<Vec<_>>().join(" && ")
    }

    /// Path of the command's output.
    pub fn log(&self) -> PathBuf {
        // Beside the build output, but under the root also if cargo builds elsewhere: messages name it.
        PathBuf::from("target/steps").join(format!("{}.log", self.name))
    }

    /// The commands that install its missing requirements.
    pub fn missing(&self) -> Vec<String> {
        self.need.map_or(Vec::new(), Need::missing)
    }

    /// Progress from the log: the program, the number of passed tests, and the last line.
    pub fn doing(&self) -> String {
        let bytes = std::fs::read(root().join(self.log())).unwrap_or_default();
        what_runs(&String::from_utf8_lossy(&bytes))
    }

    /// Installs the missing requirements, then runs the command; its output goes to [`Step::log`].
    ///
    /// # Errors
    /// Why it failed, with what to install when a requirement is missing.
    pub fn run(&self, end: Instant) -> Result<(), String> {
        let log = self.fresh_log()?;
        if let Some(need) = self.need {
            // One at a time: package managers lock what they change.
            static INSTALLS: Mutex<()> = Mutex::new(());
            let _alone = INSTALLS.lock().unwrap_or_else(PoisonError::into_inner);
            need.meet(end)?;
        }
        self.commands().try_for_each(|arguments| {
            let mut command = program(arguments);
            child::logged(command.envs(self.env.iter().copied()), &log, end)
        })
    }
}

/// Cargo with these arguments. For `cargo xtask` it is this program, without a wait for Cargo's lock of the build
/// folder, which a step of the other lane may hold for minutes.
fn program(arguments: &[&str]) -> Command {
    static THIS: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| std::env::current_exe().ok().filter(|this| this.exists()));
    let (["xtask", rest @ ..], Some(this)) = (arguments, THIS.as_ref()) else {
        let mut command = cargo();
        command.args(arguments);
        return command;
    };
    let mut command = Command::new(this);
    command.current_dir(root()).args(rest);
    command
}

/// See [`Step::doing`].
fn what_runs(log: &str) -> String {
    let mut parts = Vec::new();
    let program = |line: &&str| line.starts_with("Running ") || line.starts_with("Doc-tests ");
    if let Some(line) = log.lines().map(str::trim_start).rfind(program) {
        parts.push(line.split(" (").next().unwrap_or(line).to_string());
    }
    let passed = log
        .lines()
        .filter(|line| line.starts_with("test ") && line.ends_with(" ok"))
        .count();
    if passed > 0 {
        parts.push(format!("{passed} test{} passed", if passed == 1 { "" } else { "s" }));
    }
    let last = log.lines().map(str::trim).rfind(|line| !line.is_empty());
    parts.push(last.map_or("nothing printed yet".into(), |line| line.chars().take(100).collect()));
    parts.dedup();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_program_passed_tests_and_last_line() {
        assert_eq!(what_runs(""), "nothing printed yet");
        assert_eq!(what_runs("   Compiling a v1\n"), "Compiling a v1");
        let log = "     Running tests/a.rs (target/a-1)\n\nrunning 2 tests\ntest one ... ok\n\
            test two has been running for over 60 seconds\n";
        assert_eq!(
            what_runs(log),
            "Running tests/a.rs; 1 test passed; test two has been running for over 60 seconds"
        );
    }

    #[test]
    fn every_step_shows_its_command() {
        for step in all() {
            assert!(
                step.name.len() <= 8 && step.shown().contains("cargo "),
                "{}",
                step.shown()
            );
        }
        let docs = all()
            .into_iter()
            .find(|step| step.name == "docs")
            .expect("there is one");
        assert!(
            docs.shown().starts_with("RUSTDOCFLAGS='-D warnings' cargo doc "),
            "{}",
            docs.shown()
        );
    }
}
