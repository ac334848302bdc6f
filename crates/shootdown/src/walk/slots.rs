//! What a CPU records about its own walks: words that only this CPU writes, with interrupts off.
//!
//! | line | read by |
//! | --- | --- |
//! | `published` | every freeing CPU under `Precise` |
//! | `slots`, `guards` | no other CPU, so that steady-state walks move no line |
//! | `quiescent` | freeing CPUs that wait for a grace period |
//!
//! A slot packs a space's id above a 16-bit count of walks since the registration, which saturates.
//!
//! Guards are counted. The published word and the interrupt state stay until the last guard of this CPU is dropped, in
//! any order. A walk in progress is never taken for one that has ended (C3).

use crate::cache_padded::CachePadded;
use crate::cpu::local_flag::LocalCount;
use crate::facade::{Facade, Word};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// Spaces that one CPU can walk in turn without registering again.
pub(crate) const SLOTS: usize = 4;

/// Published by a walk within a walk of another space: matches every freeing CPU (C6). No space has this id.
pub(crate) const ANY: u64 = u64::MAX;

/// The count below the id.
const COUNT: u64 = 0xFFFF;
/// Bits of the count. Ids have the 48 bits above: at a million spaces a second they last nine years.
const ID_SHIFT: u32 = 16;

#[repr(C, align(64))]
pub(crate) struct Walking<F: Facade> {
    /// Space of the walk in progress, 0 for none.
    pub(crate) published: CachePadded<F::U64>,
    slots: CachePadded<[F::U64; SLOTS]>,
    /// The last requested grace period that this CPU has seen from outside a walk.
    pub(crate) quiescent: CachePadded<F::U64>,
    guards: Guards,
}

/// The walk guards of one CPU.
struct Guards {
    /// Guards held, except in NMI context.
    held: LocalCount,
    /// Guards held in NMI context.
    held_in_nmi: LocalCount,
    /// Interrupt state from before the first guard.
    saved: LocalCount,
    /// 1 if `published` must be cleared after the last guard.
    published: LocalCount,
}

impl<F: Facade> Walking<F> {
    pub(crate) fn new() -> Self {
        Walking {
            published: CachePadded(F::U64::new(0)),
            slots: CachePadded(core::array::from_fn(|_| F::U64::new(0))),
            quiescent: CachePadded(F::U64::new(0)),
            guards: Guards {
                held: LocalCount::new(),
                held_in_nmi: LocalCount::new(),
                saved: LocalCount::new(),
                published: LocalCount::new(),
            },
        }
    }

    /// Whether this CPU is in a walk. NMI context is excluded, because nothing here interrupts its handlers.
    #[inline]
    pub(crate) fn inside(&self) -> bool {
        self.guards.held.get() != 0
    }

    /// Adds a guard. `saved` is the interrupt state from before it masked interrupts.
    #[inline]
    pub(super) fn begin(&self, saved: u64) {
        let held = self.guards.held.get();
        if held == 0 {
            self.guards.saved.put(saved);
        }
        self.guards.held.put(held + 1);
    }

    /// Removes a guard. After the last, withdraws what was published and returns the interrupt state to restore.
    #[inline]
    pub(super) fn end(&self) -> Option<u64> {
        let left = self.guards.held.get() - 1;
        self.guards.held.put(left);
        if left != 0 {
            return None;
        }
        if self.guards.published.get() != 0 {
            self.guards.published.put(0);
            // Release: the table reads precede it. Pairs with the acquire read of the freeing CPU.
            self.published.0.store(0, Release);
        }
        Some(self.guards.saved.get())
    }

    /// Adds a guard in NMI context.
    pub(super) fn begin_in_nmi(&self) {
        self.guards.held_in_nmi.put(self.guards.held_in_nmi.get() + 1);
    }

    /// Removes a guard in NMI context. Returns whether it was the last.
    pub(super) fn end_in_nmi(&self) -> bool {
        let left = self.guards.held_in_nmi.get() - 1;
        self.guards.held_in_nmi.put(left);
        left == 0
    }

    /// What a walk of `space` has to publish, or `None` if that is published already. The caller publishes it.
    #[inline]
    pub(super) fn to_publish(&self, space: u64) -> Option<u64> {
        match self.published.0.load(Relaxed) {
            0 => {
                self.guards.published.put(1);
                Some(space)
            }
            same if same == space => None,
            _ => Some(ANY),
        }
    }

    /// Counts a walk in the slot of `space`. Returns whether it has one.
    #[inline]
    pub(super) fn count_registered(&self, space: u64) -> bool {
        for slot in &self.slots.0 {
            let word = slot.load(Relaxed);
            if word >> ID_SHIFT == space {
                slot.store(counted(word), Relaxed);
                return true;
            }
            if word == 0 {
                return false; // slots are filled from the first
            }
        }
        false
    }

