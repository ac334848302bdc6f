//! Hybrid tags: promotes a space to a system-wide tag, and flushes while the promotion is in progress.
//!
//! 1. A requester that has just interrupted CPUs takes a sample, at a timed request or in one time window of 32. It
//!    checks whether the space is active on enough CPUs and, where reach is adaptive, whether its requests cost more
//!    than broadcasts would. If so it allocates a tag and publishes `Transition(tag)` with one full-barrier
//!    compare-exchange. A requester that has just broadcast to every tag, because interrupts would have cost more, does
//!    so at once, while tags are left.
//! 2. Every flush from then on broadcasts under the tag *and* interrupts CPUs that still run on a slot, which moves
//!    them.
//! 3. A flush that finds no such CPU publishes `System(tag)`; flushes then only broadcast.
//!
//! Why a system-wide tag needs no generation: a flush that read `PerCpu` wrote its entries, passed a full barrier, then
//! read a mode older than the compare-exchange. A CPU fills under the tag only after it has read the newer mode. So
//! those fills see the entries. Demotion (`tags/demotion.rs`) does not change that: a flush of an earlier era that
//! still has to broadcast, or to interrupt, does it once more than needed. A mode word of an earlier era is never
//! mistaken for one of this era.

use crate::cpuset::CpuMask;
use crate::design::{CONSIDER_ONE_IN, Exit};
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::flush::token::{Flushed, Token};
use crate::hooks::{CpuId, Event, Kernel, Tag};
use crate::range::Range;
use crate::space::{Mode, Space};
use crate::transport::request::Asked;
use core::sync::atomic::Ordering;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Number of active CPUs at which this design allocates system-wide tags, if it does and the machine can use them.
    pub(crate) fn promotes_at(&self) -> Option<u32> {
        self.tags().promote_at().filter(|_| self.broadcasts())
    }

    /// Called after a flush by interrupts, to `targets` CPUs. Promotes `space` if it should have a tag and a check is
    /// due. With an adaptive reach only `timed` requests check, and others pay nothing. Otherwise requests check while
    /// this CPU's sampling window is open, and pay a clock read while it is closed.
    #[inline]
    pub(crate) fn consider(&self, space: &Space<K::Facade, W>, me: CpuId, timed: bool, targets: usize) {
        if self.tags().promote_at().is_some() && (timed || !self.policy().reach.is_adaptive()) {
            self.consider_now(space, me, targets);
        }
    }

    /// Called after a flush that went to every tag because the space has none of its own, and left all its slots
    /// behind. While tags are left, each such flush considers promotion if the number of CPUs decides. If cost decides,
    /// only the first one does: later ones would sample only requests with many targets.
    pub(crate) fn consider_after_any_tag(&self, space: &Space<K::Facade, W>, me: CpuId, timed: bool, targets: usize) {
        let none_left = self.tag_shortage.0.load(Ordering::Relaxed) != 0;
        let looks = !none_left && (!self.weighs_tags() || self.is_new(space));
        self.consider(space, me, timed || looks, targets);
    }

    #[inline(never)]
    fn consider_now(&self, space: &Space<K::Facade, W>, me: CpuId, targets: usize) {
        let Some(promote_at) = self.promotes_at() else { return };
        if self.weighs_tags() {
            let active = self.active_on(space, u32::MAX);
            if let Some(costs) = self.should_promote(space, me, (active, promote_at), targets) {
                self.promote_since(space, active, Some(costs));
            }
        } else if self.policy().reach.is_adaptive() || self.in_window(me) {
            let active = self.active_on(space, promote_at);
            if active >= promote_at {
                self.promote_since(space, active, None);
            }
        }
    }

    fn in_window(&self, me: CpuId) -> bool {
        let window = self.kernel.now_ns() / self.policy().consider_window_ns;
        window.wrapping_add(me as u64).is_multiple_of(CONSIDER_ONE_IN)
    }

    fn promote_since(&self, space: &Space<K::Facade, W>, active: u32, costs: Option<(u64, u64)>) {
        self.kernel.event(Event::Promoting { active, costs });
        self.promote(space);
    }

    /// Gives `space` a system-wide tag. Does nothing if it has one, or if none is free.
    pub(crate) fn promote(&self, space: &Space<K::Facade, W>) {
        // Relaxed: the exchange decides.
        let word = space.mode.0.load(Ordering::Relaxed);
        if self.unpack_mode(word) != Mode::PerCpu || word & Mode::ENDED != 0 {
            return;
        }
        let Some(tag) = self.allocate_tag() else {
            self.kernel.event(Event::TagsExhausted);
            // Where reach is adaptive, a sampled flush of a space with little use for its tag gives it up; see
            // `tags/demotion.rs`.
            self.tag_shortage.0.store(1, Ordering::Relaxed);
            return;
        };
        // Full barrier; pairs with the reads of the mode in `dispatch` and `switch_to`.
        if space.change_mode(word, Mode::Transition(tag)).is_some() {
            self.kernel.event(Event::Promoted);
            self.tags_are_left();
        } else {
            // Another CPU was first. No CPU ever saw this tag.
            self.tags.free_clean(tag);
        }
    }

    /// A flush while the space is being promoted. Takes over the caller's pin.
    #[inline(never)]
    pub(crate) fn send_in_transition(
        &self,
        token: &Token<'_, 'k, K, W>,
        space: &Space<K::Facade, W>,
        range: Range,
        word: u64,
    ) {
        let (pin, tag) = (self.still_pinned(), Mode::tag_in(word));
        let me = pin.cpu;
        self.sync_local(space, me);
        self.broadcast_and_sync(space, me, tag, &range);
        let mut stragglers = self.stragglers(space, me, false);
        if self.machine().errata.interrupt_too {
            stragglers.union_with(&self.running(space, me));
        }
        if stragglers.is_empty() {
            // Every CPU in the set is on the tag, and one that joins now reads a mode with the tag. If the exchange
            // fails, another flush has done the same.
            let _ = space.change_mode(word, Mode::System(tag));
            return;
        }
        self.interrupt(token, stragglers, (Asked::CATCH_UP, Range::WHOLE), pin);
    }

    /// A tag for promotion. Reclaims freed tags by one broadcast over all tags when none is left. The caller's pin
    /// ended with the send, so the reclaim takes its own. After a migration the synchronising instruction would not
    /// wait for the broadcast, and a tag would be reused with entries under it (C4).
    fn allocate_tag(&self) -> Option<Tag> {
        if let Some(tag) = self.tags.allocate() {
            return Some(tag);
        }
        let reclaimed = self.tags.reclaim(|| {
            let _pin = self.pinned();
            // The tags to be freed were read before the broadcast: on Arm a read-modify-write does not order a TLBI
            // (C4). Pairs with `free_dirty`.
            K::Facade::publish_tables();
            self.broadcast_complete(|| {
                self.kernel.broadcast(crate::hooks::Broadcast::NonGlobal);
                1
            });
            self.kernel.event(Event::RollOver);
        });
        if reclaimed {
            return self.tags.allocate();
        }
        None
    }

    /// Takes `space` off every CPU that still has it loaded in lazy TLB mode, and gives up its tag. Call it once, when
    /// no thread of the space will run again and before its root is freed. Then the space may be dropped and its
    /// page-table pages freed. No lockless walk of it may be in progress or begin later. A walker must hold a use count
    /// of the space, as in Linux (`mm_users`). So walks are not waited for and cause no interrupts.
    ///
    /// Waits for CPUs that are about to leave the space. A CPU that runs it, against the rule above, is asked until it
    /// has unloaded it, so nothing is freed under it. It is reported as [stuck](Kernel::stuck) if the design reports
    /// (C7).
    ///
    /// The tag need not be invalidated: no CPU has it loaded, and it is not reused before a reclaim or roll-over that
    /// flushes it everywhere (C4). A roll-over tag is flushed anyway if the design says [`Exit::Flush`], like kernels
    /// that flush whenever page-table pages are freed. Context as for [`flush`](Self::flush). Retiring a space twice,
    /// or flushing it afterwards, is a mistake that costs flushes but is harmless while the space lives: it is on
    /// per-CPU slots then.
    pub fn retire(&self, space: &Space<K::Facade, W>) -> Flushed {
        let (generation, secondary) = {
            let _pin = self.pinned();
            self.publish_tables();
            // Full barrier: pairs with `switch_to`, as in `dispatch`.
            let generation = space.log.generation.fetch_add_full(1) + 1;
            (generation, self.notify_secondary_of_end(space))
        };
        self.wait_for_leavers(space, generation);
        self.await_secondary(secondary);
        self.wait_until_settled(space, generation);
        if self.policy().exit == Exit::Flush
            && let word = self.mode_word(space, Ordering::Acquire)
            && let Mode::Rolled { .. } = self.unpack_mode(word)
        {
            self.pinned().hand_over();
            let token = self.token(space.id, generation);
            token.sends(|token| self.send_rolled(token, space, Range::WHOLE, word));
            token.wait_in_place();
        }
        // One exchange gives up the tag, so that it is freed once. A space that is loaded again by mistake finds itself
        // on per-CPU slots, which catch up, not on a tag that another space has (C4). It gets no other tag either,
        // because that tag would never be freed: an earlier flush may still be about to promote it. Relaxed: the
        // exchange decides.
        loop {
            let word = space.mode.0.load(Ordering::Relaxed);
            let mode = self.unpack_mode(word);
            if matches!(mode, Mode::Rolled { .. }) || word & Mode::ENDED != 0 && mode == Mode::PerCpu {
                return Flushed::new(space.id, true);
            }
            if space.end(word)
                && let Mode::Transition(tag) | Mode::System(tag) | Mode::Demoting(tag) = mode
            {
                self.tags.free_dirty(tag);
                self.tags_are_left();
            }
        }
    }

    /// Waits for CPUs that have left the set and may still have to lower the count of its word. They do that with
    /// interrupts off, and wait for no CPU. A CPU that leaves a set in a switch has published that it is switching.
    fn wait_until_settled(&self, space: &Space<K::Facade, W>, generation: u64) {
        let switching = || (0..self.cpus.len()).find(|&cpu| self.cpus[cpu].state().is_switching());
        let settled = || space.cpus.is_settled(self.cpus.len());
        let waiter = self.kernel.cpu();
        let report = || self.report_stuck(waiter, switching().unwrap_or(waiter), (space.id, generation));
        self.wait_reporting(report, settled);
    }

    /// A tag was found, or freed: the shortage is over.
    pub(crate) fn tags_are_left(&self) {
        if self.tag_shortage.0.load(Ordering::Relaxed) != 0 {
            self.tag_shortage.0.store(0, Ordering::Relaxed);
        }
    }

    /// Asks CPUs that may still have `space`, which ends, until none has. CPUs in lazy TLB mode unload it when they are
    /// asked. Reports the first CPU that has kept it.
    ///
    /// A member that is switching may be leaving, with the root still loaded, or about to leave the set: its state
    /// names the next space. Its answer proves that the switch is over (C3). So no new scan is needed once all CPUs
    /// whose state named the space have left.
    fn wait_for_leavers(&self, space: &Space<K::Facade, W>, generation: u64) {
        for round in 0_u64.. {
            let pin = self.pinned();
            let me = pin.cpu;
            // In every round: a wait may end on another CPU than it began on.
            self.masked(|| {
                let cpu = &self.cpus[me];
                if cpu.state().id() == space.id {
                    self.unload(cpu);
                }
            });
            let (mut targets, mut keeper) = (CpuMask::EMPTY, None);
            space.cpus.for_each_but(me, |cpu| {
                let state = self.cpus[cpu].state();
                let has = state.id() == space.id;
                if has {
                    keeper = keeper.or(Some(cpu));
                }
                if has || state.is_switching() {
                    targets.insert(cpu);
                }
            });
            if round == 1
                && self.policy().stuck_ns != 0
                && let Some(target) = keeper
            {
                self.report_stuck(me, target, (space.id, generation));
            }
            let token = self.token(space.id, generation);
            token.sends(|token| self.interrupt(token, targets, (Asked::CATCH_UP, Range::WHOLE), pin));
            token.wait_in_place();
            if keeper.is_none() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
