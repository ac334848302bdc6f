//! The packages for a registry: every library for embedders, packed, built from its package, its documentation built
//! for the targets that it names, its examples run; and all of it on the oldest supported Rust.
//!
//! `cargo semver-checks` compares with a version in a registry. There is none, so it is not run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::{child, workspace};

/// The published libraries, each after those that it needs.
const LIBRARIES: [&str; 6] = [
    "shootdown",
    "shootdown-arch",
    "shootdown-cpu",
    "shootdown-host",
    "shootdown-c",
    "shootdown-x86_64",
];

/// Those whose examples run on a host.
const WITH_EXAMPLES: [&str; 3] = ["shootdown", "shootdown-arch", "shootdown-host"];

/// Those for kernels, and the targets in their `[package.metadata.docs.rs]`.
const FOR_KERNELS: [&str; 3] = ["shootdown", "shootdown-arch", "shootdown-cpu"];
const DOCUMENTED: [&str; 3] = [
    "x86_64-unknown-none",
    "aarch64-unknown-none-softfloat",
    "riscv64gc-unknown-none-elf",
];

/// Options for packing several packages that need each other, none of which is in the registry.
const CARGO: u32 = 90;

/// The oldest Rust, as `rust-version` of the workspace has it.
pub const OLDEST: &str = "1.88";

/// Runs everything.
///
/// # Errors
/// The first failure.
pub fn run(end: Instant) -> Result<(), String> {
    recent_enough(&child::output(workspace::cargo().arg("--version"), end)?)?;
    println!("packing and building {}", LIBRARIES.join(", "));
    let all = workspace::built().join("publish");
    if all.exists() {
        std::fs::remove_dir_all(&all).map_err(|error| format!("cannot remove {}: {error}", all.display()))?;
    }
    let folder = all.join(new_name()?);
    child::run(
        workspace::cargo()
            .args(["publish", "--dry-run", "--allow-dirty"])
            .args(packages(&LIBRARIES))
            .arg("--target-dir")
            .arg(&folder),
        end,
    )?;
    stand_alone(&folder)?;
    for name in WITH_EXAMPLES {
        println!("running the examples of the package {name}");
        child::run(&mut examples(&folder, name), end)?;
    }
    println!("documentation for {}", DOCUMENTED.join(", "));
    child::run(
        workspace::cargo()
            .env("RUSTDOCFLAGS", "-D warnings")
            .args(["doc", "--no-deps", "--all-features"])
            .args(packages(&FOR_KERNELS))
            .args(DOCUMENTED.iter().flat_map(|target| ["--target", target])),
        end,
    )?;
    println!("checking with Rust {OLDEST}");
    child::run(&mut oldest(), end)
}

fn packages(names: &[&'static str]) -> Vec<&'static str> {
    names.iter().flat_map(|name| ["-p", name]).collect()
}

/// From "cargo 1.95.0 (...)".
fn recent_enough(version: &str) -> Result<(), String> {
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    match minor {
        Some(minor) if minor >= CARGO => Ok(()),
        _ => Err(format!(
            "{}: packing crates that need each other takes cargo 1.{CARGO} or newer: rustup update stable",
            version.trim()
        )),
    }
}

/// The name of a folder that no earlier run had. Cargo keeps the packages that it has unpacked under `CARGO_HOME`, by
/// the path of the folder and the version. In a folder of an earlier run it would build against that run's package.
/// Cargo removes them itself after some months without use.
fn new_name() -> Result<String, String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.map_err(|error| format!("the clock is before 1970: {error}"))?;
    Ok(since.as_nanos().to_string())
}

/// Makes each package a workspace of its own, where cargo has unpacked it to build it. (It lies below our root, but is
/// not a member.)
fn stand_alone(folder: &Path) -> Result<(), String> {
    for name in LIBRARIES {
        let manifest = unpacked(folder, name).join("Cargo.toml");
        let failed = |error: std::io::Error| format!("{}: {error}", manifest.display());
        let text = std::fs::read_to_string(&manifest).map_err(failed)?;
        std::fs::write(&manifest, text + "\n[workspace]\n").map_err(failed)?;
    }
    Ok(())
}

/// Where cargo has unpacked a package. All have the version of the workspace, which is this program's.
fn unpacked(folder: &Path, name: &str) -> PathBuf {
    folder
        .join("package")
        .join(format!("{name}-{}", env!("CARGO_PKG_VERSION")))
}

/// Runs the examples in the documentation of an unpacked package, with the engine's package in place of the registry's.
fn examples(folder: &Path, name: &str) -> Command {
    let mut command = workspace::cargo();
    command.args(["test", "--doc", "--manifest-path"]);
    command.arg(unpacked(folder, name).join("Cargo.toml"));
    command.arg("--target-dir").arg(workspace::built().join("published"));
    // Of the three only the last needs another.
    if name == "shootdown-host" {
        command.arg("--config");
        command.arg(format!(
            "patch.crates-io.shootdown.path={:?}",
            unpacked(folder, "shootdown")
        ));
    }
    command
}

/// A check of the libraries with [`OLDEST`], in a separate folder: another compiler rebuilds everything.
fn oldest() -> Command {
    let mut command = Command::new("rustup");
    command
        .current_dir(workspace::root())
        .args(["run", OLDEST, "cargo", "check"])
        .args(packages(&LIBRARIES))
        .arg("--target-dir")
        .arg(workspace::built().join("oldest"));
    // Cargo has set these for this program; the child would take them for the compiler to use.
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_runs_share_a_folder() {
        assert_ne!(new_name().unwrap(), new_name().unwrap());
    }

    #[test]
    fn an_old_cargo_is_refused_with_the_remedy() {
        assert!(recent_enough("cargo 1.90.0 (abc 2025-01-01)\n").is_ok());
        assert!(recent_enough("cargo 1.95.0-nightly").is_ok());
        let why = recent_enough("cargo 1.88.0 (873a06493 2025-05-10)\n").unwrap_err();
        assert!(why.contains("cargo 1.88.0") && why.contains("rustup update"), "{why}");
        assert!(recent_enough("what").is_err());
    }

    #[test]
    fn oldest_rust_matches_the_workspace_manifest() {
        let manifest = std::fs::read_to_string(workspace::root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("rust-version = \"{OLDEST}\"")));
    }

    #[test]
    fn every_crate_is_published_or_marked_unpublished() {
        for entry in std::fs::read_dir(workspace::root().join("crates")).unwrap() {
            let manifest = entry.unwrap().path().join("Cargo.toml");
            let text = std::fs::read_to_string(&manifest).unwrap();
            let name = manifest.parent().unwrap().file_name().unwrap().to_str().unwrap();
            let kept = text.contains("publish = false");
            assert_ne!(kept, LIBRARIES.contains(&name), "{}", manifest.display());
        }
    }
}
