//! The common flush: the space is on per-CPU slots, at most one other CPU is in its set and runs it, and no sample is
//! due.
//!
//! It takes the steps of `flush_on_slots`, `post` or `request`, and the wait, in their order, for a set of one, without
//! a list of targets and without a token. It skips no barrier: the generation was taken before it (full barrier, see
//! the head of `flush/mod.rs`), and the post or the queue's slot is the target's partner, as in the general path.
//!
//! A flush that turns out to be of another kind goes on in the general path with the same generation. Until then at
//! most the local part was carried out, which may be repeated (C6). Secondary TLBs were notified when the generation
//! was taken, once for both paths.

use crate::cpu::state::{PerCpu, State};
use crate::cpuset::Others;
use crate::design::Order;
use crate::engine::{Engine, Pinned};
use crate::facade::{Facade, Word};
use crate::flush::Flush;
use crate::flush::state::Straight;
use crate::hooks::{CpuId, Event, Kernel};
use crate::space::{Mode, Space};
use crate::transport::request::{EncodedRequest, Request, WaitOnDrop};
use core::sync::atomic::Ordering;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Carries out `flush` and waits for it if it is of the common kind, else returns the pin.
    #[inline]
    pub(super) fn flush_straight<'e>(
        &'e self,
        flush: &Flush<'_, K::Facade, W>,
        pin: Pinned<'e, K, W>,
    ) -> Result<(), Pinned<'e, K, W>> {
        let (me, space, straight) = (pin.cpu, flush.space, self.straight());
        let own = &self.cpus[me];
        // Relaxed: the increment of the generation orders it, as in `dispatch_into`.
        let word = space.mode.0.load(Ordering::Relaxed);
        if straight == Straight::Never
            || self.unpack_mode(word) != Mode::PerCpu
            || flush.range.tables()
            || self.sample(flush.generation).is_some()
        {
            return Err(pin);
        }
        match space.cpus.others(me) {
            Others::None if own.own_state().id() == space.id => {
                self.flush_on(own, space, flush.generation, &flush.range);
                self.kernel.event(Event::LocalOnly);
                drop(pin);
            }
            Others::One(cpu) => {
                let target = &self.cpus[cpu];
                if !self.is_common_target(space, cpu, target) {
                    return Err(pin);
                }
                match straight {
                    Straight::Post => self.post_one(flush, own, (cpu, target), pin),
                    Straight::Descriptor => self.request_one(flush, own, (cpu, target), pin)?,
                    Straight::Never => return Err(pin),
                }
            }
            Others::None | Others::More => return Err(pin),
        }
        self.await_secondary(flush.secondary);
        Ok(())
    }

    /// Whether `cpu`, the only other member of the set, runs `space` on a slot and must be interrupted. The general
    /// path handles a CPU that is switching, lazy, departed, inside the kernel or descheduled.
    #[inline]
    fn is_common_target(&self, space: &Space<K::Facade, W>, cpu: CpuId, target: &PerCpu<K::Facade>) -> bool {
        // Acquire, after the acquire load that showed the member, as in `targets_present` (rule 5).
        target.state() == State::loaded(space.id, false)
            && !self.kernel.flush_at_entry(cpu)
            && !(self.policy().reach.is_adaptive() && self.costs.broadcast_from() <= 1)
    }

    /// Posts to `cpu` and waits for its answer.
    #[inline]
    fn post_one(
        &self,
        flush: &Flush<'_, K::Facade, W>,
        own: &PerCpu<K::Facade>,
        (cpu, target): (CpuId, &PerCpu<K::Facade>),
        pin: Pinned<'_, K, W>,
    ) {
        let (space, generation) = (flush.space, flush.generation);
        let serial = self.policy().order == Order::Serial;
        space.log.append(generation, &flush.range);
        if serial {
            self.flush_on(own, space, generation, &flush.range);
        }
        self.refuse_in_handler();
        let sending = own.own.sending.set();
        let (ticket, fresh) = self.post_to(target, sending.nested);
        if fresh {
            self.interrupt_one(cpu);
        }
        drop(sending);
        self.report_one_and_flush(flush, own, fresh, serial);
        let _pin = (!self.policy().wait.is_preemptible()).then_some(pin);
        // Only for the report: a waiter that migrates is reported where it began.
        let waiter = self.kernel.cpu();
        let done = || self.has_answered(target, ticket);
        self.wait_inlined(waiter, (space.id, generation), || Some(cpu), done);
    }

    /// Queues a descriptor on the stack at `cpu` and waits until it is acknowledged. Returns the pin if the queue is
    /// full: the general path then waits for a slot.
    #[inline]
    fn request_one<'e>(
        &'e self,
        flush: &Flush<'_, K::Facade, W>,
        own: &PerCpu<K::Facade>,
        (cpu, target): (CpuId, &PerCpu<K::Facade>),
        pin: Pinned<'e, K, W>,
    ) -> Result<(), Pinned<'e, K, W>> {
        let (me, space, generation) = (pin.cpu, flush.space, flush.generation);
        let serial = self.policy().order == Order::Serial;
        if serial {
            self.flush_on(own, space, generation, &flush.range);
        }
        self.refuse_in_handler();
        let mut request = Request::to_one();
        request.fill(EncodedRequest::space(space.id, generation, &flush.range), 0, 0);
        let sending = own.own.sending.set();
        let Some((slot, first)) = self.put(target, me, &request) else {
            return Err(pin);
        };
        // From here on this frame is not left before the target is done with it, not even if a hook panics (C5).
        let about = (space.id, generation);
        let complete = WaitOnDrop(|| self.wait_inlined(me, about, || Some(cpu), || request.is_complete()));
        let fresh = first || sending.nested;
        self.take_back_if_off(target, slot, &request);
        if fresh {
            self.interrupt_one(cpu);
        }
        drop(sending);
        self.report_one_and_flush(flush, own, fresh, serial);
        if self.policy().wait.is_preemptible() {
            drop((pin, complete));
        } else {
            drop((complete, pin));
        }
        Ok(())
    }

    /// Reports the request, and carries out the local part unless that came first.
    #[inline]
    fn report_one_and_flush(
        &self,
        flush: &Flush<'_, K::Facade, W>,
        own: &PerCpu<K::Facade>,
        interrupted: bool,
        serial: bool,
    ) {
        self.kernel.event(Event::Interrupted {
            sent: u32::from(interrupted),
            targets: 1,
        });
        if !serial {
            self.flush_on(own, flush.space, flush.generation, &flush.range);
        }
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
