//! What a CPU keeps about its own walks: three lines, all written by that CPU only, with interrupts off.
//!
//! | line | read by |
//! | --- | --- |
//! | `published` | every freeing side under `Precise` |
//! | `slots` | nobody else, so that steady-state walks move no line |
//! | `quiescent` | freeing sides that wait for a grace period |
//!
//! A slot packs a space's id above a 16-bit field: bit 0 says that a walk is under way, the rest counts walks since the
//! registration and stops at its top. The mark that a walk must leave anyway is thus in the word that the compare has
//! loaded, and being registered costs a walk nothing more.

use super::End;
use crate::facade::{Facade, Word};
use crate::space::Line;
use core::sync::atomic::Ordering::{Relaxed, Release};

/// Spaces that one CPU can walk in turn without registering anew.
pub(crate) const SLOTS: usize = 4;

/// Published by a walk within a walk of another space: concerns every freeing side (C6). No space has this id.
pub(crate) const ANY: u64 = u64::MAX;

/// A walk is under way.
const IN_WALK: u64 = 1;
/// One counted walk.
const ONE: u64 = 2;
/// The field below the id.
const LOW: u64 = 0xFFFF;
/// Bits of that field. Ids have the 48 above: at a million spaces a second they last nine years.
const ID_SHIFT: u32 = 16;

#[repr(C, align(64))]
pub(crate) struct Walking<F: Facade> {
    /// Space of the walk under way, 0 for none.
    pub(crate) published: Line<F::U64>,
    slots: Line<[F::U64; SLOTS]>,
    /// The last grace period asked for that this CPU has seen from outside a walk.
    pub(crate) quiescent: Line<F::U64>,
}

impl<F: Facade> Walking<F> {
    pub(crate) fn new() -> Self {
        Walking {
            published: Line(F::U64::new(0)),
            slots: Line(core::array::from_fn(|_| F::U64::new(0))),
            quiescent: Line(F::U64::new(0)),
        }
    }

    /// Whether this CPU is in a walk (NMI context apart, whose handlers nothing here interrupts).
    pub(crate) fn inside(&self) -> bool {
        self.slots.0.iter().any(|slot| slot.load(Relaxed) & IN_WALK != 0) || self.published.0.load(Relaxed) != 0
    }

    /// Marks a walk that nobody needs to find.
    #[inline]
    pub(super) fn mark(&self) -> End {
        let word = self.slots.0[0].load(Relaxed);
        self.slots.0[0].store(word | IN_WALK, Relaxed);
        End::Slot(0, word)
    }

    /// Marks a walk in the slot of `space`, if it has one.
    #[inline]
    pub(super) fn mark_registered(&self, space: u64) -> Option<End> {
        for (index, slot) in self.slots.0.iter().enumerate() {
            let word = slot.load(Relaxed);
            if word >> ID_SHIFT == space {
                slot.store(word | IN_WALK, Relaxed);
                return Some(End::Slot(index as u8, counted(word)));
            }
            if word == 0 {
                return None; // slots are filled from the first
            }
        }
        None
    }

    /// Gives `space` a slot, marked: the first empty one, else one without a walk under way, whose space keeps this CPU's bit
    /// until its next freeing side finds nothing behind it.
    pub(super) fn register(&self, space: u64) -> End {
        let find = |fits: &dyn Fn(u64) -> bool, order: &dyn Fn(usize) -> usize| {
            let mut indices = (0..SLOTS).map(order);
            indices.find(|&index| fits(self.slots.0[index].load(Relaxed)))
        };
        // Not always the same one, or two spaces would take turns in it.
        let index = find(&|word| word == 0, &|index| index)
            .or_else(|| find(&|word| word & IN_WALK == 0, &|index| (index + space as usize) % SLOTS));
        let Some(index) = index else {
            return End::Outer; // a walk within walks of as many spaces as there are slots: the bit is enough
        };
        self.slots.0[index].store(space << ID_SHIFT | IN_WALK, Relaxed);
        End::Slot(index as u8, space << ID_SHIFT | ONE)
    }

    /// Ends a walk.
    #[inline]
    pub(super) fn unmark(&self, index: u8, word: u64) {
        // Release: the table reads come before it.
        self.slots.0[usize::from(index) % SLOTS].store(word, Release);
    }

