//! The flush log: the last ranges flushed in one space, keyed by generation.
//!
//! Owns the ring in a [`Space`](crate::Space). A requester that took generation *g* writes its range into entry
//! *g mod N*; a CPU that is some generations behind reads every entry in between and flushes just those ranges. Whatever
//! is missing (overrun, not yet written, lost to a collision) reads as "unknown", and the reader flushes everything (C6).

use crate::facade::{Facade, Word};
use crate::range::Range;
use core::sync::atomic::Ordering;

/// Entries per space: two cache lines of keys and payload pairs hold four each, so this is eight lines. A CPU that is
/// further behind flushes its whole tag, which costs about as much as this many single invalidations.
pub const LOG_ENTRIES: usize = 32;

/// Set in a key while its payload is being written.
const BUSY: u64 = 1 << 63;

#[repr(C, align(32))]
struct Entry<F: Facade> {
    /// Generation whose range the payload is, or that with [`BUSY`].
    key: F::U64,
    payload: [F::U64; 2],
}

/// The ring.
#[repr(C, align(64))]
pub(crate) struct FlushLog<F: Facade> {
    entries: [Entry<F>; LOG_ENTRIES],
}

impl<F: Facade> FlushLog<F> {
    pub(crate) fn new() -> Self {
        FlushLog {
            entries: core::array::from_fn(|_| Entry {
                key: F::U64::new(0),
                payload: [F::U64::new(0), F::U64::new(0)],
            }),
        }
    }

    #[inline]
    fn entry(&self, generation: u64) -> &Entry<F> {
        &self.entries[generation as usize % LOG_ENTRIES]
    }

    /// Writes the range of `generation`. Wait-free: when another requester holds the entry, or has already reused it
    /// for a later generation, nothing is written and readers see "unknown".
    ///
    /// The claim is a compare-exchange because two requesters a whole ring apart may meet here; without it their
    /// payloads could mix under a valid key.
    #[inline]
    pub(crate) fn append(&self, generation: u64, range: &Range) {
        let entry = self.entry(generation);
        let found = entry.key.load(Ordering::Relaxed);
        if found & BUSY != 0 || found >= generation {
            return;
        }
        if entry.key.compare_exchange_full(found, generation | BUSY).is_err() {
            return;
        }
        for (word, value) in entry.payload.iter().zip(range.pack()) {
            word.store(value, Ordering::Relaxed);
        }
        // Pairs with the acquire load in `read`: whoever sees the key sees the payload.
        entry.key.store(generation, Ordering::Release);
    }

    /// The range of `generation`, or `None` when it is unknown.
    #[inline]
    pub(crate) fn read(&self, generation: u64) -> Option<Range> {
        let entry = self.entry(generation);
        // Pairs with the release store in `append`.
        if entry.key.load(Ordering::Acquire) != generation {
            return None;
        }
        // Acquire: the second read of the key comes after the payload, and finds BUSY if the payload was being replaced.
        let payload = [
            entry.payload[0].load(Ordering::Acquire),
            entry.payload[1].load(Ordering::Acquire),
        ];
        (entry.key.load(Ordering::Relaxed) == generation).then(|| Range::unpack(payload))
    }
}
