//! The report of a failed run: each CPU that is not done, its activity and what it waits for.

use super::config::{NEVER, TICKS_PER_CYCLE};
use super::cpu::{Cpu, State};
use super::record::Core;
use std::fmt::Write;

impl Core {
    /// A report that begins with `why` and has a line for each unfinished CPU.
    pub(crate) fn report(&self, why: &str) -> String {
        let mut text = format!("{why} (after {} charged operations):", self.events.get());
        for cpu in &self.cpus[..self.cpus.len() - 1] {
            if !matches!(cpu.state.get(), State::Absent | State::Finished) {
                text.push_str("\n  ");
                self.describe(cpu, &mut text);
            }
        }
        text
    }

    fn describe(&self, cpu: &Cpu, text: &mut String) {
        let cycles = |ticks: u64| ticks / TICKS_PER_CYCLE;
        let doing = match cpu.state.get() {
            State::Waiting => "waits",
            State::Sleeping => "sleeps",
            State::Charging => "is in a long charge",
            State::Running | State::Absent | State::Finished => "runs",
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "CPU {} {doing} since cycle {}", cpu.id(), cycles(cpu.clock.get()));
        if cpu.state.get() == State::Waiting {
            let recorded = cpu.recorded.borrow();
            let _ = write!(text, ", on {} lines", recorded.len());
            for &(id, _) in recorded.iter().take(4) {
                let line = self.lines.get(id);
                match line.owner.get() {
                    0 => drop(write!(text, "; line {id} that no CPU wrote")),
                    owner => drop(write!(text, "; line {id} last written by CPU {}", owner - 1)),
                }
            }
        }
        if cpu.masked.get() {
            text.push_str("; interrupts masked");
        }
        if cpu.irq_at.get() != NEVER {
            let _ = write!(text, "; interrupt pending from cycle {}", cycles(cpu.irq_at.get()));
        }
        if cpu.daemon.get() {
            text.push_str("; a daemon");
        }
        let _ = write!(text, "; category {}", cpu.category.get());
    }
}
