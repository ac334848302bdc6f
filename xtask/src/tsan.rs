//! The torture test of `shootdown-host` under ThreadSanitizer.
//!
//! The toolchain's own standard library is used, which was built without the sanitizer, so only the toolchain is
//! needed; `crates/shootdown-host/tests/tsan.supp` suppresses reports about that library. ThreadSanitizer does not see
//! fences. So it checks that the memory that the engine hands over (frames, page-table pages) is handed over by
//! synchronising loads and stores. The models (`cargo xtask test loom`) and the simulator check the fences.

use super::{child, workspace};
use std::process::{Command, Stdio};
use std::time::Instant;

const FLAGS: &str = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";

/// Steps of each thread in each run: about a minute for all presets.
const STEPS: &str = "20000";

/// Runs all presets, and the control, which must be reported.
///
/// # Errors
/// The failure.
pub fn run(end: Instant) -> Result<(), String> {
    let host = workspace::host()?;
    println!("RUSTC_BOOTSTRAP=1 RUSTFLAGS='{FLAGS}' cargo test -p shootdown-host --target {host} --test torture");
    let build = child::run(torture("shootdown-host", &host).arg("--no-run"), end);
    build.map_err(|why| {
        format!("building for ThreadSanitizer failed ({why}); it needs Linux or macOS and Rust 1.95 or newer")
    })?;

    let (status, text) = child::outcome(
        torture("shootdown-host", &host).args(["no_preset", "--", "--nocapture", "--test-threads=1"]),
        end,
    )?;
    text.lines()
        .filter(|line| line.ends_with(" uses"))
        .for_each(|line| println!("  {line}"));
    if !status.success() {
        return Err(format!(
            "{}\nfound under a sound design; all of it: {}",
            digest(&text),
            keep(&text)?
        ));
    }
    println!("no race, nothing used after it was freed");

    let control = ["control", "--", "--ignored", "--test-threads=1"];
    let (status, text) = child::outcome(
        torture("shootdown-host-patched", &host)
            .args(control)
            .stderr(Stdio::null()),
        end,
    )?;
    let both_sides = ["Guest>::write_stamp", "Guest>::check"]
        .iter()
        .all(|side| text.contains(side));
    if status.success() || !text.contains("ThreadSanitizer: data race") || !both_sides {
        return Err(format!(
            "the control was not reported, so silence means nothing; its output: {}",
            keep(&text)?
        ));
    }
    println!("control: with a flush that does not wait, reuse of a frame is reported as a race with its use");
    Ok(())
}

/// The lines of reports about this workspace.
fn digest(text: &str) -> String {
    let ours =
        |line: &&str| line.starts_with("WARNING: Thr") || line.contains("/crates/") || line.contains("panicked at");
    text.lines().filter(ours).take(60).collect::<Vec<_>>().join("\n")
}

/// Keeps a report in a file; returns its path.
fn keep(text: &str) -> Result<String, String> {
    let place = workspace::root().join("target/tsan/report.txt");
    std::fs::write(&place, text).map_err(|error| format!("cannot write {}: {error}", place.display()))?;
    Ok(place.display().to_string())
}

/// The torture test, instrumented. It has a separate target directory, or every build would undo the other's.
fn torture(package: &str, host: &str) -> Command {
    let mut command = workspace::cargo();
    command
        .args([
            "test",
            "--quiet",
            "-p",
            package,
            "--target",
            host,
            "--target-dir",
            "target/tsan",
        ])
        .args(["--test", "torture"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", FLAGS)
        .env("TORTURE_STEPS", STEPS)
        .env("TSAN_OPTIONS", "log_path=stdout:suppressions=tests/tsan.supp");
    command
}