    /// Gives `space` a slot, with one walk counted: the first empty one, otherwise that of another space. The other
    /// space keeps this CPU's bit until its next freeing CPU finds no slot for it. A space that is being walked may
    /// lose its slot: its bit is enough.
    pub(super) fn register(&self, space: u64) {
        let empty = (0..SLOTS).find(|&index| self.slots.0[index].load(Relaxed) == 0);
        // Varies the slot: with a fixed one, two spaces would keep displacing each other.
        let index = empty.unwrap_or(space as usize % SLOTS);
        self.slots.0[index].store(counted(space << ID_SHIFT), Relaxed);
    }

    /// Removes the registration for `space` and returns the walks that it has served. Not in a walk: the last slot in
    /// use moves to its place.
    pub(crate) fn forget(&self, space: u64) -> u64 {
        let word = |index: usize| self.slots.0[index].load(Relaxed);
        let Some(index) = (0..SLOTS).find(|&index| word(index) >> ID_SHIFT == space) else {
            return 0;
        };
        let served = word(index) & COUNT;
        let last = (index..SLOTS).rev().find(|&last| word(last) != 0).unwrap_or(index);
        self.slots.0[index].store(word(last), Relaxed);
        self.slots.0[last].store(0, Relaxed);
        served
    }

    /// Removes all registrations, for a CPU that comes online. Bits that it left in walker sets stay; they cost an
    /// interrupt each.
    pub(crate) fn forget_all(&self) {
        self.slots.0.iter().for_each(|slot| slot.store(0, Relaxed));
        self.published.0.store(0, Relaxed);
    }
}

/// Adds a walk.
#[inline]
const fn counted(word: u64) -> u64 {
    if word & COUNT == COUNT { word } else { word + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::interleave::Interleaved;

    fn walking() -> Walking<Interleaved> {
        Walking::new()
    }

    /// Registers for each of these spaces in turn, with one walk each.
    fn registered(spaces: impl IntoIterator<Item = u64>) -> Walking<Interleaved> {
        let walking = walking();
        spaces.into_iter().for_each(|space| walking.register(space));
        walking
    }

    #[test]
    fn walks_are_counted_since_registration() {
        let walking = registered([7]);
        (0..4).for_each(|_| assert!(walking.count_registered(7)));
        assert_eq!(walking.forget(7), 5, "the one that registered, and four");
        assert!(!walking.count_registered(7));
        assert_eq!(walking.forget(7), 0);
    }

    #[test]
    fn walk_count_saturates() {
        let walking = registered([7]);
        (0..COUNT + 10).for_each(|_| assert!(walking.count_registered(7)));
        assert!(!walking.count_registered(8), "and does not run into the id");
        assert_eq!(walking.forget(7), COUNT);
    }

    #[test]
    fn forgotten_slot_leaves_no_gap() {
        for (forgotten, left) in [(1, [2, 3]), (2, [1, 3]), (3, [1, 2])] {
            let walking = registered([1, 2, 3]);
            assert_eq!(walking.forget(forgotten), 1);
            assert!(!walking.count_registered(forgotten));
            for space in left {
                assert!(walking.count_registered(space), "still registered");
                assert_eq!(walking.forget(space), 2);
            }
            assert_eq!(walking.slots.0.each_ref().map(|slot| slot.load(Relaxed)), [0; SLOTS]);
        }
    }

    #[test]
    fn spaces_beyond_the_slots_use_different_slots() {
        let walking = registered(1..=SLOTS as u64);
        walking.register(SLOTS as u64 + 1);
        walking.register(SLOTS as u64 + 2);
        assert!(walking.count_registered(SLOTS as u64 + 1) && walking.count_registered(SLOTS as u64 + 2));
    }

    #[test]
    fn outermost_walk_restores_the_interrupt_state() {
        let walking = walking();
        walking.begin(5);
        walking.begin(6);
        assert!(walking.inside());
        assert_eq!(walking.end(), None);
        assert!(walking.inside());
        assert_eq!(walking.end(), Some(5));
        assert!(!walking.inside());
        walking.begin(6);
        assert_eq!(walking.end(), Some(6));
    }

    #[test]
    fn published_walk_is_withdrawn_once() {
        let walking = walking();
        assert_eq!(walking.to_publish(7), Some(7));
        walking.published.0.store(7, Relaxed);
        for published in [true, false, false] {
            let before = walking.published.0.writes();
            walking.begin(0);
            walking.end();
            assert_eq!(walking.published.0.writes() - before, u32::from(published));
            assert_eq!(walking.published.0.load(Relaxed), 0);
        }
    }

    #[test]
    fn forget_all_clears_registrations_and_publication() {
        let walking = registered(1..=SLOTS as u64);
        walking.published.0.store(ANY, Relaxed);
        walking.forget_all();
        assert_eq!(walking.published.0.load(Relaxed), 0);
        assert!((1..=SLOTS as u64).all(|space| !walking.count_registered(space)));
    }
}
