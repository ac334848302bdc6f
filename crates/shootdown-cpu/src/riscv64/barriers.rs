//! The facade of a kernel in supervisor mode.

use super::instructions::{fence_iorw_iorw, fence_rw_rw};
use core::sync::atomic::AtomicU64;
use shootdown::Facade;

/// The processor's atomics and barriers. A FENCE orders memory accesses, and device accesses where a device raises or
/// shows an interrupt. Table walks are ordered by the SFENCE.VMA of the invalidation or root load that follows.
#[derive(Debug, Clone, Copy)]
pub struct BareMetal;

// SAFETY: each barrier is the one that `Facade` names for RISC-V, or stronger.
unsafe impl Facade for BareMetal {
    type U64 = AtomicU64;

    #[inline]
    fn full_barrier() {
        fence_rw_rw();
    }
    #[inline]
    fn publish_tables() {
        fence_rw_rw();
    }
    #[inline]
    fn publish_tables_full() {
        fence_rw_rw();
    }
    #[inline]
    fn before_ipi() {
        fence_iorw_iorw();
    }
    #[inline]
    fn after_ipi() {
        fence_iorw_iorw();
    }
    #[inline]
    fn before_root_load() {
        fence_rw_rw();
    }
    // Always: a condition that is called through a reference keeps all that it uses on the stack.
    #[inline(always)]
    fn wait_until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            super::relax();
        }
    }
}
