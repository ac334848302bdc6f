//! Speculative fills outside of accesses: a CPU walks on its own accord in a handler, in the middle of a switch or of a
//! wait, between a store and the invalidation behind it. Called by the hooks that are such moments; costs no virtual
//! time.

use super::hooks::SimKernel;
use crate::machine;

impl SimKernel {
    /// Between two of its steps this CPU may fill what it has used before.
    #[inline]
    pub(super) fn may_speculate(&self) {
        if self.hw.borrow_mut().turn_to_speculate() {
            self.speculate();
        }
    }

    #[inline(never)]
    fn speculate(&self) {
        machine::synchronise();
        self.hw.borrow_mut().speculate_recent(machine::cpu(), machine::now());
    }
}
