//! The instructions of a shootdown that QEMU's plugin counts, against the kernel's own counts: two ways that share
//! nothing.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use shootdown_qemu::{Arch, Clock, Emulator, Machine, Plugin};

use super::workspace;

/// Longest run, on a busy host.
const MOST: Duration = Duration::from_secs(90);
/// Interrupts of the kernel in a window that are no shootdowns: the jobs of the other CPU.
const JOBS: u64 = 2;
/// Fewer operations would prove nothing.
const LEAST_OPS: u64 = 1000;

/// A design, an instruction that the plugin counts, and the kernel's count of the same for an operation.
type Pair = (&'static str, &'static str, &'static str);

fn pairs(arch: Arch) -> &'static [Pair] {
    match arch {
        Arch::X86_64 => &[("arm-broadcast", "invlpgb", "broadcasts_per_op")],
        Arch::Aarch64 => &[
            ("arm-ipi", "sgi", "ipis_per_op"),
            ("arm-ipi", "tlbi_broadcast", "broadcasts_per_op"),
            ("arm-broadcast", "tlbi_broadcast", "broadcasts_per_op"),
        ],
        Arch::Riscv64 => &[("ipi", "sbi_call", "ipis_per_op")],
    }
}

/// Runs the kernel at `path` with the plugin, and compares.
///
/// # Errors
/// When the two differ, and when either counted nothing.
pub fn check(arch: Arch, emulator: &Emulator, path: &Path) -> Result<(), String> {
    let never = AtomicBool::new(false);
    let folder = workspace::built().join("plugin");
    let plugin = Plugin::build(&workspace::root(), emulator.version, &folder, &never)?;
    let emulator = emulator.clone().with_plugin(plugin.clone());
    let machine = Machine {
        cpus: 2,
        clock: Clock::Counted { shift: 0 },
        memory_mib: 256,
    };
    for (design, name, own) in pairs(arch) {
        let words = format!("workload=madvise_spin design={design}");
        let run = machine.run(&emulator, path, &words, MOST, &never)?;
        let place = |why: String| format!("{}, {design}: {why}", arch.name());
        if let Some(problem) = run.problem() {
            return Err(place(problem));
        }
        let document = run.json().ok_or_else(|| place("no line of JSON".into()))?;
        let line: serde_json::Value = serde_json::from_str(document).map_err(|error| place(error.to_string()))?;
        let windows = plugin.take()?;
        let [window] = &windows[..] else {
            return Err(place(format!("{} windows were counted in one run", windows.len())));
        };
        let ops = line["ops"].as_u64().unwrap_or(0);
        let per_op = line[own].as_f64().unwrap_or(f64::NAN);
        let counted = window.operations.get(*name).copied();
        agree(ops, per_op, counted).map_err(|why| place(format!("{name} and {own}: {why}")))?;
        println!(
            "{}: {design}: {name} is {} by the plugin, {own} is {per_op:.4} of {ops} by the kernel",
            arch.name(),
            counted.unwrap_or(0)
        );
    }
    Ok(())
}

fn agree(ops: u64, per_op: f64, counted: Option<u64>) -> Result<(), String> {
    let counted = counted.ok_or("the plugin does not count it")?;
    let own = (per_op * ops as f64).round();
    if ops < LEAST_OPS {
        return Err(format!("only {ops} operations"));
    }
    // `per_op` has four decimals.
    let rounding = ops as f64 * 0.00005 + 1.0;
    let more = counted as f64 - own;
    if !(-rounding..=rounding + JOBS as f64).contains(&more) {
        return Err(format!("the plugin counts {counted}, the kernel {own}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_counts_agree_within_rounding() {
        assert_eq!(agree(6000, 1.0, Some(6001)), Ok(()));
        assert_eq!(agree(6000, 0.0, Some(0)), Ok(()));
        for wrong in [Some(3000), Some(5990), Some(6010), None] {
            assert!(agree(6000, 1.0, wrong).is_err(), "{wrong:?}");
        }
        assert!(agree(6000, f64::NAN, Some(6000)).is_err());
        assert!(agree(10, 1.0, Some(10)).is_err());
    }
}