    /// Takes the registration for `space` back; returns the walks it has served. Not in a walk: the last slot in use moves to
    /// where it was.
    pub(crate) fn forget(&self, space: u64) -> u64 {
        let word = |index: usize| self.slots.0[index].load(Relaxed);
        let Some(index) = (0..SLOTS).find(|&index| word(index) >> ID_SHIFT == space) else {
            return 0;
        };
        let served = (word(index) & LOW) / ONE;
        let last = (index..SLOTS).rev().find(|&last| word(last) != 0).unwrap_or(index);
        self.slots.0[index].store(word(last), Relaxed);
        self.slots.0[last].store(0, Relaxed);
        served
    }

    /// Takes everything back: a CPU that comes online. Bits that it left in walker sets stay; they cost an interrupt each.
    pub(crate) fn forget_all(&self) {
        self.slots.0.iter().for_each(|slot| slot.store(0, Relaxed));
        self.published.0.store(0, Relaxed);
    }
}

/// One walk more, unless it is within another.
#[inline]
const fn counted(word: u64) -> u64 {
    if word & IN_WALK != 0 || word & LOW == LOW & !IN_WALK {
        word
    } else {
        word + ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::interleave::Meddling;

    fn walking() -> Walking<Meddling> {
        Walking::new()
    }

    /// What ends a walk in a slot.
    fn slot(end: End) -> (u8, u64) {
        match end {
            End::Slot(index, word) => (index, word),
            other => panic!("{other:?} is no slot"),
        }
    }

    /// Registers for each of these spaces in turn, and walks once.
    fn registered(spaces: impl IntoIterator<Item = u64>) -> Walking<Meddling> {
        let walking = walking();
        for space in spaces {
            let (index, word) = slot(walking.register(space));
            walking.unmark(index, word);
        }
        walking
    }

    #[test]
    fn walks_are_counted_since_the_registration_and_those_within_others_are_not() {
        let walking = registered([7]);
        for _ in 0..4 {
            let outer = slot(walking.mark_registered(7).expect("registered"));
            assert!(walking.inside());
            let inner = slot(walking.mark_registered(7).expect("registered"));
            walking.unmark(inner.0, inner.1);
            assert!(walking.inside(), "the outer goes on");
            walking.unmark(outer.0, outer.1);
            assert!(!walking.inside());
        }
        assert_eq!(walking.forget(7), 5, "the one that registered, and four");
        assert!(walking.mark_registered(7).is_none());
        assert_eq!(walking.forget(7), 0);
    }

    #[test]
    fn the_count_stops_at_its_top() {
        let top = LOW / ONE;
        let walking = registered([7]);
        for _ in 0..top + 10 {
            let (index, word) = slot(walking.mark_registered(7).expect("registered"));
            walking.unmark(index, word);
        }
        assert!(walking.mark_registered(8).is_none(), "and does not run into the id");
        assert_eq!(walking.forget(7), top);
    }

    #[test]
    fn what_is_forgotten_leaves_no_gap_before_those_that_stay() {
        for (forgotten, left) in [(1, [2, 3]), (2, [1, 3]), (3, [1, 2])] {
            let walking = registered([1, 2, 3]);
            assert_eq!(walking.forget(forgotten), 1);
            assert!(walking.mark_registered(forgotten).is_none());
            for space in left {
                let (index, word) = slot(walking.mark_registered(space).expect("still registered"));
                walking.unmark(index, word);
                assert_eq!(walking.forget(space), 2);
            }
            assert_eq!(walking.slots.0.each_ref().map(|slot| slot.load(Relaxed)), [0; SLOTS]);
        }
    }

    #[test]
    fn a_slot_under_a_walk_is_not_given_to_another_space() {
        let walking = registered(1..=SLOTS as u64);
        let under_way = slot(walking.mark_registered(1).expect("registered"));
        for space in 10..30 {
            let (index, word) = slot(walking.register(space));
            assert_ne!(index, under_way.0);
            walking.unmark(index, word);
            assert_eq!(walking.forget(space), 1);
            let again = slot(walking.register(space + 50));
            walking.unmark(again.0, again.1);
        }
        walking.unmark(under_way.0, under_way.1);
        assert_eq!(walking.forget(1), 2);
        let walking = registered([]);
        let outer: Vec<_> = (1..=SLOTS as u64).map(|space| slot(walking.register(space))).collect();
        assert!(matches!(walking.register(9), End::Outer), "all are in use");
        outer.into_iter().for_each(|(index, word)| walking.unmark(index, word));
    }

    #[test]
    fn a_cpu_that_comes_online_has_nothing_left() {
        let walking = registered(1..=SLOTS as u64);
        walking.published.0.store(ANY, Relaxed);
        walking.forget_all();
        assert!(!walking.inside() && (1..=SLOTS as u64).all(|space| walking.mark_registered(space).is_none()));
    }
}
