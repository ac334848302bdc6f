//! Requests with a descriptor: queueing one at each target, interrupting those whose queue was empty, and waiting.

use crate::cpu::state::PerCpu;
use crate::cpuset::CpuMask;
use crate::design::Order;
use crate::engine::Engine;
use crate::facade::Facade;
use crate::flush::token::Token;
use crate::hooks::{CpuId, Event, Kernel};
use crate::transport::request::{EncodedRequest, Request, WaitOnDrop};
use crate::transport::room::Room;
use core::cell::Cell;

/// A request on its way to its targets. One argument of the functions below, not seven, because a waiter serves
/// requests deep in its stack (`cargo xtask stack`).
pub(crate) struct Sending<'r, F: Facade> {
    request: &'r Request<F>,
    /// Its requester, for reports and as the slot that it tries first.
    me: CpuId,
    /// The space and the generation for a report, 0 for none.
    about: (u64, u64),
    /// Whether this CPU interrupted another send, which has not sent its interrupts yet.
    nested: Cell<bool>,
    /// Interrupts sent.
    pub(crate) interrupts: Cell<u32>,
    /// Targets at which it was queued, and which will acknowledge.
    pub(crate) queued: Cell<u32>,
}

impl<'r, F: Facade> Sending<'r, F> {
    /// Nothing of it has been sent yet.
    pub(crate) fn new(request: &'r Request<F>, me: CpuId, about: (u64, u64), nested: bool) -> Self {
        Sending {
            request,
            me,
            about,
            nested: Cell::new(nested),
            interrupts: Cell::new(0),
            queued: Cell::new(0),
        }
    }
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Queues one stack request at every target, sends, does the local part unless that came first, and waits for all
    /// targets, pinned or not. Takes over the caller's pin.
    ///
    /// After unpinning, nothing here may use `me`: the frame, and the request in it, migrates with the waiter.
    #[inline(never)]
    pub(super) fn request(
        &self,
        token: &mut Token<'_, 'k, K, W>,
        targets: &CpuMask<W>,
        encoded: &EncodedRequest,
        local: &dyn Fn(&Self),
    ) {
        let pin = self.still_pinned();
        let me = pin.cpu;
        let walked = if self.registers_walkers() { token.walked } else { 0 };
        let departed = if self.departs_on_request() { token.departed } else { 0 };
        let about = token.about();
        let (mut room, mut placed);
        let own = self.own_request(me);
        let request = match own {
            Some(own) => {
                own.reopen();
                own.write(encoded, walked, departed);
                own
            }
            None => {
                let room = if Token::<K, W>::HOLDS_TICKETS {
                    &mut token.room
                } else {
                    room = Room::new();
                    &mut room
                };
                placed = room.put(Request::sending());
                placed.fill(encoded, walked, departed);
                &*placed
            }
        };
        let sending = Sending::new(request, me, about, false);
        // From here on the frame cannot be left before every target is done with it, even if a hook panics.
        let complete = WaitOnDrop(|| {
            request.sent(sending.queued.get());
            self.await_answers(&sending, targets);
            if let Some(own) = own {
                own.close();
            }
        });
        let flag = self.cpus[me].own.sending.set();
        sending.nested.set(flag.is_nested());
        let full = self.queue_at(targets, &sending);
        if !full.is_empty() {
            self.queue_at_full(full, &sending);
        }
        drop(flag);
        self.kernel.event(Event::Interrupted {
            sent: sending.interrupts.get(),
            targets: sending.queued.get(),
        });
        if self.policy().order != Order::Serial {
            local(self);
        }
        match self.policy().wait.is_preemptible() {
            false => drop((complete, pin)),
            true => drop((pin, complete)),
        }
    }

    /// Queues the request at every target whose queue is not full, and interrupts those whose queue was empty. Returns
    /// the others.
    // Not inlined: the wait for the answers needs no room for this.
    #[inline(never)]
    fn queue_at(&self, targets: &CpuMask<W>, sending: &Sending<'_, K::Facade>) -> CpuMask<W> {
        let (request, me, nested) = (sending.request, sending.me, sending.nested.get());
        let (mut fresh, mut full) = (CpuMask::EMPTY, CpuMask::EMPTY);
        for cpu in targets.iter() {
            let target = &self.cpus[cpu];
            match self.put(target, me, request) {
                Some((slot, first)) => {
                    if first || nested {
                        fresh.insert(cpu);
                        sending.interrupts.set(sending.interrupts.get() + 1);
                    }
                    sending.queued.set(sending.queued.get() + 1);
                    self.take_back_if_off(target, slot, request);
                }
                // Offline since it was chosen, with all its slots taken until it comes online: not to be waited for
                // (C5).
                None if target.state().is_off() => {}
                None => full.insert(cpu),
            }
        }
        if !fresh.is_empty() {
            // Pairs with `after_ipi` in `on_ipi`.
            K::Facade::before_ipi();
            self.kernel.send_ipi(&fresh);
        }
        full
    }

    /// Waits for a slot at each of the CPUs whose queue was full. Whichever has one first is next: if more CPUs send
    /// than a queue has slots, they must not all wait for the same one. The interrupts that are due have been sent. A
    /// requester that found a queue empty must send the one that all later requesters rely on. Otherwise two requesters
    /// could each wait for a queue that is served only after the other's interrupt (C5).
    #[cold]
    #[inline(never)]
    pub(crate) fn queue_at_full(&self, mut full: CpuMask<W>, sending: &Sending<'_, K::Facade>) {
        let first = full.iter().next().unwrap_or(sending.me);
        let queued = || {
            full = self.queue_at(&full, sending);
            full.is_empty()
        };
        self.wait_reporting(|| (sending.me, first, sending.about), queued);
    }

    /// Waits until every target has answered.
    // Not inlined: for the same reason as `Token::wait_for`.
    #[inline(never)]
    fn await_answers(&self, sending: &Sending<'_, K::Facade>, targets: &CpuMask<W>) {
        let names = || (sending.me, self.unanswered(sending, targets), sending.about);
        self.wait_reporting(names, || sending.request.is_complete());
    }

    /// A CPU that has not taken the request. If all have, one that is still serving it.
    #[cold]
    #[inline(never)]
    fn unanswered(&self, sending: &Sending<'_, K::Facade>, targets: &CpuMask<W>) -> CpuId {
        let waits = |cpu: &CpuId| self.cpus[*cpu].queue.holds(sending.request);
        let target = targets.iter().find(waits).or_else(|| targets.iter().next());
        target.unwrap_or(sending.me)
    }

    /// C5: a CPU that went offline after `put` either finds the request in its own drain (and acknowledges), or is seen
    /// offline here, after the full barrier of `put`. Pairs with `cpu_offline`.
    #[inline]
    pub(crate) fn take_back_if_off(&self, target: &PerCpu<K::Facade>, slot: u32, request: &Request<K::Facade>) {
        if target.state().is_off() && target.queue.cancel(slot, request) {
            request.acknowledge();
        }
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
