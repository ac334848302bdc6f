//! The facade of a kernel in ring 0.

use core::sync::atomic::AtomicU64;
use shootdown::{Facade, Native};

/// `Native`, which is complete on this instruction set, except for the fences in `Controller::send`.
#[derive(Debug, Clone, Copy)]
pub struct BareMetal;

// SAFETY: the processor's own atomics and barriers.
unsafe impl Facade for BareMetal {
    type U64 = AtomicU64;

    #[inline]
    fn full_barrier() {
        Native::full_barrier();
    }
    #[inline]
    fn publish_tables() {
        Native::publish_tables();
    }
    #[inline]
    fn publish_tables_before_full() {}
    #[inline]
    fn publish_tables_full() {
        Native::publish_tables_full();
    }
    #[inline]
    fn before_ipi() {
        // A write to uncached memory is ordered after earlier stores. In x2APIC mode `Controller::send` has fences.
    }
    #[inline]
    fn after_ipi() {}
    #[inline]
    fn before_root_load() {}
    #[inline(always)]
    fn prefetch(word: &AtomicU64) {
        Native::prefetch(word);
    }
    #[inline(always)]
    fn prefetch_to_write(word: &AtomicU64) {
        Native::prefetch_to_write(word);
    }
    // Always: a condition that is called through a reference keeps all that it uses on the stack.
    #[inline(always)]
    fn wait_until(condition: impl FnMut() -> bool) {
        Native::wait_until(condition);
    }
}
