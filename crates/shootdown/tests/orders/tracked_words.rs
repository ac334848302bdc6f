//! Words that record each write, its CPU and the clock that it passes on. Other CPUs may run between their operations.
//! A load may return an older value if its CPU need not know the newer ones.

use crate::clocks::{self, Passed};
use crate::interleaving::{interleaving_point, reads_late};
use crate::work::on_word;
use crate::world::{CPUS, full, here, wrote};
use shootdown::Word;
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

/// Older values kept.
const KEPT: usize = 4;

/// A value, with its writer and time. The first precedes all events.
#[derive(Clone, Copy, Default)]
struct Written {
    value: u64,
    /// How many values precede it.
    number: u64,
    by: usize,
    time: u64,
    passed: Passed,
}

/// A word that records its writes.
#[derive(Default)]
pub struct TrackedWord {
    latest: Cell<Written>,
    /// Older values, the oldest first.
    before: RefCell<Vec<Written>>,
    /// The latest value that each CPU has read or written.
    found: Cell<[u64; CPUS]>,
}

// SAFETY: each test uses its words from one thread.
unsafe impl Sync for TrackedWord {}
// SAFETY: as above.
unsafe impl Send for TrackedWord {}

impl TrackedWord {
    /// The value that a load returns: the latest, or an older one while the CPU may have missed all later ones and has
    /// read none of them.
    fn find(&self) -> Written {
        let latest = self.latest.get();
        let mut found = self.found.get();
        let mut finds = latest;
        if latest.number > found[here()] && reads_late() {
            for before in self.before.borrow().iter().rev() {
                if finds.number == found[here()] || !clocks::may_miss(finds.by, finds.time) {
                    break;
                }
                finds = *before;
            }
        }
        found[here()] = finds.number;
        self.found.set(found);
        finds
    }

    fn write(&self, value: u64, time: u64, passed: Passed) {
        let latest = self.latest.get();
        let mut before = self.before.borrow_mut();
        if before.len() == KEPT {
            before.remove(0);
        }
        before.push(latest);
        let number = latest.number + 1;
        self.latest.set(Written {
            value,
            number,
            by: here(),
            time,
            passed,
        });
        let mut found = self.found.get();
        found[here()] = number;
        self.found.set(found);
        wrote();
    }

    fn modify(&self, change: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
        interleaving_point();
        on_word(true, true);
        let old = self.latest.get();
        match change(old.value) {
            Some(new) => {
                full();
                let time = clocks::tick();
                self.write(new, time, old.passed.modify());
                Ok(old.value)
            }
            None => {
                // No barrier.
                old.passed.load(Ordering::Relaxed);
                Err(old.value)
            }
        }
    }
    fn always(&self, change: impl Fn(u64) -> u64) -> u64 {
        self.modify(|old| Some(change(old))).unwrap_or_default()
    }
}

// SAFETY: one thread.
unsafe impl Word for TrackedWord {
    fn new(value: u64) -> Self {
        let word = TrackedWord::default();
        word.latest.set(Written {
            value,
            ..Written::default()
        });
        word
    }
    fn load(&self, order: Ordering) -> u64 {
        interleaving_point();
        on_word(true, false);
        let found = self.find();
        found.passed.load(order);
        found.value
    }
    fn store(&self, value: u64, order: Ordering) {
        interleaving_point();
        on_word(false, true);
        let time = clocks::tick();
        self.write(value, time, Passed::store(order));
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
