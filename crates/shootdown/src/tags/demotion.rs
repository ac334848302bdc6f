//! Demotion: a space gives its system-wide tag back and returns to per-CPU slots.
//!
//! A space that has shrunk to few CPUs pays a broadcast for every flush that would need few interrupts or none. A space
//! whose CPUs are inside the kernel most of the time would rarely interrupt them. And tags are scarce. No shipped
//! kernel demotes. [`Reach::Adaptive`](crate::Reach::Adaptive) does:
//!
//! 1. Sampled flushes of a promoted space find it active on few CPUs, or find that broadcasts cost more than its
//!    requests did without the tag. After several such samples in a row (or one, while tags are short) a flush
//!    publishes `Demoting(tag)` by a full-barrier compare-exchange.
//! 2. A CPU that loads the space from then on, or gets a request to catch up, takes a slot. Every flush broadcasts
//!    under the tag *and* interrupts: CPUs on a slot catch up, CPUs still on the tag move to a slot, CPUs in lazy TLB
//!    mode unload the root.
//! 3. A flush that finds no CPU on the tag publishes `PerCpu`. The CPU that wins that exchange invalidates the tag
//!    everywhere, synchronises, and only then frees it.
//!
//! # Why nothing stale is used (C1)
//! A flush that reads `System` takes no generation (`flush/under_tag.rs`). The demotion takes one for all of them,
//! before the exchange of step 1.
//! * A flush that read `System` wrote its entries, passed a full barrier, then read a mode older than that exchange. A
//!   CPU takes a slot only after it has read the newer mode. So its fills see the entries. The acquire load of the mode
//!   is enough on multi-copy-atomic memory, as on x86, Armv8 and RISC-V.
//! * It reads the generation after the mode, so it sees the one of the demotion. Its slot has an older one: while the
//!   mode is `System` no CPU is on a slot, and none records a generation. So the slot is behind.
//! * A flush that read `Demoting` scans set and states after its increment. A CPU on a slot is interrupted, as under
//!   `PerCpu`. A CPU on the tag is covered by the broadcast, and by the interrupt that moves it, which comes after the
//!   increment.
//! * The demotion's generation leaves nothing in the log, so a slot that is behind across it is flushed whole (C6).
//!
//! # Why no tag changes hands too early (C4)
//! The scan of step 3 follows a full barrier after the exchange of step 1 (or after reading its result). A CPU that it
//! misses joins later and reads `Demoting`. CPUs in the middle of a switch are waited for. So if no CPU is found on the
//! tag, no CPU can load it any more and nothing is filled under it. The synchronised invalidation that follows removes
//! the remaining entries on every CPU, whether or not it is in the set. The mode word carries an era, so a flush that
//! found no CPU in an earlier demotion cannot end a later one under the same tag.
//!
//! Under a system-wide tag there is no local-only flush: a CPU that left the set still holds entries under the tag.
//! Proving that none does takes an invalidation everywhere. Demotion does that once.

