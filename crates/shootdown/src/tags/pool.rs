//! System-wide tags for promotion: three bitmaps, no lock.
//!
//! A tag is *used* while a space has it, and after that until a later reclaim has completed its broadcast. It is
//! *dirty* until that reclaim begins and *flushing* until it ends. Only an unused tag is allocated, so two live spaces
//! never share one (C4; regression 3).

use crate::design::TagRange;
use crate::facade::{Facade, Word};
use crate::hooks::Tag;
use core::sync::atomic::Ordering;

pub(crate) struct TagPool<'a, F: Facade> {
    used: &'a [F::U64],
    dirty: &'a [F::U64],
    flushing: &'a [F::U64],
    tags: TagRange,
    /// 1 while a CPU reclaims.
    reclaiming: F::U64,
}

impl<'a, F: Facade> TagPool<'a, F> {
    /// A pool of `tags` in `words` (zeroed). With too few words the pool is empty.
    pub(crate) fn new(words: &'a [F::U64], tags: TagRange) -> Self {
        let each = (tags.end as usize).div_ceil(64);
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
            tags,
            reclaiming: F::U64::new(0),
        }
    }

    /// Bits of word `index` that are tags of the pool.
    fn valid(&self, index: usize) -> u64 {
        let (first, end) = (self.tags.first as usize, self.tags.end as usize);
        let low = first.saturating_sub(index * 64).min(64);
        let high = end.saturating_sub(index * 64).min(64);
        let below = |bits: usize| if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        below(high) & !below(low)
    }

    /// A tag under which no CPU holds entries, or `None`. Scans from the lowest: few spaces are promoted at a time.
    pub(crate) fn allocate(&self) -> Option<Tag> {
        for index in 0..self.used.len() {
            loop {
                // A hint: the claim below is a full barrier and decides.
                let free = self.valid(index) & !self.used[index].load(Ordering::Relaxed);
                if free == 0 {
                    break;
                }
                let bit = free & free.wrapping_neg();
                // Pairs with the same word's exchange in `free_clean` and at the end of `reclaim`: a CPU that gets the
                // tag sees that it is clean.
                if self.used[index].fetch_or_full(bit) & bit == 0 {
                    return Some(Tag((index * 64) as u16 + bit.trailing_zeros() as u16));
                }
            }
        }
        None
    }

    /// Frees a tag that no CPU has loaded or filled under.
    pub(crate) fn free_clean(&self, tag: Tag) {
        self.used[usize::from(tag.0) / 64].fetch_and_full(!(1 << (tag.0 % 64)));
    }

    /// Frees a tag that no CPU has loaded any more. Entries under it may survive on any CPU, so it stays used until a
    /// reclaim has invalidated them.
    pub(crate) fn free_dirty(&self, tag: Tag) {
        // Full barrier: pairs with the swap in `reclaim`, whose flush comes after the last load of the tag.
        self.dirty[usize::from(tag.0) / 64].fetch_or_full(1 << (tag.0 % 64));
    }

    /// Makes dirty tags free again by `flush_all`, which must invalidate every tag everywhere. Returns false if there
    /// is none, or if another CPU is reclaiming: the caller then proceeds without a tag (C6) and does not wait.
    pub(crate) fn reclaim(&self, flush_all: impl FnOnce()) -> bool {
        let is_dirty = |word: &F::U64| word.load(Ordering::Relaxed) != 0;
        if !self.dirty.iter().any(is_dirty) || self.reclaiming.swap_full(1) != 0 {
            return false;
        }
        // Tags freed from here on are dirty, not flushing: this flush does not clean them.
        for (dirty, flushing) in self.dirty.iter().zip(self.flushing) {
            // Full barrier: pairs with `free_dirty`.
            flushing.store(dirty.swap_full(0), Ordering::Relaxed);
        }
        flush_all();
        for (used, flushing) in self.used.iter().zip(self.flushing) {
            // Full barrier: pairs with `allocate`. The tag is found free after the flush.
            used.fetch_and_full(!flushing.load(Ordering::Relaxed));
        }
        // Relaxed: the full barriers above order it after the words of `flushing`, which it protects.
        self.reclaiming.store(0, Ordering::Relaxed);
        true
    }

    /// Frees every tag at once, for a roll-over (under its lock).
    pub(crate) fn free_all(&self) {
        for word in self.used {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Reserves one free tag, for a roll-over (under its lock).
    pub(crate) fn reserve(&self, tag: Tag) {
        self.used[usize::from(tag.0) / 64].fetch_or_full(1 << (tag.0 % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::interleave::{self, Interleaved, InterleavedWord};
    use core::cell::Cell;
    use core::sync::atomic::AtomicBool;

    const FIRST: u16 = 3;
    const END: u16 = 70;
    const TAGS: TagRange = TagRange {
        first: FIRST as u32,
        end: END as u32,
    };

    type Operation = fn(&TagPool<'_, Interleaved>);

    fn pool() -> &'static TagPool<'static, Interleaved> {
        let words: Vec<InterleavedWord> = (0..crate::tag_words(END.into()))
            .map(|_| InterleavedWord::new(0))
            .collect();
        Box::leak(Box::new(TagPool::new(words.leak(), TAGS)))
    }

    fn take_all(pool: &TagPool<'_, Interleaved>) -> Vec<u16> {
        core::iter::from_fn(|| pool.allocate().map(|tag| tag.0)).collect()
    }

    #[test]
    fn pool_allocates_every_tag_once() {
        let pool = pool();
        assert_eq!(take_all(pool), (FIRST..END).collect::<Vec<_>>());
        pool.free_clean(Tag(66));
        assert_eq!(take_all(pool), [66]);
    }

    #[test]
    fn free_all_frees_every_tag() {
        let pool = pool();
        let all = take_all(pool);
        pool.free_all();
        assert_eq!(take_all(pool), all);
    }

    #[test]
    fn dirty_tag_is_allocatable_after_a_later_flush() {
        let pool = pool();
        let all = take_all(pool);
        assert!(!pool.reclaim(|| panic!("nothing is dirty")));
        pool.free_dirty(Tag(5));
        pool.free_dirty(Tag(69));
        assert_eq!(pool.allocate(), None);
        let reclaimed = pool.reclaim(|| {
            assert_eq!(pool.allocate(), None, "not before the flush is over");
            pool.free_dirty(Tag(7));
            assert!(!pool.reclaim(|| panic!("one at a time")));
        });
        assert!(reclaimed);
        assert_eq!(take_all(pool), [5, 69], "the flush does not count for 7");
        assert!(pool.reclaim(|| {}), "another CPU may reclaim now");
        assert_eq!(take_all(pool), [7]);
        assert_eq!(all.len(), usize::from(END - FIRST));
    }

    #[test]
    fn allocation_ignores_a_tag_freed_dirty_meanwhile() {
        // At every point of the allocation its last user gives it up.
        for operations in 0..8 {
            let pool = pool();
            let mut left = take_all(pool);
            interleave::after(operations, || pool.free_dirty(Tag(5)));
            assert_eq!(pool.allocate(), None, "freed before operation {operations}");
            if !interleave::never() {
                pool.free_dirty(Tag(5));
            }
            pool.free_dirty(Tag(9));
            assert!(pool.reclaim(|| {}));
            left.retain(|tag| [5, 9].contains(tag));
            assert_eq!(take_all(pool), left, "freed before operation {operations}");
        }
    }

    #[test]
    fn simultaneous_allocations_get_distinct_tags() {
        for operations in 0..6 {
            let pool = pool();
            let other = std::rc::Rc::new(core::cell::Cell::new(None));
            let theirs = other.clone();
            interleave::after(operations, move || theirs.set(pool.allocate()));
            let mine = pool.allocate();
            interleave::never();
            let lowest = FIRST..=FIRST + 1;
            assert!(
                mine.is_some_and(|tag| lowest.contains(&tag.0)),
                "the search goes on: {mine:?}"
            );
            let mut all = take_all(pool);
            all.extend(mine.into_iter().chain(other.get()).map(|tag| tag.0));
            all.sort_unstable();
            assert_eq!(
                all,
                (FIRST..END).collect::<Vec<_>>(),
                "each once, at operation {operations}"
            );
        }
    }

    #[test]
    fn simultaneous_operations_on_neighbouring_tags_are_kept() {
        // At every point another operation on the same words intervenes. A reclaim cleans what is freed before it
        // begins.
        let operations: [(bool, Operation); 4] = [
            (false, |pool| pool.free_clean(Tag(5))),
            (false, |pool| pool.free_dirty(Tag(5))),
            (false, |pool| pool.reserve(Tag(5))),
            (true, |pool| assert!(pool.reclaim(|| {}))),
        ];
        for (may_clean, operation) in operations {
            for moment in 0..12 {
                let pool = pool();
                let all = take_all(pool);
                pool.free_dirty(Tag(9));
                interleave::after(moment, || pool.free_dirty(Tag(7)));
                operation(pool);
                if !interleave::never() {
                    pool.free_dirty(Tag(7));
                }
                let is_used = pool.used[0].load(Ordering::Relaxed) & 1 << 7 != 0;
                assert!(is_used || may_clean, "dirty, at operation {moment}");
                pool.reclaim(|| {});
                let again = take_all(pool);
                assert!(again.contains(&7), "given back, at operation {moment}");
                assert!(again.iter().all(|tag| all.contains(tag)));
            }
        }
    }

    #[test]
    fn tag_freed_clean_meanwhile_is_kept() {
        let operations: [Operation; 3] = [
            |pool| pool.free_clean(Tag(5)),
            |pool| pool.reserve(Tag(5)),
            |pool| assert!(pool.reclaim(|| {})),
        ];
        for operation in operations {
            for moment in 0..12 {
                let pool = pool();
                take_all(pool);
                pool.free_dirty(Tag(9));
                interleave::after(moment, || pool.free_clean(Tag(7)));
                operation(pool);
                if interleave::never() {
                    assert!(take_all(pool).contains(&7), "at operation {moment}");
                }
            }
        }
    }

    #[test]
    fn tag_reused_between_check_and_claim_is_not_allocated() {
        // Another tag of the same word is freed while this one is put back.
        for (first, second) in (0..8).flat_map(|first| (0..8).map(move |second| (first, second))) {
            let pool = pool();
            take_all(pool);
            pool.free_clean(Tag(5));
            let theirs = &*Box::leak(Box::new(Cell::new(None)));
            interleave::after(first, move || {
                theirs.set(pool.allocate());
                theirs.get().into_iter().for_each(|tag| pool.free_dirty(tag));
                interleave::after(second, || pool.free_dirty(Tag(9)));
            });
            let mine = pool.allocate();
            let interleave = interleave::never();
            assert!(mine.is_none() || theirs.get().is_none(), "at operation {first}");
            mine.into_iter().for_each(|tag| pool.free_dirty(tag));
            if !interleave {
                pool.free_dirty(Tag(9));
            }
            assert!(pool.reclaim(|| assert_eq!(pool.allocate(), None)));
            assert_eq!(take_all(pool), [5, 9], "at operation {first}, {second} later");
        }
    }

    #[test]
    fn allocation_during_reclaim_gets_only_flushed_tags() {
        for moment in 0..16 {
            let pool = pool();
            take_all(pool);
            pool.free_dirty(Tag(5));
            let (flushed, got) = (
                &*Box::leak(Box::new(Cell::new(false))),
                &*Box::leak(Box::new(Cell::new(None))),
            );
            interleave::after(moment, || got.set(pool.allocate().map(|tag| (tag, flushed.get()))));
            assert!(pool.reclaim(|| flushed.set(true)));
            interleave::never();
            assert!(got.get().is_none_or(|(_, flushed)| flushed), "at operation {moment}");
        }
    }

    #[test]
    fn tag_freed_during_reclaim_is_flushed_or_stays_dirty() {
        for moment in 0..16 {
            let pool = pool();
            take_all(pool);
            pool.free_dirty(Tag(5));
            let (freed, flushed) = (
                &*Box::leak(Box::new(Cell::new(false))),
                &*Box::leak(Box::new(Cell::new(false))),
            );
            interleave::after(moment, || {
                pool.free_dirty(Tag(7));
                freed.set(true);
            });
            assert!(pool.reclaim(|| {
                assert_eq!(pool.allocate(), None, "not before the flush is over");
                flushed.set(freed.get());
            }));
            interleave::never();
            let expected = if flushed.get() { [5, 7].as_slice() } else { &[5] };
            let free = take_all(pool);
            assert!(
                free == expected || free == [5],
                "{free:?}, freed before operation {moment}"
            );
            assert!(pool.reclaim(|| {}) || free.len() == 2 || !freed.get());
            assert_eq!(take_all(pool).len() + free.len(), 1 + usize::from(freed.get()));
        }
    }

    #[test]
    fn simultaneous_reclaims_do_not_end_each_others_flush() {
        let all = (0..12).flat_map(|first| (0..30).map(move |second| [first, second]));
        for turns in interleave::some_under_miri(all) {
            let pool = pool();
            take_all(pool);
            let dirty = [const { AtomicBool::new(false) }; END as usize];
            let is_dirty = |tag: &Tag| dirty[usize::from(tag.0)].load(Ordering::Relaxed);
            let free = |tag: Tag| {
                dirty[usize::from(tag.0)].store(true, Ordering::Relaxed);
                pool.free_dirty(tag);
            };
            // Cleans what was dirty when it began. Meanwhile one more tag is freed, and another CPU allocates.
            let flush = |meanwhile: Tag| {
                let before: Vec<Tag> = (0..END).map(Tag).filter(is_dirty).collect();
                free(meanwhile);
                let got = pool.allocate();
                assert!(!got.as_ref().is_some_and(is_dirty), "{got:?}, in turns of {turns:?}");
                got.into_iter().for_each(|tag| pool.free_clean(tag));
                before
                    .iter()
                    .for_each(|tag| dirty[usize::from(tag.0)].store(false, Ordering::Relaxed));
            };
            free(Tag(5));
            let reclaim = |meanwhile| {
                move || {
                    pool.reclaim(|| flush(Tag(meanwhile)));
                }
            };
            interleave::together(&turns, reclaim(7), reclaim(9));
            let mut all = take_all(pool);
            assert!(all.iter().all(|tag| !is_dirty(&Tag(*tag))));
            pool.reclaim(|| {});
            all.extend(take_all(pool));
            all.sort_unstable();
            assert!(
                all == [5, 7] || all == [5, 9] || all == [5, 7, 9],
                "none is lost: {all:?}"
            );
        }
    }

    #[test]
    fn pool_with_too_few_words_is_empty() {
        let words = [0; 2].map(InterleavedWord::new);
        let pool = TagPool::<Interleaved>::new(&words, TAGS);
        assert_eq!(pool.allocate(), None);
    }
}
