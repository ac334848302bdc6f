//! Changes of an address space that are not flushed yet (rule 9 of the protocol, regressions 33 and 34).
//!
//! One thread changes entries, and flushes them a little later. Another thread in between finds nothing to change: the
//! page is already gone, or read-only. It must not rely on that before it has flushed too, because CPUs may still have
//! the old entry. So changing threads are counted, from before their first change until after their flush.

use core::sync::atomic::{AtomicU64, Ordering};

/// Number of threads that have changed entries and not finished their flush.
pub struct Unflushed(AtomicU64);

impl Unflushed {
    /// Zero.
    pub const fn new() -> Unflushed {
        Unflushed(AtomicU64::new(0))
    }

    /// A change that may find entries to weaken.
    pub fn change(&self) -> Change<'_> {
        Change {
            all: self,
            weakens: false,
        }
    }
}

/// One change. Drop it after its flush.
pub struct Change<'a> {
    all: &'a Unflushed,
    weakens: bool,
}

impl Change<'_> {
    /// Called before an entry is made to allow less.
    pub fn weakens(&mut self) {
        if !self.weakens {
            self.weakens = true;
            // A full barrier: counted, then weakened. Pairs with the fence in `must_flush`.
            self.all.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Called after the entries have been checked: whether to flush, because of this change or another in progress.
    pub fn must_flush(&self) -> bool {
        // Entries read, then the count: a CPU that sees an entry of a change sees it counted, or sees that its flush is
        // over.
        core::sync::atomic::fence(Ordering::Acquire);
        self.weakens || self.all.0.load(Ordering::Acquire) != 0
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if self.weakens {
            // Release: the flush is over. Pairs with the acquire in `must_flush`.
            self.all.0.fetch_sub(1, Ordering::Release);
        }
    }
}
