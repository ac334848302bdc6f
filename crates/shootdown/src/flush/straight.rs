//! The common flush, if no sample is due: the space is on per-CPU slots, and at most one other CPU is in its set and
//! runs it; or the space has a system-wide tag, one page is flushed, and the processor broadcasts.
//!
//! It takes the steps of `flush_on_slots`, `post` or `request`, and the wait, in their order, for a set of one, without
//! a list of targets and without a token; or those of `flush_under_tag`. It skips no barrier: the generation was taken
//! before it (full barrier, see the head of `flush/mod.rs`), and the post or the queue's slot is the target's partner,
//! as in the general path.
//!
//! `common_kind` decides before anything else is done. A flush of another kind takes the general path with the same
//! generation. Secondary TLBs were notified when the generation was taken, once for both paths.

use crate::cpu::state::{PerCpu, State};
use crate::cpuset::Others;
use crate::design::{Order, Requests};
use crate::engine::{Engine, Pinned};
use crate::facade::Facade;
use crate::flush::Flush;
use crate::flush::state::Straight;
use crate::flush::token::Flushed;
use crate::hooks::{CpuId, Event, Kernel, Tag};
use crate::range::{Range, Stride};
use crate::space::{Mode, Space};
use crate::transport::handler::Next;
use crate::transport::request::{Asked, Request, WaitOnDrop, send_or_wait};
use crate::transport::room::{Placed, Room};
use core::cell::Cell;

/// The CPUs of a common flush, and how they are reached.
pub(super) enum Common {
    /// This one at most.
    Alone,
    /// One other.
    One(CpuId),
    /// All of them, by a broadcast of one page under this tag.
    Broadcast(Tag),
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// The CPUs of `flush` if it is of the common kind. Pinned on `me`.
    #[inline(always)]
    pub(super) fn common_kind(&self, flush: &Flush<'_, K::Facade, W>, me: CpuId) -> Option<Common> {
        if !self.is_per_cpu(flush.mode) {
            return self.common_under_tag(flush);
        }
        let common = matches!(self.straight(), Straight::Post | Straight::Descriptor);
        if !common || flush.range.tables() || self.sample(flush.generation).is_some() {
            return None;
        }
        match flush.space.cpus.others(me) {
            Others::None => Some(Common::Alone),
            Others::One(cpu) => self.is_common_target(flush.space, cpu).then_some(Common::One(cpu)),
            Others::More => None,
        }
    }

    /// The same for a space with a tag. One that can lose its tag came here only if it was just given it: its flushes
    /// take no generation (`under_tag.rs`).
    #[inline(always)]
    fn common_under_tag(&self, flush: &Flush<'_, K::Facade, W>) -> Option<Common> {
        match self.unpack_mode(flush.mode) {
            Mode::System(tag) if !self.policy().reach.is_adaptive() && self.is_one_broadcast(&flush.range) => {
                Some(Common::Broadcast(tag))
            }
            _ => None,
        }
    }

    /// Whether one instruction invalidates `range` under a tag on every CPU: one leaf, on a processor that broadcasts
    /// and needs no more than that.
    #[inline(always)]
    pub(super) fn is_one_broadcast(&self, range: &Range) -> bool {
        self.can_broadcast()
            && self.one_instruction.everywhere
            && !self.kernel.broadcast_is_targeted()
            && range.is_one_leaf()
            && range.stride() != Stride::Size1G
    }

    /// Carries out `flush`, which is of the common kind, and waits for it.
    #[inline(always)]
    pub(super) fn flush_straight(
        &self,
        flush: &Flush<'_, K::Facade, W>,
        common: Common,
        pin: Pinned<'_, K, W>,
    ) -> Flushed {
        let (space, range) = (flush.space, &flush.range);
        match common {
            Common::Alone => {
                if !self.flush_leaf_here(&self.cpus[pin.cpu], space, flush.generation, range) {
                    // A tail call: otherwise every flush would save registers for it.
                    pin.hand_over();
                    return self.flush_alone_otherwise(space, *range, flush.generation, flush.secondary);
                }
                self.kernel.event(Event::LocalOnly);
                drop(pin);
            }
            Common::Broadcast(tag) => {
                self.broadcast_leaf(tag, range);
                // The synchronising instruction waits only for broadcasts of its own CPU.
                drop(pin);
            }
            Common::One(cpu) => {
                // Tail calls here too: what they need would otherwise be saved by every flush.
                pin.hand_over();
                return if self.straight() == Straight::Post {
                    self.post_one(space, *range, flush.generation, cpu, flush.secondary)
                } else {
                    self.request_one(space, *range, flush.generation, cpu, flush.secondary)
                };
            }
        }
        self.await_secondary(flush.secondary);
        Flushed::new(space.id, range.tables())
    }

