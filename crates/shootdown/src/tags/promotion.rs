//! Hybrid tags: promoting a space to a system-wide tag, and flushing while that is under way.
//!
//! 1. A requester that has just interrupted CPUs samples, at a request that is timed or in one time window of 32,
//!    whether the space is active on enough of them, and where reach is adaptive whether its requests cost more than
//!    broadcasts would, allocates a tag, and publishes `Transition(tag)` with one full-barrier compare-exchange. One
//!    that has just broadcast to every tag, since to interrupt would have cost more, does so at once, while tags are
//!    left.
//! 2. Every flush from then on broadcasts under the tag *and* interrupts CPUs that still run on a slot, which moves
//!    them.
//! 3. A flush that finds no such CPU publishes `System(tag)`; flushes then only broadcast.
//!
//! Why no generation is kept for a system-wide tag: a flush that read `PerCpu` wrote its entries, then passed a full
//! barrier, then read the mode from before the compare-exchange. A CPU fills under the tag only after it has read the
//! mode from after it. So those fills see the entries. Demotion (`tags/demotion.rs`) does not change that: the flush of
//! an earlier era that still has to broadcast, or to interrupt, does it once more than was needed, and a mode word of
//! an earlier era is never mistaken for one of this.

use crate::cpuset::CpuMask;
use crate::design::{CONSIDER_ONE_IN, Exit};
use crate::engine::{Engine, Pinned};
use crate::facade::{Facade, Word};
use crate::flush::token::{Flushed, Token};
use crate::flush::{Flush, Sent};
use crate::hooks::{CpuId, Event, Kernel, Stuck, Tag};
use crate::range::Range;
use crate::space::{Mode, Space};
use crate::transport::request::EncodedRequest;
use core::sync::atomic::Ordering;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// From how many active CPUs on this design gives out system-wide tags, if it does and the machine has a use for
    /// them.
    pub(crate) fn promotes_at(&self) -> Option<u32> {
        self.tags().promote_at().filter(|_| self.broadcasts())
    }

    /// After a flush by interrupts, to `targets` CPUs: promotes `space` if it is worth a tag and it is time to look.
    /// With an adaptive reach that is at the requests that are `timed`, and costs the others nothing; else while this
    /// CPU's sampling window is open, and costs a clock read when it is closed.
    #[inline]
    pub(crate) fn consider(&self, space: &Space<K::Facade, W>, me: CpuId, timed: bool, targets: usize) {
        if self.tags().promote_at().is_some() && (timed || !self.policy().reach.is_adaptive()) {
            self.consider_now(space, me, targets);
        }
    }

    /// After a flush that went to every tag for want of one of its own, and left every slot of the space behind: by the
    /// number of CPUs that need not happen often to be worth a tag, as long as there are any. By cost the first time
    /// counts; later ones would tell only of requests that have many targets.
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

    /// Gives `space` a system-wide tag; nothing happens when it has one, or none is free.
    pub(crate) fn promote(&self, space: &Space<K::Facade, W>) {
        // Relaxed, for the exchange decides.
        let word = space.mode.0.load(Ordering::Relaxed);
        if self.unpack_mode(word) != Mode::PerCpu || word & Mode::ENDED != 0 {
            return;
        }
        let Some(tag) = self.allocate_tag() else {
            self.kernel.event(Event::TagsExhausted);
            // Where reach is adaptive a sampled flush of a space that hardly needs its tag gives it up; see
            // `tags/demotion.rs`.
            self.tag_shortage.0.store(1, Ordering::Relaxed);
            return;
        };
        // Full barrier; pairs with the reads of the mode in `dispatch` and `switch_to`.
        if space.change_mode(word, Mode::Transition(tag)).is_some() {
            self.kernel.event(Event::Promoted);
            self.tags_are_left();
        } else {
            // Somebody else was first; this tag was never seen by anyone.
            self.tags.free_clean(tag);
        }
    }

    /// A flush while the space is being promoted.
    #[inline(never)]
    pub(crate) fn flush_in_transition<'e>(
        &'e self,
        token: &mut Token<'e, 'k, K, W>,
        flush: &Flush<'_, K::Facade, W>,
        word: u64,
        tag: Tag,
        pin: Pinned<'e, K, W>,
    ) -> Sent<'e, K, W> {
        let (me, space) = (pin.cpu, flush.space);
        self.sync_local(space, me);
        self.broadcast_and_sync(space, me, tag, &flush.range);
        let mut stragglers = self.stragglers(space, me, false);
        if self.machine().errata.interrupt_too {
            stragglers.union_with(&self.running(space, me));
        }
        if stragglers.is_empty() {
            // Every CPU in the set is on the tag, and one that joins now reads a mode with the tag. Losing the race
            // means that another flush has done the same.
            let _ = space.change_mode(word, Mode::System(tag));
            return Sent::Unsampled;
        }
        self.interrupt(token, stragglers, EncodedRequest::CATCH_UP, pin, &|_| {});
        Sent::Unsampled
    }

    /// A tag for promotion, reclaiming freed ones by one broadcast over all tags when none is left. The caller's pin
    /// ended with the sending, so the reclaim takes one of its own: on another CPU the synchronising instruction would
    /// not wait for the broadcast, and a tag would change hands with entries under it (C4).
    fn allocate_tag(&self) -> Option<Tag> {
        if let Some(tag) = self.tags.allocate() {
            return Some(tag);
        }
        let reclaimed = self.tags.reclaim(|| {
            let _pin = self.pinned();
            // The tags that are to be free again were read before the broadcast: on Arm a read-modify-write does not
            // order a TLBI (C4). Pairs with `free_dirty`.
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

    /// Takes `space` off every CPU that still has it loaded lazily, and gives up its tag. Call once, when no thread of
    /// it will run again and before its root is freed; then the space may be dropped and its table pages freed. No
    /// lockless walk of it may be under way, nor begin: whoever walks uses the space, and a kernel knows who does
    /// (Linux counts them: `mm_users`). Walks are therefore not waited for, and nobody is interrupted for the sake of
    /// them.
    ///
    /// Waits for CPUs that are about to leave the space. One that runs it, against the above, is asked until it has let
    /// go, and, unless the design reports nobody, reported as [stuck](Kernel::stuck): nothing is freed under it (C7).
    ///
    /// The tag need not be invalidated: no CPU has it loaded, and it is not given out again before a reclaim or
    /// roll-over that flushes it everywhere (C4). Under a roll-over tag it is all the same where the design says
    /// [`Exit::Flush`], as kernels do that flush whenever table pages go. Context as [`flush`](Self::flush). Retiring
    /// it twice, or flushing it afterwards, is a mistake that costs flushes and harms nobody while the space lives: it
    /// is on per-CPU slots then.
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
            && let Mode::Rolled { tag, .. } = self.mode(space)
        {
            let pin = self.pinned();
            let mut token = self.token(space.id, generation);
            self.flush_rolled(&mut token, space, tag, &Range::WHOLE, false, pin);
            let _flushed = token.wait();
        }
        // One exchange gives up the tag, so that it is freed once, and a space that is loaded again by mistake finds
        // itself on per-CPU slots, which catch up, not on a tag that is somebody else's (C4). Nor is it given another,
        // which nobody would give back: whoever has flushed it before may still be about to. Relaxed, for the exchange
        // decides.
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

    /// Waits for CPUs that have left the set and may still have to lower the count of its word: with interrupts off,
    /// and without waiting for any CPU. A CPU that leaves a set in a switch says that it is switching.
    fn wait_until_settled(&self, space: &Space<K::Facade, W>, generation: u64) {
        let switching = || (0..self.cpus.len()).find(|&cpu| self.cpus[cpu].state().is_switching());
        let mut settled = || space.cpus.is_settled(self.cpus.len());
        self.wait_reporting(self.kernel.cpu(), (space.id, generation), &switching, &mut settled);
    }

    /// A tag was found, or given up: the shortage is over.
    pub(crate) fn tags_are_left(&self) {
        if self.tag_shortage.0.load(Ordering::Relaxed) != 0 {
            self.tag_shortage.0.store(0, Ordering::Relaxed);
        }
    }

    /// Asks CPUs that may still have `space`, which ends, until none has: those that have it lazily let go when they
    /// are asked. Reports the first that has kept it.
    ///
    /// A member that is switching may be on its way out, with the root still loaded, or about to leave the set: its
    /// state names the space that comes next. Its answer proves that the switch is over (C3), so nobody need be looked
    /// for again once all of those whose state named the space have gone.
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
            let (mut asked, mut keeper) = (CpuMask::EMPTY, None);
            space.cpus.for_each_but(me, |cpu| {
                let state = self.cpus[cpu].state();
                let has = state.id() == space.id;
                if has {
                    keeper = keeper.or(Some(cpu));
                }
                if has || state.is_switching() {
                    asked.insert(cpu);
                }
            });
            if round == 1
                && self.policy().stuck_ns != 0
                && let Some(target) = keeper
            {
                self.kernel.stuck(Stuck {
                    waiter: me,
                    target,
                    space: space.id,
                    generation,
                });
            }
            let mut token = self.token(space.id, generation);
            self.interrupt(&mut token, asked, EncodedRequest::CATCH_UP, pin, &|_| {});
            let _answered = token.wait();
            if keeper.is_none() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
