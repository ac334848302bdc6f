//! Atomics and barriers of the target: the shortest that a kernel could use.

use core::sync::atomic::{AtomicU64, Ordering, fence};
use shootdown::{Facade, Word};

/// A word.
pub struct Cell(AtomicU64);

// SAFETY: the processor's own atomics.
unsafe impl Word for Cell {
    fn new(value: u64) -> Self {
        Cell(AtomicU64::new(value))
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    #[inline(always)]
    fn set(&mut self, value: u64) {
        *self.0.get_mut() = value;
    }
    #[inline(always)]
    fn fetch_add_full(&self, value: u64) -> u64 {
        self.0.fetch_add(value, Ordering::SeqCst)
    }
    #[inline(always)]
    fn fetch_or_full(&self, bits: u64) -> u64 {
        self.0.fetch_or(bits, Ordering::SeqCst)
    }
    #[inline(always)]
    fn fetch_and_full(&self, bits: u64) -> u64 {
        self.0.fetch_and(bits, Ordering::SeqCst)
    }
    #[inline(always)]
    fn swap_full(&self, value: u64) -> u64 {
        self.0.swap(value, Ordering::SeqCst)
    }
    #[inline(always)]
    fn compare_exchange_full(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.0
            .compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
    }
}

/// The facade of the measured engine.
pub struct Bare;

// SAFETY: never run. The fence stands for the barrier of real hardware, which is one instruction too.
unsafe impl Facade for Bare {
    type U64 = Cell;
    #[inline(always)]
    fn full_barrier() {
        fence(Ordering::SeqCst);
    }
    #[inline(always)]
    fn publish_tables() {
        fence(Ordering::SeqCst);
    }
    #[inline(always)]
    fn publish_tables_full() {
        fence(Ordering::SeqCst);
    }
    #[inline(always)]
    fn before_ipi() {
        fence(Ordering::SeqCst);
    }
    #[inline(always)]
    fn after_ipi() {
        fence(Ordering::SeqCst);
    }
    #[inline(always)]
    fn before_root_load() {
        fence(Ordering::SeqCst);
    }
    #[inline(always)]
    fn wait_until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            core::hint::spin_loop();
        }
    }
}
