//! The flush log: the generation of one space, and the last ranges flushed in it, keyed by generation.
//!
//! A requester that took generation *g* writes its range into entry *g mod N*. A CPU that is some generations behind
//! reads every entry in between and flushes just those ranges. A missing entry (overrun, not yet written, lost to a
//! collision) reads as "unknown", and the reader flushes everything (C6).
//!
//! Generation and entries share one cache line. The requester already owns it, and a CPU that found the generation
//! changed has it too, so passing the range costs no extra transfer.

use crate::facade::{Facade, Word};
use crate::range::Range;
use core::sync::atomic::Ordering;

/// Entries per space: as many as fit the cache line of the generation. A CPU that is further behind flushes its whole
/// tag. Seven entries, on two lines, were no faster: tried by hand on `milan-72`, `turin-2p`, `icelake-128` and
/// `thunderx-48`.
pub const LOG_ENTRIES: usize = 3;

/// Set in a key while its range is being written.
const BUSY: u64 = 1 << 63;

#[repr(C)]
struct Entry<F: Facade> {
    /// Generation of the range, or that with [`BUSY`].
    key: F::U64,
    range: F::U64,
}

/// Generation and ring, one line.
#[repr(C, align(64))]
pub(crate) struct FlushLog<F: Facade> {
    /// Count of flush requests, from 1. Written by every flush.
    pub(crate) generation: F::U64,
    entries: [Entry<F>; LOG_ENTRIES],
}

#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
const _: () = assert!(size_of::<FlushLog<crate::facade::Native>>() == 64);

impl<F: Facade> FlushLog<F> {
    pub(crate) fn new() -> Self {
        FlushLog {
            generation: F::U64::new(1),
            entries: core::array::from_fn(|_| Entry {
                key: F::U64::new(0),
                range: F::U64::new(0),
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
    /// A range of more than one word is not written, because it would not be flushed page by page.
    ///
    /// The claim is a compare-exchange because two requesters a whole ring apart may meet here. Without it one
    /// requester's range could end up under the other's key.
    #[inline]
    pub(crate) fn append(&self, generation: u64, range: &Range) {
        if range.is_long() {
            return;
        }
        let entry = self.entry(generation);
        let found = entry.key.load(Ordering::Relaxed);
        // The key of an entry that is being written is above every generation.
        if found >= generation {
            return;
        }
        if entry.key.compare_exchange_full(found, generation | BUSY).is_err() {
            return;
        }
        entry.range.store(range.word(), Ordering::Relaxed);
        // Pairs with the acquire load in `read`: a reader that sees the key sees the range.
        entry.key.store(generation, Ordering::Release);
    }

    /// The range of `generation`, or `None` when it is unknown.
    #[inline]
    pub(crate) fn read(&self, generation: u64) -> Option<Range> {
        // Not long: the writer excludes long ranges.
        self.read_word(generation)
            .map(|word| Range::from_word(word, || u64::MAX))
    }

    /// [`read`](Self::read) in a function of its own, for a caller with much at hand. Returns the word of the range,
    /// which is not 0 because the number of strides is in it; 0 if it is unknown.
    #[inline(never)]
    pub(crate) fn read_apart(&self, generation: u64) -> u64 {
        self.read_word(generation).unwrap_or(0)
    }

    /// The word of that range.
    #[inline]
    fn read_word(&self, generation: u64) -> Option<u64> {
        let entry = self.entry(generation);
        // Pairs with the release store in `append`.
        if entry.key.load(Ordering::Acquire) != generation {
            return None;
        }
        // Acquire: the second read of the key comes after that of the range, and finds BUSY if the range was being
        // replaced.
        let range = entry.range.load(Ordering::Acquire);
        (entry.key.load(Ordering::Relaxed) == generation).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facade::Native;
    use crate::testing::interleave::{self, Interleaved};

    const LATER: u64 = 5 + LOG_ENTRIES as u64;

    fn leaked() -> &'static FlushLog<Interleaved> {
        Box::leak(Box::new(FlushLog::new()))
    }

    #[test]
    fn overwritten_and_incomplete_log_entries_read_as_none() {
        let log = FlushLog::<Native>::new();
        log.append(5, &Range::page(0x1000));
        assert_eq!(log.read(5), Some(Range::page(0x1000)));
        log.append(LATER, &Range::page(0x2000));
        assert_eq!((log.read(5), log.read(LATER)), (None, Some(Range::page(0x2000))));
        log.append(5, &Range::page(0x1000));
        assert_eq!(
            log.read(LATER),
            Some(Range::page(0x2000)),
            "a late requester overwrites nothing"
        );
        log.entry(5).key.store(LATER | BUSY, Ordering::Relaxed);
        log.append(LATER + LOG_ENTRIES as u64, &Range::page(0x3000));
        assert_eq!((log.read(LATER), log.read(LATER + LOG_ENTRIES as u64)), (None, None));
        assert_eq!(
            log.entry(5).key.load(Ordering::Relaxed),
            LATER | BUSY,
            "another writer has it"
        );
    }

    #[test]
    fn one_of_two_requesters_a_ring_apart_writes_the_entry() {
        let log = leaked();
        // Between the check and the claim another requester has claimed the entry, and has not written it yet.
        interleave::after(1, || log.entry(5).key.store(LATER | BUSY, Ordering::Relaxed));
        log.append(5, &Range::page(0x1000));
        assert_eq!((log.read(5), log.read(LATER)), (None, None));
        assert_eq!(log.entry(5).key.load(Ordering::Relaxed), LATER | BUSY);
    }

    #[test]
    fn log_entry_being_replaced_is_not_read() {
        for operations in 0..3 {
            let log = leaked();
            log.append(5, &Range::page(0x1000));
            interleave::after(operations, || log.append(LATER, &Range::page(0x2000)));
            let read = log.read(5);
            assert!(read.is_none(), "replaced before operation {operations}: {read:?}");
        }
    }

    #[test]
    fn half_written_log_entry_is_not_read() {
        for operations in 1..4 {
            let log = leaked();
            interleave::after(operations, move || {
                let read = log.read(5);
                assert!(read.is_none(), "before operation {operations}: {read:?}");
            });
            log.append(5, &Range::page(0x1000));
            assert_eq!(log.read(5), Some(Range::page(0x1000)));
        }
    }

    /// Two CPUs write the same entry, in every interleaving of operations: no range is found under another's
    /// generation.
    #[test]
    fn log_never_pairs_a_range_with_another_generation() {
        let ranges = [(5, Range::page(0x1000)), (LATER, Range::page(0x2000))];
        let all = (0..1024).map(|turns: u32| [0, 2, 4, 6, 8].map(|shift| turns >> shift & 3));
        for turns in interleave::some_under_miri(all) {
            let log = leaked();
            let [one, other] = ranges.map(|(generation, range)| move || log.append(generation, &range));
            interleave::together(&turns, one, other);
            for (generation, range) in ranges {
                let read = log.read(generation);
                assert!(read.is_none_or(|read| read == range), "turns {turns:?}: {read:?}");
            }
        }
    }
}
