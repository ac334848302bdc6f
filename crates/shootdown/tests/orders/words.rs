//! Words that remember that they were written and what they pass on, and between whose operations others come in.

use crate::clocks::Passed;
use crate::meddling::moment;
use crate::world::{full, wrote};
use shootdown::Word;
use std::sync::atomic::{AtomicU64, Ordering};

/// A word that remembers that it was written.
pub struct Minded(AtomicU64, Passed);

// SAFETY: each test uses its words from one thread.
unsafe impl Sync for Minded {}

impl Minded {
    fn modify(&self, change: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
        moment();
        full();
        let old = self.0.load(Ordering::Relaxed);
        match change(old) {
            Some(new) => {
                self.0.store(new, Ordering::Relaxed);
                wrote();
                self.1.modify();
                Ok(old)
            }
            None => {
                self.1.look();
                Err(old)
            }
        }
    }
    fn always(&self, change: impl Fn(u64) -> u64) -> u64 {
        self.modify(|old| Some(change(old))).unwrap_or_default()
    }
}

impl Word for Minded {
    fn new(value: u64) -> Self {
        Minded(AtomicU64::new(value), Passed::default())
    }
    fn load(&self, order: Ordering) -> u64 {
        moment();
        self.1.load(order);
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        moment();
        wrote();
        self.1.store(order);
        self.0.store(value, order);
    }
    fn fetch_add_full(&self, value: u64) -> u64 {
        self.always(|old| old.wrapping_add(value))
    }
    fn fetch_or_full(&self, bits: u64) -> u64 {
        self.always(|old| old | bits)
    }
    fn fetch_and_full(&self, bits: u64) -> u64 {
        self.always(|old| old & bits)
    }
    fn swap_full(&self, value: u64) -> u64 {
        self.always(|_| value)
    }
    fn compare_exchange_full(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.modify(|old| (old == current).then_some(new))
    }
}
