//! Requests with a descriptor: queueing one at each target, interrupting those whose queue was empty, and waiting.

use crate::cpu::local_flag::LocalFlagSet;
use crate::cpu::state::PerCpu;
use crate::cpuset::CpuMask;
use crate::engine::{Engine, Pinned};
use crate::facade::Facade;
use crate::flush::token::Token;
use crate::hooks::{CpuId, Event, Kernel};
use crate::transport::request::{EncodedRequest, Request, WaitOnDrop};
use core::cell::Cell;

/// A request that is being queued.
struct Sending<'a, 'k, K: Kernel<W>, const W: usize> {
    engine: &'a Engine<'k, K, W>,
    request: &'a Request<K::Facade>,
    me: CpuId,
    /// Says that this CPU may owe others an interrupt, and whether this is on top of a sender that does.
    owing: LocalFlagSet<'a>,
    /// CPUs whose queue was empty: this requester owes them an interrupt.
    fresh: CpuMask<W>,
    /// How many those were.
    sent: u32,
    /// Targets that it was queued at.
    queued: &'a Cell<u32>,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Queues one stack request at every target, sends, runs `meanwhile`, and waits for all of them, pinned or not.
    ///
    /// From the unpinning on nothing here may speak of `me`: the frame, and the request in it, goes where the waiter
    /// goes.
    pub(crate) fn request(
        &self,
        token: &Token<'_, 'k, K, W>,
        targets: &CpuMask<W>,
        asked: EncodedRequest,
        pin: Pinned<'_, K, W>,
        meanwhile: impl FnOnce(),
    ) {
        let me = pin.cpu;
        let walked = if self.registers_walkers() { token.walked } else { 0 };
        let departed = if self.departs_when_asked() { token.departed } else { 0 };
        let mut stack;
        let own = self.own_request(me);
        let request = match own {
            Some(own) => {
                own.reopen();
                own.write(asked, walked, departed);
                own
            }
            None => {
                stack = Request::sending();
                stack.fill(asked, walked, departed);
                &stack
            }
        };
        let queued = Cell::new(0);
        // From here on the frame cannot be left before every target is done with it, not even when a hook panics.
        let complete = WaitOnDrop(|| {
            request.sent(queued.get());
            self.wait_reporting(
                me,
                token.about(),
                &|| self.has_not_answered(request, targets),
                &mut || request.is_complete(),
            );
            if let Some(own) = own {
                own.close();
            }
        });
        let sent = self.queue_at_all(token, targets, request, me, &queued);
        self.kernel.event(Event::Interrupted {
            sent,
            targets: queued.get(),
        });
        meanwhile();
        match self.policy().wait.is_preemptible() {
            false => drop((complete, pin)),
            true => drop((pin, complete)),
        }
    }

    /// Queues `request` at every target and interrupts those that are owed one; returns how many. `queued` counts those
    /// that will acknowledge.
    fn queue_at_all(
        &self,
        token: &Token<'_, 'k, K, W>,
        targets: &CpuMask<W>,
        request: &Request<K::Facade>,
        me: CpuId,
        queued: &Cell<u32>,
    ) -> u32 {
        let mut sending = Sending {
            engine: self,
            request,
            me,
            owing: self.cpus[me].own.sending.set(),
            fresh: CpuMask::EMPTY,
            sent: 0,
            queued,
        };
        // Where more CPUs ask than a queue has slots, they must not all wait for the first target: full queues are
        // passed over, and come back to in an order that differs by requester.
        let mut full = CpuMask::<W>::EMPTY;
        for cpu in targets.iter() {
            let target = &self.cpus[cpu];
            match self.put(target, me, request) {
                Some(place) => sending.queued(cpu, target, place),
                None => full.insert(cpu),
            }
        }
        if !full.is_empty() {
            sending.queue_at_full(token, &full);
        }
        sending.interrupt();
        sending.sent
    }

    /// A CPU that has not taken `request`; if all have, one of them is still at it.
    #[cold]
    fn has_not_answered(&self, request: &Request<K::Facade>, targets: &CpuMask<W>) -> Option<CpuId> {
        let waits = |cpu: &CpuId| self.cpus[*cpu].queue.holds(request);
        targets.iter().find(waits).or_else(|| targets.iter().next())
    }

    /// The descriptor of this CPU, if the design uses it and nobody does at the moment: somebody who was preempted
    /// while waiting may. Pinned on `me`, so that from here to its reopening nobody else on this CPU looks.
    #[inline]
    fn own_request(&self, me: CpuId) -> Option<&Request<K::Facade>> {
        if !self.policy().requests.is_per_cpu() {
            return None;
        }
        let own = &self.cpus[me].request;
        // Acquire, in `is_idle`: every target is done with what it was asked last, and so is who asked.
        own.is_idle().then_some(own)
    }

    #[inline(always)]
    fn put(&self, target: &PerCpu<K::Facade>, me: CpuId, request: &Request<K::Facade>) -> Option<(u32, bool)> {
        target.queue.put(me, request)
    }
}

impl<'k, K: Kernel<W>, const W: usize> Sending<'_, 'k, K, W> {
    /// The request stands in the queue of `cpu`, in that slot; `first`: the queue was empty.
    #[inline]
    fn queued(&mut self, cpu: CpuId, target: &PerCpu<K::Facade>, (slot, first): (u32, bool)) {
        if first || self.owing.nested {
            self.fresh.insert(cpu);
            self.sent += 1;
        }
        self.queued.set(self.queued.get() + 1);
        // C5: a CPU that went off after that was either seen by its own drain (it acknowledges), or is seen off here,
        // after the full barrier of `put`. Pairs with `cpu_offline`.
        if target.state().is_off() && target.queue.cancel(slot, self.request) {
            self.request.acknowledge();
        }
    }

    /// Waits for a slot at each of the CPUs whose queue was full.
    #[cold]
    fn queue_at_full(&mut self, token: &Token<'_, 'k, K, W>, full: &CpuMask<W>) {
        let (engine, me) = (self.engine, self.me);
        for cpu in full.iter_from(me) {
            let target = &engine.cpus[cpu];
            let mut place = engine.put(target, me, self.request);
            if place.is_none() {
                // A requester that found a queue empty owes its CPU the interrupt that all later requesters count on.
                // Send what is owed before waiting, or two requesters could each wait for a queue that only the other
                // would have had served (C5).
                self.interrupt();
                let request = self.request;
                engine.wait_reporting(me, token.about(), &|| Some(cpu), &mut || {
                    place = engine.put(target, me, request);
                    place.is_some() || target.state().is_off()
                });
            }
            // Off since it was chosen, with all its slots taken until it comes online: not to be waited for (C5).
            if let Some(place) = place {
                self.queued(cpu, target, place);
            }
        }
    }

    /// Interrupts the CPUs that are owed it.
    #[inline]
    fn interrupt(&mut self) {
        if !self.fresh.is_empty() {
            K::Facade::before_ipi();
            self.engine.kernel.send_ipi(&core::mem::take(&mut self.fresh));
        }
    }
}
