//! The facade over simulated memory: [`SimWord`] and [`SimWorld`].
//!
//! On a CPU of a running machine every operation is charged; anywhere else it is a plain memory operation.

use super::Barrier;
use super::config::TICKS_PER_CYCLE;
use super::current::{core, try_core};
use shootdown::facade::{Facade, Word};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{self, Relaxed},
};

/// A word of simulated memory, 8 bytes.
///
/// Put it in the machine's memory (`Machine::alloc`, or a simulated CPU's stack): elsewhere it costs a first-level hit
/// and its stores are not buffered. Do not move it after a CPU has stored to it.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct SimWord(AtomicU64);

impl SimWord {
    /// The value, uncharged and without forwarding: for the host, tests and oracles.
    pub fn peek(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets the value, uncharged and unbuffered: for the host and tests.
    pub fn poke(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    pub(crate) fn raw(&self) -> &AtomicU64 {
        &self.0
    }

    #[inline(always)]
    fn modify(&self, change: impl Fn(u64) -> Option<u64>) -> u64 {
        match try_core() {
            Some(core) => core.modify(&self.0, change),
            None => {
                let old = self.0.load(Relaxed);
                if let Some(new) = change(old) {
                    self.0.store(new, Relaxed);
                }
                old
            }
        }
    }
}

impl Drop for SimWord {
    #[inline]
    fn drop(&mut self) {
        if let Some(core) = try_core() {
            core.forget_word(&self.0);
        }
    }
}

// SAFETY: the simulated memory is x86-TSO or stronger; the other named barriers are the machine's.
unsafe impl Word for SimWord {
    fn new(value: u64) -> Self {
        SimWord(AtomicU64::new(value))
    }
    #[inline]
    fn load(&self, _order: Ordering) -> u64 {
        match try_core() {
            Some(core) => core.load(&self.0),
            None => self.0.load(Relaxed),
        }
    }
    #[inline]
    fn store(&self, value: u64, _order: Ordering) {
        match try_core() {
            Some(core) => core.store(&self.0, value),
            None => self.0.store(value, Relaxed),
        }
    }
    #[inline(always)]
    fn fetch_add_full(&self, value: u64) -> u64 {
        self.modify(|old| Some(old.wrapping_add(value)))
    }
    #[inline(always)]
    fn fetch_or_full(&self, bits: u64) -> u64 {
        self.modify(|old| Some(old | bits))
    }
    #[inline(always)]
    fn fetch_and_full(&self, bits: u64) -> u64 {
        self.modify(|old| Some(old & bits))
    }
    #[inline(always)]
    fn swap_full(&self, value: u64) -> u64 {
        self.modify(|_| Some(value))
    }
    #[inline(always)]
    fn compare_exchange_full(&self, current: u64, new: u64) -> Result<u64, u64> {
        let old = self.modify(|old| (old == current).then_some(new));
        if old == current { Ok(old) } else { Err(old) }
    }
}

/// The world of the simulated machine, with the barriers of x86 and what the machine's barrier hook adds.
#[derive(Debug, Clone, Copy)]
pub struct SimWorld;

// SAFETY: the simulated memory is x86-TSO or stronger; the other named barriers are the machine's.
unsafe impl Facade for SimWorld {
    type U64 = SimWord;

    #[inline]
    fn full_barrier() {
        if let Some(core) = try_core() {
            core.fence();
        }
    }
    #[inline]
    fn publish_tables() {
        Self::full_barrier();
        run_barrier_hook(Barrier::PublishTables);
    }
    #[inline]
    fn publish_tables_before_full() {
        run_barrier_hook(Barrier::PublishTables);
    }
    #[inline]
    fn publish_tables_full() {
        Self::publish_tables();
    }
    fn after_ipi() {}
    #[inline]
    fn before_ipi() {
        Self::full_barrier();
    }
    #[inline]
    fn before_root_load() {
        run_barrier_hook(Barrier::BeforeRootLoad);
    }
    #[inline]
    fn prefetch(word: &SimWord) {
        if let Some(core) = try_core() {
            core.prefetch(&word.0);
        }
    }
    #[inline]
    fn prefetch_to_write(word: &SimWord) {
        if let Some(core) = try_core() {
            core.prefetch_to_write(&word.0);
        }
    }
    fn wait_until(condition: impl FnMut() -> bool) {
        core().wait_until(condition);
    }
}

/// The hardware of `cpu` adds to `word` at `at` (cycles), without cost: the next reader pays for the line. From a call
/// of [`at`](super::at) at that time.
pub fn add_by_hardware(cpu: usize, word: &SimWord, change: u64, at: u64) {
    core().add_by_hardware(cpu, word.raw(), change, at * TICKS_PER_CYCLE);
}

/// Additional effect of a barrier on this machine, beyond x86's.
#[inline]
fn run_barrier_hook(barrier: Barrier) {
    if let Some(core) = try_core() {
        core.pass_barrier(barrier);
    }
}
