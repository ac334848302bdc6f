//! The report of a CPU that does not answer (C7).

use crate::cpuset::CpuId;

/// Reports a CPU that did not answer in time (C7). The wait continues after the report: it never gives up and frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck {
    /// The CPU that waits.
    pub waiter: CpuId,
    /// The CPU that has not answered.
    pub target: CpuId,
    /// Space whose flush is waited for; 0 for kernel ranges and batches.
    pub space: u64,
    /// Generation requested; 0 if the request has none.
    pub generation: u64,
    /// Whether the target had interrupts off when the engine last saw it. `Some(true)`: look for a loop that waits with
    /// interrupts off and does not call [`Engine::poll`](crate::Engine::poll). Known in debug builds, from the target's
    /// last call that masks interrupts or polls, its last walk, and its last shootdown interrupt. Without
    /// [`Kernel::interrupts_are_off`](crate::Kernel::interrupts_are_off) every call counts as masked. `None` in a
    /// release build.
    pub masked: Option<bool>,
}

impl core::fmt::Display for Stuck {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "CPU {} has not answered CPU {} (space {}, generation {})",
            self.target, self.waiter, self.space, self.generation
        )?;
        match self.masked {
            Some(true) => f.write_str("; it was last seen with interrupts off: does it wait without `poll`?"),
            Some(false) => f.write_str("; it was last seen with interrupts on"),
            None => Ok(()),
        }
    }
}
