//! Speculative fills outside of accesses: a CPU walks speculatively in a handler, in the middle of a switch or of a
//! wait, and between a store and the invalidation after it. The hooks call it at such moments; it costs no virtual
//! time.

use super::hooks::SimKernel;
use crate::machine;

impl SimKernel {
    /// Between two steps this CPU may speculatively fill a page that it has used before.
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
