//! Searches with libFuzzer for inputs that break a reader or an encoder.
//!
//! The targets are in `fuzz/`, outside the workspace; their checks are in `crates/shootdown-fuzz`. Coverage is measured
//! by flags that every toolchain takes, so only a C++ compiler is needed; AddressSanitizer is cargo-fuzz's
//! (`RUSTC_BOOTSTRAP=1 cargo fuzz run TARGET`).

use super::{child, workspace};
use std::time::{Duration, Instant};

/// Flags that libFuzzer needs for coverage.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// Longest build.
const BUILD: Duration = Duration::from_secs(20 * 60);

/// The options.
#[derive(Debug, PartialEq, Eq)]
pub struct Order {
    target: String,
    seconds: u64,
}

/// Targets: the sources in `fuzz/fuzz_targets`.
fn targets() -> Vec<String> {
    let folder = workspace::root().join("fuzz/fuzz_targets");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let stem = |file: std::fs::DirEntry| Some(file.path().file_stem()?.to_string_lossy().into_owned());
    let mut names: Vec<_> = files.filter_map(stem).collect();
    names.sort();
    names
}

impl Order {
    /// From the words after `fuzz`.
    ///
    /// # Errors
    /// The error in them.
    pub fn of(words: &[&str]) -> Result<Order, String> {
        let (target, seconds) = match words {
            [target] => (target, "60"),
            [target, "--seconds", seconds] => (target, *seconds),
            _ => return Err(format!("fuzz what? One of {}", targets().join(", "))),
        };
        if !targets().iter().any(|known| known == target) {
            return Err(format!("no target {target:?}; one of {}", targets().join(", ")));
        }
        match seconds.parse() {
            Ok(seconds) if seconds > 0 => Ok(Order {
                target: (*target).to_string(),
                seconds,
            }),
            _ => Err(format!("--seconds takes a whole number from 1, not {seconds:?}")),
        }
    }

    /// Builds the target and runs it.
    ///
    /// # Errors
    /// When it cannot be built; when a failure was found, with the command that reproduces it.
    pub fn run(&self) -> Result<(), String> {
        let fuzz = workspace::root().join("fuzz");
        let host = workspace::host()?;
        let mut build = workspace::cargo();
        build.current_dir(&fuzz).env("RUSTFLAGS", FLAGS).args([
            "build",
            "--release",
            "--quiet",
            "--target",
            &host,
            "--bin",
            &self.target,
        ]);
        child::run(&mut build, Instant::now() + BUILD)
            .map_err(|why| format!("building the target failed ({why}); it needs a C++ compiler"))?;
        // New inputs go beside the corpus, which stays small.
        let found = fuzz.join("found").join(&self.target);
        let corpus = found.join("corpus");
        std::fs::create_dir_all(&corpus).map_err(|error| format!("cannot make {}: {error}", corpus.display()))?;
        let binary = fuzz.join("target").join(&host).join("release").join(&self.target);
        let mut command = std::process::Command::new(&binary);
        command
            .arg(format!("-max_total_time={}", self.seconds))
            .arg(format!("-artifact_prefix={}/broken-", found.display()))
            .args(["-print_final_stats=1", "-timeout=10", "-rss_limit_mb=2048"])
            .arg(corpus)
            .arg(fuzz.join("corpus").join(&self.target));
        if self.target == "machine" {
            command.arg(workspace::root().join("machines"));
        }
        child::run(&mut command, Instant::now() + Duration::from_secs(self.seconds) + BUILD).map_err(|why| {
            format!(
                "{why}: something does not hold; the bytes are the newest {}/broken-*, show it again with {} FILE",
                found.display(),
                binary.display()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fuzz_target_is_refused_by_name() {
        assert!(Order::of(&["ranges"]).is_ok_and(|order| order.seconds == 60));
        assert!(Order::of(&["ranges", "--seconds", "5"]).is_ok_and(|order| order.seconds == 5));
        assert!(Order::of(&["range"]).is_err_and(|message| message.contains("columns, encoders, machine")));
        assert!(Order::of(&["ranges", "--seconds", "0"]).is_err());
        assert!(Order::of(&[]).is_err());
    }
}
