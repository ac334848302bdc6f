//! System-wide tags for promotion: three bitmaps, no lock.
//!
//! A tag is *used* while a space has it, *dirty* from then until a reclaim begins, *flushing* until that reclaim's broadcast
//! is complete. Only a tag in none of the three is given out, so two live spaces can never share one (C4; regression 3).

use crate::facade::{Facade, Word};
use crate::hooks::Tag;
use core::sync::atomic::Ordering;

pub(crate) struct TagPool<'a, F: Facade> {
    used: &'a [F::U64],
    dirty: &'a [F::U64],
    flushing: &'a [F::U64],
    first: u16,
    end: u16,
    /// 1 while somebody reclaims.
    reclaiming: F::U64,
}

impl<'a, F: Facade> TagPool<'a, F> {
    /// Tags `first..end` in `words` (zeroed); with too few words the pool is empty.
    pub(crate) fn new(words: &'a [F::U64], first: u16, end: u16) -> Self {
        let each = usize::from(end).div_ceil(64);
        let fits = words.len() >= 3 * each;
        let part = |index: usize| {
            if fits {
                &words[index * each..(index + 1) * each]
            } else {
                &words[..0]
            }
        };
        TagPool {
            used: part(0),
            dirty: part(1),
            flushing: part(2),
            first,
            end,
            reclaiming: F::U64::new(0),
        }
    }

    /// Bits of word `index` that stand for tags of the pool.
    fn valid(&self, index: usize) -> u64 {
        let (first, end) = (usize::from(self.first), usize::from(self.end));
        let low = first.saturating_sub(index * 64).min(64);
        let high = end.saturating_sub(index * 64).min(64);
        let below = |bits: usize| if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        below(high) & !below(low)
    }

    /// A tag under which no CPU holds anything, or `None`. Scans from the lowest: few spaces are promoted at a time.
    pub(crate) fn allocate(&self) -> Option<Tag> {
        for index in 0..self.used.len() {
            loop {
                let taken = self.used[index].load(Ordering::Acquire)
                    | self.dirty[index].load(Ordering::Acquire)
                    | self.flushing[index].load(Ordering::Acquire);
                let free = self.valid(index) & !taken;
                if free == 0 {
                    break;
                }
                let bit = free & free.wrapping_neg();
                if self.used[index].fetch_or_full(bit) & bit != 0 {
                    continue; // lost the race
                }
                // Freed tags are marked dirty before they stop being used, and flushing before they stop being dirty: one
                // that was freed between the reads above and the claim shows here.
                let unclean = self.dirty[index].load(Ordering::Acquire) | self.flushing[index].load(Ordering::Acquire);
                if unclean & bit == 0 {
                    return Some(Tag((index * 64) as u16 + bit.trailing_zeros() as u16));
                }
                self.used[index].fetch_and_full(!bit);
            }
        }
        None
    }

    /// Gives back a tag that nobody has loaded or filled under.
    pub(crate) fn free_clean(&self, tag: Tag) {
        self.used[usize::from(tag.0) / 64].fetch_and_full(!(1 << (tag.0 % 64)));
    }

    /// Gives back a tag that no CPU has loaded any more; entries under it may survive anywhere.
    pub(crate) fn free_dirty(&self, tag: Tag) {
        let (index, bit) = (usize::from(tag.0) / 64, 1 << (tag.0 % 64));
        self.dirty[index].fetch_or_full(bit);
        self.used[index].fetch_and_full(!bit);
    }

    /// Makes dirty tags free again by `flush_all`, which must invalidate every tag everywhere. False when there is none or
    /// somebody else is at it: then the caller does without (C6), it does not wait.
    pub(crate) fn reclaim(&self, flush_all: impl FnOnce()) -> bool {
        if self.dirty.iter().all(|word| word.load(Ordering::Acquire) == 0) || self.reclaiming.swap_full(1) != 0 {
            return false;
        }
        for (dirty, flushing) in self.dirty.iter().zip(self.flushing) {
            let bits = dirty.load(Ordering::Acquire);
            flushing.fetch_or_full(bits);
            dirty.fetch_and_full(!bits);
        }
        // Tags freed from here on are dirty, not flushing: this flush does not count for them.
        flush_all();
        for flushing in self.flushing {
            flushing.swap_full(0);
        }
        self.reclaiming.store(0, Ordering::Release);
        true
    }

    /// Frees every tag at once, for a roll-over (under its lock).
    pub(crate) fn free_all(&self) {
        for word in self.used {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Takes a given tag out of the free ones, for a roll-over (under its lock).
    pub(crate) fn reserve(&self, tag: Tag) {
        self.used[usize::from(tag.0) / 64].fetch_or_full(1 << (tag.0 % 64));
    }

    /// Regression 3: the tag one past the range.
    #[cfg(feature = "faults")]
    pub(crate) fn beyond(&self) -> Tag {
        Tag(self.end)
    }
}
