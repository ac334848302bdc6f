//! Idle states of a processor: how long it takes to leave them.
//!
//! A CPU that sleeps is in the first state. Its core is in the second if its SMT siblings do nothing either and the CPU
//! has slept long enough (Linux's `intel_idle`: C1 and C1E). The second takes longer to leave.

use super::System;
use crate::machine;

/// Times in cycles.
#[derive(Debug, Clone, Copy, Default)]
pub struct IdleStates {
    /// To leave the first state.
    pub exit: u64,
    /// To leave the second. At most `exit`: there is no second.
    pub deep_exit: u64,
    /// Least sleep in the second.
    pub deep_after: u64,
}

impl IdleStates {
    /// Time to leave the state of a core that has slept for `slept`.
    pub(super) fn exit_after(&self, slept: u64) -> u64 {
        match slept > 0 && slept >= self.deep_after {
            true => self.exit.max(self.deep_exit),
            false => self.exit,
        }
    }

    /// How much longer a wake-up of `cpu` takes than one from the first state.
    pub(super) fn beyond_first(&self, cpu: usize) -> u64 {
        self.exit_after(machine::core_sleep(cpu)) - self.exit
    }
}

impl<const W: usize> System<W> {
    /// Wakes `cpu`, which is idle, if it sleeps.
    pub(super) fn wake_idle(&self, cpu: usize) {
        machine::wake(cpu, self.costs.idle.beyond_first(cpu));
    }
}
