//! CPU time by category, as shares of the total.

use crate::machine::CpuStatistics;
use crate::model::Model;
use crate::os::category::Category;

/// Tolerance of the sum of shares around 1: at both ends of a window CPUs may be slightly ahead of it.
const SLACK: f64 = 0.01;

/// [`time_shares`] of `cpus` CPUs that ran all the time and made `ops` operations together.
///
/// # Panics
/// With debug assertions, when time is counted twice or not at all. At the ends of the window a CPU may be ahead of it
/// by a part of an operation, which is much where a machine is so slow that few fit in.
pub(crate) fn whole_time_shares(
    total: &CpuStatistics,
    model: &Model,
    all: f64,
    (cpus, ops): (f64, u64),
) -> Vec<(&'static str, f64)> {
    let shares = time_shares(total, model, all);
    let counted: f64 = total.cycles.iter().sum();
    debug_assert!(
        all == 0.0 || (counted / all - 1.0).abs() < SLACK.max(cpus / ops as f64),
        "of {all} cycles {counted} are counted: {shares:?}"
    );
    shares
}

/// Share of `all` cycles of each category, by name; together they are 1. Entering and leaving the interrupt handler
/// counts to the interrupted side: the machine books it to the interrupted category.
///
/// A replay's CPUs begin and end with their part of the recording, so there the shares are about 1 together.
pub(crate) fn time_shares(total: &CpuStatistics, model: &Model, all: f64) -> Vec<(&'static str, f64)> {
    let mut cycles = total.cycles;
    for (interrupted, entry) in total.entry_cycles.into_iter().enumerate() {
        let moved = entry.min(cycles[interrupted]);
        cycles[interrupted] -= moved;
        cycles[Category::FlushTarget as usize] += moved;
    }
    // Only a hypervisor deschedules a CPU.
    let names = match model.vm {
        Some(_) => &Category::NAMES[..],
        None => &Category::NAMES[..Category::Stolen as usize],
    };
    let shares = names.iter().zip(cycles);
    shares
        .map(|(&name, cycles)| (name, if all > 0.0 { cycles / all } else { 0.0 }))
        .collect()
}
