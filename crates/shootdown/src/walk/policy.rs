//! Sticky or precise, decided per space ([`Walkers::Adaptive`]): whichever costs the walkers less, as measured by the
//! freeing CPUs.
//!
//! A registration costs its walker one interrupt and one atomic for each free that finds it; publishing costs every
//! walk a barrier. So sticky pays off while a registration serves more walks than an interrupt costs barriers. The slot
//! counts the walks that a registration has served, and the handler that removes it reports the count: a walk itself
//! counts nothing more.
//!
//! A walk that finds its CPU registered continues without reading the mode, so there must be no registration in the
//! precise mode. To change the mode: mark the space as changing, interrupt every CPU (each removes its registration),
//! then publish the new mode. A freeing CPU that finds the mark honours both modes. A walk reads the mode with
//! interrupts off before it registers or publishes, so the round of interrupts proves that walks that read the old mode
//! have ended. A CPU that was offline removes all its registrations when it comes online.

use crate::design::Walkers;
use crate::engine::Engine;
use crate::facade::Word;
use crate::hooks::{Event, Kernel};
use crate::space::Space;
use core::sync::atomic::Ordering;

const PRECISE: u64 = 1;
const CHANGING: u64 = 2;

/// Walks that a registration must serve to be worth an interrupt. An interrupt takes about 1,200 cycles for entry, exit
/// and a new registration (entry and exit are assumed 500 to 1,500). A barrier takes 30 (published: 20 to 40).
const WALKS_PER_IPI: u64 = 40;

/// The same for each other walker that is interrupted with it: all of them remove and restore their bit in one line,
/// one after the other. About 100 cycles for each transfer (published: at least 70, and 16 to 115 ns to move the line)
/// over 30.
const WALKS_PER_SWITCH: u64 = 3;

/// Frees between two decisions.
const REVIEW: u64 = 16;

/// Hysteresis: frees must be this many times rarer than when a space became precise before it goes back.
const RARER: u64 = 4;

#[inline]
pub(super) const fn is_precise(mode: u64) -> bool {
    mode & PRECISE != 0
}

#[inline]
pub(super) const fn honours_published(mode: u64) -> bool {
    mode & (PRECISE | CHANGING) != 0
}

#[inline]
pub(super) const fn honours_registered(mode: u64) -> bool {
    mode & PRECISE == 0 || mode & CHANGING != 0
}

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Called after a free that interrupted so many walkers. Decides anew once in [`REVIEW`] frees. Waits when the mode
    /// changes.
    pub(super) fn review_walks(&self, space: &Space<K::Facade, W>, interrupted: u32) {
        if self.policy().walkers != Walkers::Adaptive {
            return;
        }
        let counts = &space.walk_counts.0;
        // Counts order nothing; words have no weaker read-modify-write.
        counts.interrupted.fetch_add_full(u64::from(interrupted));
        if !(counts.frees.fetch_add_full(1) + 1).is_multiple_of(REVIEW) {
            return;
        }
        let now = self.kernel.now_ns();
        let interval = now.wrapping_sub(counts.since.swap_full(now)) / REVIEW;
        let (interrupted, walks) = (counts.interrupted.swap_full(0), counts.walks.swap_full(0));
        // A hint: the exchange in `change_walks` decides.
        let mode = space.walk_mode.load(Ordering::Relaxed);
        if is_precise(mode) {
            if interval > counts.at_change.load(Ordering::Relaxed).saturating_mul(RARER) {
                self.change_walks(space, PRECISE, 0);
            }
        } else if interrupted >= REVIEW
            && walks < interrupted * (WALKS_PER_IPI + interrupted / REVIEW * WALKS_PER_SWITCH)
        {
            counts.at_change.store(interval, Ordering::Relaxed);
            self.change_walks(space, 0, PRECISE);
        }
    }

    fn change_walks(&self, space: &Space<K::Facade, W>, from: u64, to: u64) {
        // One freeing CPU changes it at a time. A full barrier. Pairs with that of `dispatch`, which precedes a freeing
        // CPU's read of the mode, and with that of a walk, which follows its read. A walk that reads the new mode reads
        // tables after a freeing CPU that read the old one has written them.
        if space.walk_mode.compare_exchange_full(from, to | CHANGING).is_ok() {
            self.end_all_walks(space, to == PRECISE);
            self.kernel.event(Event::WalksChanged);
            space.walk_mode.store(to, Ordering::Release);
        }
    }
}
