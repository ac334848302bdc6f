//! Where CPU time went, as shares of all of it.

use crate::machine::CpuStatistics;
use crate::model::Model;
use crate::os::category::Category;

/// Share of `all` cycles that each category took, by name. Entering and leaving the interrupt handler counts to the
/// interrupted side: the machine books it to what was interrupted, in proportion to how long each ran.
pub(crate) fn time_shares(total: &CpuStatistics, model: &Model, all: f64) -> Vec<(&'static str, f64)> {
    const INTERRUPTED: [Category; 3] = [Category::User, Category::Kernel, Category::FlushRequester];
    let mut cycles = total.cycles;
    let inject = model.vm.map_or(0.0, |vm| if vm.posted { 0.0 } else { vm.inject });
    let entries = total.interrupts_taken as f64 * (model.costs.interrupt_entry + inject + model.costs.interrupt_exit);
    let moved = entries.min(all);
    let outside: f64 = INTERRUPTED.iter().map(|kind| cycles[*kind as usize]).sum();
    for kind in INTERRUPTED {
        let share = if outside > 0.0 {
            cycles[kind as usize] / outside
        } else {
            0.0
        };
        cycles[kind as usize] = (cycles[kind as usize] - moved * share).max(0.0);
    }
    cycles[Category::FlushTarget as usize] += moved;
    // Only a hypervisor takes a CPU away.
    let names = match model.vm {
        Some(_) => &Category::NAMES[..],
        None => &Category::NAMES[..Category::Stolen as usize],
    };
    let shares = names.iter().zip(cycles);
    shares
        .map(|(&name, cycles)| (name, if all > 0.0 { cycles / all } else { 0.0 }))
        .collect()
}
