//! The facade of a kernel at EL1.

use super::instructions::{dsb_ish, dsb_ishst, dsb_sy};
use core::sync::atomic::{AtomicU64, Ordering, fence};
use shootdown::Facade;

/// The processor's atomics and barriers. A full barrier is DMB ISH. Where a table walk, a TLBI or the interrupt
/// controller must be ordered it is a DSB, because a DMB orders only memory accesses.
#[derive(Debug, Clone, Copy)]
pub struct BareMetal;

// SAFETY: each barrier is the one that `Facade` names for Arm, or stronger.
unsafe impl Facade for BareMetal {
    type U64 = AtomicU64;

    #[inline]
    fn full_barrier() {
        // DMB ISH.
        fence(Ordering::SeqCst);
    }
    #[inline]
    fn publish_tables() {
        dsb_ishst();
    }
    #[inline]
    fn publish_tables_full() {
        dsb_ish();
    }
    #[inline]
    fn before_ipi() {
        dsb_ishst();
    }
    #[inline]
    fn after_ipi() {
        dsb_sy();
    }
    #[inline]
    fn before_root_load() {
        dsb_ish();
    }
    // Always: a condition that is called through a reference keeps all that it uses on the stack.
    #[inline(always)]
    fn wait_until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            super::relax();
        }
    }
}
