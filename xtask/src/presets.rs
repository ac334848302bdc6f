//! Torture of every preset on AArch64 and RISC-V, each with many seeds and clocks, as a table of the book.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use serde::Deserialize;
use shootdown::Design;
use shootdown_qemu::{Arch, Emulator};

use super::kernel_case::Case;
use super::{cases, torture};

/// Seeds of each preset, and numbers of CPUs in turn.
const SEEDS: u8 = 22;
const CPUS: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// Steps of each CPU.
const STEPS: u32 = 200;
/// The design without invalidation: the control, which `ports.rs` expects to be caught.
const CONTROL: &str = "none";

/// What the last line of a run says, and sums of that.
#[derive(Default, Deserialize)]
struct Counts {
    #[serde(default)]
    runs: u64,
    accesses_checked: u64,
    faults_tolerated: u64,
    stale: u64,
}

/// Tortures all presets with the kernel `image`, and prints the table. Returns a line for each run that failed.
///
/// # Errors
/// When a thread panicked.
pub fn run(arch: Arch, emulator: &Emulator, image: &Path) -> Result<Vec<String>, String> {
    let names = || {
        Design::PRESETS
            .iter()
            .map(|(name, ..)| *name)
            .filter(|name| *name != CONTROL)
    };
    // Another preset each time, so that an early end has tried all.
    let each = (0..SEEDS).flat_map(|seed| names().map(move |name| (name, seed)));
    let (keys, all): (Vec<&str>, Vec<Case>) = each
        .map(|(name, seed)| {
            let cpus = CPUS[usize::from(seed) % CPUS.len()];
            (name, torture::case(arch, emulator, name, seed, cpus, STEPS))
        })
        .unzip();
    let sums: Mutex<BTreeMap<&str, Counts>> = Mutex::default();
    let failures = cases::run(&all, |number, case| {
        let line = case.last_line(image)?;
        let counts: Counts = serde_json::from_str(&line).map_err(|error| format!("{error} in {line}"))?;
        let summary = format!("{} accesses checked", counts.accesses_checked);
        let mut sums = sums.lock().expect("no panics");
        let sum = sums.entry(keys[number]).or_default();
        sum.runs += 1;
        sum.accesses_checked += counts.accesses_checked;
        sum.faults_tolerated += counts.faults_tolerated;
        sum.stale += counts.stale;
        Ok(summary)
    })?;
    let sums = sums.into_inner().map_err(|_| "a thread panicked")?;
    println!(
        "\n| on {} | runs | accesses checked | stale | faults tolerated |\n| --- | --- | --- | --- | --- |",
        arch.name()
    );
    for name in names() {
        let none = Counts::default();
        let sum = sums.get(name).unwrap_or(&none);
        println!(
            "| `{name}` | {} | {} | {} | {} |",
            sum.runs, sum.accesses_checked, sum.stale, sum.faults_tolerated
        );
    }
    Ok(failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_last_line_and_required() {
        let line = r#"{"workload":"torture","stale":0,"accesses_checked":12,"faults_tolerated":3,"done":{}}"#;
        let counts: Counts = serde_json::from_str(line).expect("a line of the kernel");
        assert_eq!(
            (counts.accesses_checked, counts.faults_tolerated, counts.stale),
            (12, 3, 0)
        );
        assert!(serde_json::from_str::<Counts>(r#"{"workload":"torture"}"#).is_err());
    }
}
