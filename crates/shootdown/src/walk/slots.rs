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
    if word & IN_WALK != 0 || word & LOW >= LOW - ONE {
        word
    } else {
        word + ONE
    }
}
