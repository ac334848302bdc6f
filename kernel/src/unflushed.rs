//! Changes of an address space that are not flushed yet (rule 9 of the protocol, regressions 33 and 34).
//!
//! Entries are changed by one thread, and flushed by it a little later. Another that comes between finds nothing to
//! change: the page is gone, or read-only, already. It must not rely on that before it has flushed too, for CPUs may
//! still have what was there. So those who change are counted, from before their first change until after their flush.

use core::sync::atomic::{AtomicU64, Ordering};

/// How many have changed entries and not finished their flush.
pub struct Unflushed(AtomicU64);

impl Unflushed {
    /// Nobody.
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

/// One change. To be dropped after its flush.
pub struct Change<'a> {
    all: &'a Unflushed,
    weakens: bool,
}

impl Change<'_> {
    /// Before an entry is made to allow less.
    pub fn weakens(&mut self) {
        if !self.weakens {
            self.weakens = true;
            // A full barrier: counted, then weakened. Pairs with the fence in `must_flush`.
            self.all.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// After the entries have been looked at: whether to flush, for what this change has done or another that is under
    /// way.
    pub fn must_flush(&self) -> bool {
        // Entries read, then the count: who sees an entry of a change sees it counted, or sees that its flush is over.
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
