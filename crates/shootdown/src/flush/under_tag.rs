//! Flushes under a tag of which no CPU compares generations: a tag that rolls over, or the tag of a promoted space that
//! can lose it again.
//!
//! Entries under such a tag are kept fresh by the flushes alone. So a barrier takes the place of the increment of the
//! generation, and a flush writes no line that CPUs share. Owns that barrier, the common flush that follows it, and the
//! choice of way under a roll-over tag: on this CPU alone if no other was ever active in the space, otherwise by
//! broadcast or by interrupts that name the tag.
//!
//! A CPU joins a space's set before it loads the root and, under roll-over tags, stays a member. So the set contains
//! the CPUs that were *ever* active: they may hold entries under the tag, loaded or not.
//!
//! Slots compare generations again once a space has lost its tag. So the demotion increments the generation itself
//! (`tags/demotion.rs`). Where promoted spaces keep their tags, as in Linux, each flush does.

use crate::design::Reach;
use crate::engine::{Engine, Pinned};
use crate::facade::Facade;
use crate::flush::state::Straight;
use crate::flush::token::{Flushed, Token};
use crate::hooks::{CpuId, Event, Kernel, Tag};
use crate::range::Range;
use crate::space::{Mode, Space};
use crate::transport::request::Asked;
use core::sync::atomic::Ordering;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// [`flush`](Self::flush) where tags roll over, of a space under a tag, and under a negative control.
    #[inline(never)]
    pub(super) fn flush_apart(&self, space: &Space<K::Facade, W>, range: Range) -> Flushed {
        if self.straight() == Straight::Control {
            self.flush_as_control(space, &range);
            return Flushed::new(space.id, range.tables());
        }
        match self.flush_leaf_under_tag(space, &range) {
            Some(flushed) => flushed,
            None => self.flush_otherwise(space, range),
        }
    }

    /// The common flush under a tag: of one leaf, no sample, by one broadcast; or on this CPU if it alone has ever run
    /// the space and the policy looks. `None` if it is of another kind: then nothing was done, or only published.
    #[inline]
    pub(super) fn flush_leaf_under_tag(&self, space: &Space<K::Facade, W>, range: &Range) -> Option<Flushed> {
        // All that can be asked before the barrier is, so that the invalidation waits for as little as possible.
        if !self.is_one_broadcast(range) {
            None
        } else if self.policy().reach == Reach::LocalFirst {
            self.flush_leaf::<true>(space, range)
        } else {
            self.flush_leaf::<false>(space, range)
        }
    }

    /// The same for a range that one broadcast covers. `LOOKS`: whether the policy looks at the set.
    #[inline]
    fn flush_leaf<const LOOKS: bool>(&self, space: &Space<K::Facade, W>, range: &Range) -> Option<Flushed> {
        let secondary = {
            // To the end of the broadcast: the synchronising instruction waits only for broadcasts of its own CPU.
            let pin = self.pinned();
            if self.is_sample_under_tag(pin.cpu) {
                return None;
            }
            let tag = Mode::tag_in(self.publish_uncounted(space)?);
            let secondary = self.notify_secondary(space, range);
            // As in `flush_alone`.
            if LOOKS && !self.others_in(space, pin.cpu) {
                self.masked(|| self.flush_range(tag, range));
                self.kernel.event(Event::LocalOnly);
            } else {
                self.broadcast_leaf(tag, range);
            }
            secondary
        };
        self.await_secondary(secondary);
        Some(Flushed::new(space.id, range.tables()))
    }

    /// The first steps of a flush that takes no generation, if `space` has a tag for that. Returns the word of the
    /// mode.
    #[inline]
    pub(super) fn publish_under_tag(&self, space: &Space<K::Facade, W>) -> Option<u64> {
        if self.straight() != Straight::RollOver && !self.is_uncounted(space) {
            return None;
        }
        self.publish_uncounted(space)
    }

    /// The same for a space that seems to have one: a barrier in place of the increment, then the mode. `None` if it
    /// has none: then nothing was done, only published.
    #[inline]
    fn publish_uncounted(&self, space: &Space<K::Facade, W>) -> Option<u64> {
        // C1: entry writes, full barrier, then the reads of mode and set. Partners: head of `flush/mod.rs`.
        K::Facade::publish_tables_full();
        let word = self.mode_word(space, Ordering::Relaxed);
        Mode::is_kept_fresh(word).then_some(word)
    }

    /// Whether `space` seems to be promoted where it can be demoted. Decides only which way a flush tries first: the
    /// mode is read again after the barrier.
    #[inline]
    pub(crate) fn is_uncounted(&self, space: &Space<K::Facade, W>) -> bool {
        self.policy().reach.is_adaptive() && Mode::is_kept_fresh(self.mode_word(space, Ordering::Relaxed))
    }

    /// Flushes a space that has a roll-over tag. After [`publish_under_tag`](Self::publish_under_tag), or the increment
    /// of the generation. Takes over the caller's pin, until everything is issued and complete. If it uses interrupts,
    /// and the flush is for lockless walkers too, the same request interrupts them.
    #[inline(never)]
    pub(crate) fn send_rolled(
        &self,
        token: &Token<'_, 'k, K, W>,
        space: &Space<K::Facade, W>,
        range: Range,
        word: u64,
    ) {
        let (pin, tag) = (self.still_pinned(), Mode::tag_in(word));
        let me = pin.cpu;
        if self.policy().reach == Reach::LocalFirst && self.flush_alone(space, tag, &range, me) {
            self.kernel.event(Event::LocalOnly);
        } else if self.broadcasts() {
            self.broadcast_and_sync(space, me, tag, &range);
            self.ipi_after_broadcast(token, space, pin);
        } else {
            let mut targets = self.targets(space, range.tables(), me);
            if token.with_walkers {
                token.add_walkers(space, &self.walkers_of(space, me), &mut targets);
            }
            self.interrupt(token, targets, (Asked::tag(tag), range), pin);
        }
    }

    /// Flushes only on this CPU, if it is the only one that was ever active in the space. Otherwise returns false and
    /// does nothing. Pinned on `me`, after the full barrier of [`publish_under_tag`](Self::publish_under_tag).
    ///
    /// That barrier pairs with the join of `switch_to`, a full barrier before the root load: either the join is seen
    /// here, or the CPU that joins sees the entry writes in every fill.
    pub(crate) fn flush_alone(&self, space: &Space<K::Facade, W>, tag: Tag, range: &Range, me: CpuId) -> bool {
        if self.others_in(space, me) {
            return false;
        }
        self.flush_tag_here(tag, range);
        true
    }

    /// The local part under a roll-over tag, for any loaded space.
    pub(crate) fn flush_tag_here(&self, tag: Tag, range: &Range) {
        self.masked(|| self.flush_under(tag, *range));
    }

    /// Flushes `range` on this CPU under `tag`: its pages, or everything. Interrupts off.
    #[inline]
    pub(crate) fn flush_under(&self, tag: Tag, range: Range) {
        if range.is_walkable(self.policy().ceiling) {
            self.flush_pages(tag, range);
        } else {
            self.flush_tag(tag);
        }
    }

    /// After a broadcast, on processors that acknowledge the synchronisation too early: interrupts every CPU that may
    /// be using translations of `space`. A CPU that loads it later does so after the broadcast took effect there.
    pub(crate) fn ipi_after_broadcast(
        &self,
        token: &Token<'_, 'k, K, W>,
        space: &Space<K::Facade, W>,
        pin: Pinned<'_, K, W>,
    ) {
        if self.machine().errata.interrupt_too {
            let running = self.running(space, pin.cpu);
            if !running.is_empty() {
                self.interrupt(token, running, (Asked::SYNCHRONISE, Range::WHOLE), pin);
            }
        }
    }
}