    /// The local part of a flush of one leaf, where this CPU runs `space` on a slot that has seen all but this request.
    /// Otherwise returns false, and has done nothing. Pinned.
    // Always: with a call every flush would save registers (`linux-baseline --only counts`).
    #[inline(always)]
    fn flush_leaf_here(
        &self,
        own: &PerCpu<K::Facade>,
        space: &Space<K::Facade, W>,
        generation: u64,
        range: &Range,
    ) -> bool {
        if !self.is_one_instruction(range) {
            return false;
        }
        let saved = self.mask();
        let is_next = own.own_state().id() == space.id
            && match self.next_in_slot(own, space, generation) {
                Next::This(slot, tag) => {
                    self.flush_leaf_of(slot, tag, generation, range);
                    true
                }
                Next::Seen | Next::Further => false,
            };
        self.kernel.interrupts_restore(saved);
        is_next
    }

    /// The local part of a flush of any kind: [`flush_on`](Self::flush_on), where it is usually of one leaf.
    #[inline(always)]
    fn flush_locally(&self, own: &PerCpu<K::Facade>, space: &Space<K::Facade, W>, generation: u64, range: &Range) {
        if !self.flush_leaf_here(own, space, generation, range) {
            self.flush_on(own, space, generation, range);
        }
    }

    /// A flush on this CPU alone that is not of one leaf, or whose slot is further behind. Takes over the caller's pin.
    // Cold, although flushes of several pages come here: otherwise that of one page takes nine instructions more on a
    // kernel that chooses its policy at boot (`linux-baseline --only counts`).
    #[cold]
    #[inline(never)]
    fn flush_alone_otherwise(
        &self,
        space: &Space<K::Facade, W>,
        range: Range,
        generation: u64,
        secondary: u64,
    ) -> Flushed {
        {
            let pin = self.still_pinned();
            let own = &self.cpus[pin.cpu];
            if own.own_state().id() == space.id {
                self.flush_on(own, space, generation, &range);
            } else if self.policy().requests == Requests::Log {
                // For the CPU that loads the space next.
                space.log.append(generation, &range);
            }
            self.kernel.event(Event::LocalOnly);
        }
        self.await_secondary(secondary);
        Flushed::new(space.id, range.tables())
    }

    /// Whether `cpu`, the only other member of the set, runs `space` on a slot and must be interrupted. The general
    /// path handles a CPU that is switching, lazy, departed, inside the kernel or descheduled.
    #[inline(always)]
    fn is_common_target(&self, space: &Space<K::Facade, W>, cpu: CpuId) -> bool {
        // Acquire, after the acquire load that showed the member, as in `targets_present` (rule 5).
        self.cpus[cpu].state() == State::loaded(space.id, false)
            && !self.kernel.flush_at_entry(cpu)
            && !(self.policy().reach.is_adaptive() && self.costs.broadcast_from() <= 1)
    }

