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
    /// Marks that this CPU may have interrupts to send, and whether it runs on top of a sender that has.
    sending: LocalFlagSet<'a>,
    /// CPUs whose queue was empty: this requester must interrupt them.
    fresh: CpuMask<W>,
    /// Number of interrupts sent.
    sent: u32,
    /// Number of targets at which it was queued.
    queued: &'a Cell<u32>,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Queues one stack request at every target, sends, runs `meanwhile`, and waits for all targets, pinned or not.
    ///
    /// After unpinning, nothing here may use `me`: the frame, and the request in it, migrates with the waiter.
    pub(crate) fn request(
        &self,
        token: &Token<'_, 'k, K, W>,
        targets: &CpuMask<W>,
        encoded: EncodedRequest,
        pin: Pinned<'_, K, W>,
        meanwhile: impl FnOnce(),
    ) {
        let me = pin.cpu;
        let walked = if self.registers_walkers() { token.walked } else { 0 };
        let departed = if self.departs_on_request() { token.departed } else { 0 };
        let mut stack;
        let own = self.own_request(me);
        let request = match own {
            Some(own) => {
                own.reopen();
                own.write(encoded, walked, departed);
                own
            }
            None => {
                stack = Request::sending();
                stack.fill(encoded, walked, departed);
                &stack
            }
        };
        let queued = Cell::new(0);
        // From here on the frame cannot be left before every target is done with it, even if a hook panics.
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

    /// Queues `request` at every target and interrupts those whose queue was empty. Returns how many. `queued` counts
    /// those that will acknowledge.
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
            sending: self.cpus[me].own.sending.set(),
            fresh: CpuMask::EMPTY,
            sent: 0,
            queued,
        };
        // If more CPUs send than a queue has slots, they must not all wait for the first target. Full queues are
        // skipped and retried in an order that differs by requester.
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

    /// C5: a CPU that went offline after `put` either finds the request in its own drain (and acknowledges), or is seen
    /// offline here, after the full barrier of `put`. Pairs with `cpu_offline`.
    #[inline]
    pub(crate) fn take_back_if_off(&self, target: &PerCpu<K::Facade>, slot: u32, request: &Request<K::Facade>) {
        if target.state().is_off() && target.queue.cancel(slot, request) {
            request.acknowledge();
        }
    }

    /// A CPU that has not taken `request`. If all have, one that is still serving it.
    #[cold]
    fn has_not_answered(&self, request: &Request<K::Facade>, targets: &CpuMask<W>) -> Option<CpuId> {
        let waits = |cpu: &CpuId| self.cpus[*cpu].queue.holds(request);
        targets.iter().find(waits).or_else(|| targets.iter().next())
    }

    /// The descriptor of this CPU, if the design uses it and it is free. A thread that was preempted while waiting may
    /// still use it. Pinned on `me`, so that no other thread of this CPU checks before it is reopened.
    #[inline]
    fn own_request(&self, me: CpuId) -> Option<&Request<K::Facade>> {
        if !self.policy().requests.is_per_cpu() {
            return None;
        }
        let own = &self.cpus[me].request;
        // Acquire, in `is_idle`: every target is done with its last use, and so is the requester.
        own.is_idle().then_some(own)
    }

    #[inline]
    pub(crate) fn put(
        &self,
        target: &PerCpu<K::Facade>,
        me: CpuId,
        request: &Request<K::Facade>,
    ) -> Option<(u32, bool)> {
        target.queue.put(me, request)
    }
}

impl<'k, K: Kernel<W>, const W: usize> Sending<'_, 'k, K, W> {
    /// The request is in slot `slot` of the queue of `cpu`, which was empty if `first`.
    #[inline]
    fn queued(&mut self, cpu: CpuId, target: &PerCpu<K::Facade>, (slot, first): (u32, bool)) {
        if first || self.sending.nested {
            self.fresh.insert(cpu);
            self.sent += 1;
        }
        self.queued.set(self.queued.get() + 1);
        self.engine.take_back_if_off(target, slot, self.request);
    }

    /// Waits for a slot at each of the CPUs whose queue was full.
    #[cold]
    fn queue_at_full(&mut self, token: &Token<'_, 'k, K, W>, full: &CpuMask<W>) {
        let (engine, me) = (self.engine, self.me);
        for cpu in full.iter_from(me) {
            let target = &engine.cpus[cpu];
            let mut place = engine.put(target, me, self.request);
            if place.is_none() {
                // A requester that found a queue empty must send the interrupt that all later requesters rely on. It
                // sends these interrupts before it waits. Otherwise two requesters could each wait for a queue that is
                // served only after the other's interrupt (C5).
                self.interrupt();
                let request = self.request;
                engine.wait_reporting(me, token.about(), &|| Some(cpu), &mut || {
                    place = engine.put(target, me, request);
                    place.is_some() || target.state().is_off()
                });
            }
            // Offline since it was chosen, with all its slots taken until it comes online: not to be waited for (C5).
            if let Some(place) = place {
                self.queued(cpu, target, place);
            }
        }
    }

    /// Interrupts the CPUs whose queue was empty.
    #[inline]
    fn interrupt(&mut self) {
        if !self.fresh.is_empty() {
            // Pairs with `after_ipi` in `on_ipi`.
            K::Facade::before_ipi();
            self.engine.kernel.send_ipi(&core::mem::take(&mut self.fresh));
        }
    }
}
