//! The engine's own tests under Miri, which finds accesses to freed memory, data races and broken borrows in the code
//! that they execute.
//!
//! Words hold addresses of spaces and requests as numbers, so provenance is exposed (`-Zmiri-permissive-provenance`).
//! The tests leak their engines (`-Zmiri-ignore-leaks`). Those with random inputs read the file of earlier failures
//! (`-Zmiri-disable-isolation`) and try few inputs, and those with interleavings try one in 32, because Miri is slow.

use std::process::Command;
use std::time::Instant;

use super::{child, workspace};

const FLAGS: &str = "-Zmiri-permissive-provenance -Zmiri-ignore-leaks -Zmiri-disable-isolation";

/// Inputs of each test with random ones.
const CASES: &str = "4";

/// Runs the tests of `crates/shootdown/src`.
///
/// # Errors
/// The failure.
pub fn run(end: Instant) -> Result<(), String> {
    let mut command = Command::new("rustup");
    command
        .current_dir(workspace::root())
        .args(["run", "nightly", "cargo", "miri", "test", "-p", "shootdown", "--lib"])
        .arg("--target-dir")
        .arg(workspace::built().join("miri"))
        .env("MIRIFLAGS", FLAGS)
        .env("PROPTEST_CASES", CASES);
    // Cargo has set these for this program; the child would take them for the compiler to use.
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    child::run(&mut command, end)
}