    /// Posts to `cpu` and waits for its answer. Takes over the caller's pin.
    // The arguments are those of `request_one`, in registers: both are tail calls.
    #[inline(never)]
    fn post_one(
        &self,
        space: &Space<K::Facade, W>,
        range: Range,
        generation: u64,
        cpu: CpuId,
        secondary: u64,
    ) -> Flushed {
        let pin = self.still_pinned();
        let (me, own, target) = (pin.cpu, &self.cpus[pin.cpu], &self.cpus[cpu]);
        let local = || self.flush_locally(own, space, generation, &range);
        let serial = self.policy().order == Order::Serial;
        space.log.append(generation, &range);
        if serial {
            local();
        }
        self.refuse_in_handler();
        let sending = own.own.sending.set();
        let (ticket, fresh) = self.post_to(target, sending.is_nested());
        if fresh {
            self.interrupt_one(cpu);
        }
        drop(sending);
        self.report_one(fresh);
        if !serial {
            local();
        }
        let pin = (!self.policy().wait.is_preemptible()).then_some(pin);
        // A waiter that migrates is reported where it began.
        let report = || self.report_stuck(me, cpu, (space.id, generation));
        self.wait_reporting(report, || self.has_answered(target, ticket));
        drop(pin);
        self.await_secondary(secondary);
        // Not `false`, although it is: then the caller could not end in a tail call.
        Flushed::new(space.id, range.tables())
    }

    /// Queues a descriptor on the stack at `cpu` and waits until it is acknowledged. Takes over the caller's pin.
    #[inline(never)]
    fn request_one(
        &self,
        space: &Space<K::Facade, W>,
        range: Range,
        generation: u64,
        cpu: CpuId,
        secondary: u64,
    ) -> Flushed {
        let pin = self.still_pinned();
        let (me, own) = (pin.cpu, &self.cpus[pin.cpu]);
        let local = || self.flush_locally(own, space, generation, &range);
        let serial = self.policy().order == Order::Serial;
        if serial {
            local();
        }
        self.refuse_in_handler();
        let mut room = Room::new();
        let placed = Placed::new(&mut room, Request::to_one(), |request| {
            request.fill(&Asked::space(space.id).encode(generation, &range), 0, 0);
        });
        let (request, queued) = (&*placed, Cell::new(false));
        // This frame is not left before the target is done with it, not even if a hook panics (C5).
        let complete = WaitOnDrop(|| {
            let answered = || request.is_complete() || !queued.get() && self.queue_again(&queued, cpu, request);
            let report = || self.report_stuck(self.kernel.cpu(), cpu, (space.id, generation));
            self.wait_reporting(report, answered);
        });
        self.queue_one(&queued, cpu, request, me);
        if !serial {
            local();
        }
        let pin = (!self.policy().wait.is_preemptible()).then_some(pin);
        drop(complete);
        drop(pin);
        self.await_secondary(secondary);
        // Not `false`, although it is: then the caller could not end in a tail call.
        Flushed::new(space.id, range.tables())
    }

    /// Queues `request` at `cpu` if that has a slot, says so in `queued`, and interrupts it if need be. Pinned on `me`.
    #[inline]
    fn queue_one(&self, queued: &Cell<bool>, cpu: CpuId, request: &Request<K::Facade>, me: CpuId) {
        let target = &self.cpus[cpu];
        let sending = self.cpus[me].own.sending.set();
        let Some((slot, first)) = self.put(target, me, request) else {
            return;
        };
        queued.set(true);
        self.take_back_if_off(target, slot, request);
        let fresh = first || sending.is_nested();
        if fresh {
            self.interrupt_one(cpu);
        }
        drop(sending);
        self.report_one(fresh);
    }

    /// The same from within the wait, where the queue was full before. Returns whether there is nothing to wait
    /// for, because the CPU is offline by now.
    #[cold]
    #[inline(never)]
    fn queue_again(&self, queued: &Cell<bool>, cpu: CpuId, request: &Request<K::Facade>) -> bool {
        let pin = self.pinned();
        let wait = || self.wait_reporting(|| {}, || request.is_complete() || !queued.get());
        send_or_wait(wait, || self.queue_one(queued, cpu, request, pin.cpu));
        let off = !queued.get() && self.cpus[cpu].state().is_off();
        if off {
            self.report_one(false);
        }
        off
    }

    #[inline]
    fn report_one(&self, interrupted: bool) {
        self.kernel.event(Event::Interrupted {
            sent: u32::from(interrupted),
            targets: 1,
        });
    }

    #[inline]
    fn interrupt_one(&self, cpu: CpuId) {
        // Pairs with `after_ipi` in `on_ipi`.
        K::Facade::before_ipi();
        self.kernel.send_ipi_to(cpu);
    }
}

#[cfg(test)]
mod tests;