use crate::cpu::state::{PerCpu, State};
use crate::cpuset::CpuMask;
use crate::design::Requests;
use crate::engine::Engine;
use crate::facade::Word;
use crate::flush::token::Token;
use crate::hooks::{Answer, Broadcast, CpuId, Demotion, Event, Kernel, Tag};
use crate::range::Range;
use crate::space::{Mode, Space};
use crate::transport::request::Asked;
use core::sync::atomic::Ordering;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Called after a sampled flush under the tag in `word`. Demotes `space` if it has shrunk, or if tags are short and
    /// it is active on few CPUs. Takes over the caller's pin.
    #[inline(never)]
    pub(crate) fn consider_demotion(&self, token: &Token<'_, 'k, K, W>, space: &Space<K::Facade, W>, word: u64) {
        let (pin, tag) = (self.still_pinned(), Mode::tag_in(word));
        let promoted_from = self.promotes_at().unwrap_or(u32::MAX);
        let short = self.tag_shortage.0.load(Ordering::Relaxed) != 0;
        // Half of the promotion threshold, so that a space near it does not oscillate.
        let few = if short {
            promoted_from.saturating_add(promoted_from / 2)
        } else {
            (promoted_from / 2).max(1)
        };
        let (active, broadcast_cost) = if self.weighs_tags() {
            let active = self.active_on(space, u32::MAX);
            (active, self.should_demote(space, pin.cpu, active))
        } else {
            (self.active_on(space, few.saturating_add(1)), None)
        };
        let times = if short { 1 } else { self.policy().demote_after };
        if !self.confirm_streak(space, active <= few || broadcast_cost.is_some(), times) {
            return;
        }
        self.tags_are_left();
        // C1: for all flushes under the tag, none of which took one. Before the exchange: a CPU that reads the new mode
        // finds its slot behind.
        space.log.generation.fetch_add_full(1);
        // Full barrier; pairs with the reads of the mode in `dispatch`, `switch_to` and the handler.
        let Some(word) = space.change_mode(word, Mode::Demoting(tag)) else {
            return;
        };
        let reason = match broadcast_cost {
            Some((without, with)) if active > few => Demotion::BroadcastCost { without, with },
            _ if short => Demotion::TagsShort,
            _ => Demotion::Shrunk,
        };
        match reason {
            Demotion::BroadcastCost { .. } => self.forget_target_share(space),
            Demotion::TagsShort | Demotion::Shrunk => self.forget_broadcast_cost(space),
        }
        self.kernel.event(Event::Demoting { active, reason });
        self.sync_local(space, pin.cpu);
        let on_tag = self.on_tag(space, pin.cpu);
        if on_tag.is_empty() {
            self.finish_demotion(space, word, tag);
        } else {
            self.interrupt(token, on_tag, (Asked::CATCH_UP, Range::WHOLE), pin);
        }
    }

    /// A flush while the space is being demoted, after the increment of its generation. Takes over the caller's pin.
    #[inline(never)]
    pub(crate) fn send_in_demotion(
        &self,
        token: &Token<'_, 'k, K, W>,
        space: &Space<K::Facade, W>,
        range: Range,
        word: u64,
    ) {
        let (pin, tag) = (self.still_pinned(), Mode::tag_in(word));
        let me = pin.cpu;
        self.log_if_kept(space, token.generation.get(), &range);
        self.sync_local(space, me);
        self.broadcast_and_sync(space, me, tag, &range);
        // A tail call.
        pin.hand_over();
        self.interrupt_in_demotion(token, space, range, word);
    }

    /// The interrupts of that flush. Ends the demotion if no CPU is on the tag. Takes over the caller's pin.
    #[inline(never)]
    fn interrupt_in_demotion(&self, token: &Token<'_, 'k, K, W>, space: &Space<K::Facade, W>, range: Range, word: u64) {
        let pin = self.still_pinned();
        let (targets, on_tag) = self.demotion_targets(space, &range, pin.cpu);
        if on_tag.is_empty() {
            self.finish_demotion(space, word, Mode::tag_in(word));
        }
        self.interrupt(token, targets, (Asked::CATCH_UP, Range::WHOLE), pin);
    }

    /// The targets of a flush during demotion, and which of them are still on the tag. Where a broadcast alone is not
    /// enough ([`Errata::interrupt_too`](crate::Errata::interrupt_too)) nothing is demoted.
    pub(crate) fn demotion_targets(
        &self,
        space: &Space<K::Facade, W>,
        range: &Range,
        me: CpuId,
    ) -> (CpuMask<W>, CpuMask<W>) {
        let on_tag = self.on_tag(space, me);
        // After the stragglers: a CPU that was in the middle of a switch is on its slot by now.
        let mut targets = self.targets(space, range.tables(), me);
        targets.union_with(&on_tag);
        (targets, on_tag)
    }

    fn on_tag(&self, space: &Space<K::Facade, W>, me: CpuId) -> CpuMask<W> {
        self.stragglers(space, me, true)
    }

    /// This CPU's part while the mode of a space changes. Moves what it has loaded onto the tag or off it, as the mode
    /// says, or catches up on its slot.
    pub(crate) fn sync_local(&self, space: &Space<K::Facade, W>, me: CpuId) {
        self.masked(|| {
            let cpu = &self.cpus[me];
            if cpu.state().id() == space.id {
                self.sync_loaded_space(cpu);
            }
        });
    }

    /// No CPU is on the tag: publishes `PerCpu`, invalidates the tag everywhere, frees it. Pinned.
    #[inline(never)]
    fn finish_demotion(&self, space: &Space<K::Facade, W>, word: u64, tag: Tag) {
        // If the exchange fails, another flush has found the same.
        if space.change_mode(word, Mode::PerCpu).is_none() {
            return;
        }
        self.broadcast_complete(|| {
            let halves = self.halves(tag);
            halves.map(|half| self.kernel.broadcast(Broadcast::Tag(half))).count() as u32
        });
        self.tags.free_clean(tag);
        self.kernel.event(Event::Demoted);
    }

    /// Moves this CPU from the tag of the space that it runs to a slot. Interrupts off, on that CPU, after the mode was
    /// read.
    #[inline(never)]
    pub(crate) fn leave_system_tag(&self, cpu: &PerCpu<K::Facade>, space: &Space<K::Facade, W>) -> Answer {
        self.load_slot_flushing(cpu, space);
        // Release: a CPU that sees this one on a slot knows that the tag is unloaded.
        cpu.publish(State::loaded(space.id, false));
        Answer::Current
    }

    /// Writes a flush that CPUs on slots catch up with to the log, if the design has one.
    pub(crate) fn log_if_kept(&self, space: &Space<K::Facade, W>, generation: u64, range: &Range) {
        if self.policy().requests == Requests::Log {
            space.log.append(generation, range);
        }
    }
}
