//! Virtual time by category and event counts, for each CPU.
//!
//! All time of a CPU, waiting and sleeping included, counts to the CPU's current category.

use super::config::TICKS_PER_CYCLE;
use super::cpu::{CATEGORIES, Cpu};
use super::record::Core;
use std::cell::Cell;

/// Counts of one CPU since the last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuStatistics {
    /// Charged operations.
    pub events: u64,
    /// Interrupts sent to other CPUs.
    pub ipis_sent: u64,
    /// Interrupts taken; several that were sent can merge into one.
    pub interrupts_taken: u64,
    /// Cycles in each category.
    pub cycles: [f64; CATEGORIES],
    /// Of these, cycles of entering and leaving interrupt handlers, by the category that was interrupted.
    pub entry_cycles: [f64; CATEGORIES],
}

/// Counts of the machine since the last reset.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Statistics {
    /// Time of the snapshot, cycles.
    pub at: u64,
    /// Sums over all CPUs.
    pub total: CpuStatistics,
    /// Each CPU.
    pub cpus: Vec<CpuStatistics>,
}

impl Core {
    /// Reference time of snapshots: the running CPU's, or the host's.
    fn reference_time(&self) -> u64 {
        if self.on_cpu() {
            self.cpu().clock.get()
        } else {
            self.time.get()
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let now = self.reference_time();
        let mut statistics = Statistics {
            at: now / TICKS_PER_CYCLE,
            ..Statistics::default()
        };
        for cpu in &self.cpus[..self.cpus.len() - 1] {
            let in_cycles = |time: &Cell<u64>| time.get() as f64 / TICKS_PER_CYCLE as f64;
            let mut cycles = cpu.times.each_ref().map(in_cycles);
            cycles[usize::from(cpu.category.get())] += Self::open(cpu, now) as f64 / TICKS_PER_CYCLE as f64;
            let one = CpuStatistics {
                events: cpu.events.get() - cpu.events_base.get(),
                ipis_sent: cpu.ipis_sent.get(),
                interrupts_taken: cpu.interrupts.get(),
                cycles,
                entry_cycles: cpu.entries.each_ref().map(in_cycles),
            };
            statistics.total.events += one.events;
            statistics.total.ipis_sent += one.ipis_sent;
            statistics.total.interrupts_taken += one.interrupts_taken;
            for (sum, cycles) in statistics.total.cycles.iter_mut().zip(one.cycles) {
                *sum += cycles;
            }
            for (sum, cycles) in statistics.total.entry_cycles.iter_mut().zip(one.entry_cycles) {
                *sum += cycles;
            }
            statistics.cpus.push(one);
        }
        statistics
    }

    /// Time of `cpu` up to `now` that is not booked yet; 0 for a CPU that is done.
    fn open(cpu: &Cpu, now: u64) -> u64 {
        use super::cpu::State::{Absent, Finished};
        let until = if matches!(cpu.state.get(), Absent | Finished) {
            cpu.clock.get()
        } else {
            now
        };
        until.saturating_sub(cpu.since.get())
    }

    /// Resets all counts and times at this moment.
    pub(crate) fn reset_statistics(&self) {
        let now = self.reference_time();
        for cpu in &self.cpus {
            cpu.events_base.set(cpu.events.get());
            cpu.ipis_sent.set(0);
            cpu.interrupts.set(0);
            cpu.since.set(cpu.since.get().max(now));
            cpu.times.iter().chain(&cpu.entries).for_each(|time| time.set(0));
        }
    }

    /// Books the time so far and changes the running CPU's category.
    #[inline]
    pub(crate) fn set_category(&self, category: u8) -> u8 {
        assert!(
            usize::from(category) < CATEGORIES,
            "there are {CATEGORIES} time categories"
        );
        let cpu = self.cpu();
        let old = cpu.category.replace(category);
        let now = cpu.clock.get();
        let time = &cpu.times[usize::from(old)];
        time.set(time.get() + now.saturating_sub(cpu.since.get()));
        cpu.since.set(cpu.since.get().max(now));
        old
    }
}
