//! Requests with a descriptor: queueing one at each target, interrupting those whose queue was empty, and waiting.
//!
//! A request lies in the token of its flush. `Token::sends` waits for it before that frame is left. So the frames of
//! the send are not on the stack of a waiter, which serves requests of other CPUs (`cargo xtask stack`).

use crate::cpu::state::PerCpu;
use crate::cpuset::CpuMask;
use crate::design::Order;
use crate::engine::Engine;
use crate::facade::Facade;
use crate::flush::token::Token;
use crate::hooks::{CpuId, Event, Kernel};
use crate::range::Range;
use crate::space::Space;
use crate::transport::request::{Asked, Request, send_or_wait};
use crate::transport::room::Place;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Queues one request at every target, sends, and does the own part unless that came first. The token waits. Takes
    /// over the caller's pin, which the wait takes over if it spins.
    #[inline(never)]
    pub(crate) fn request(&self, token: &Token<'_, 'k, K, W>, asked: Asked, range: Range) {
        let pin = self.still_pinned();
        let me = pin.cpu;
        let _pin = match self.policy().wait.is_preemptible() {
            true => Some(pin),
            false => {
                pin.hand_over();
                None
            }
        };
        let encoded = &asked.encode(token.generation.get(), &range);
        let named_if = |asks: bool| if asks { token.named.get() } else { 0 };
        let walked = named_if(self.registers_walkers() && token.forgets_walks.get());
        let departed = named_if(self.departs_on_request() && token.departs.get());
        match self.own_request(me) {
            Some(own) => {
                own.reopen();
                own.write(encoded, walked, departed);
                token.place.set(Place::of(me));
            }
            None => {
                // SAFETY: once for a token, which is not moved before `await_request` has taken it out.
                unsafe {
                    token
                        .room
                        .put(Request::sending(), |request| request.fill(encoded, walked, departed));
                }
                token.place.set(Place::TOKEN);
            }
        }
        // From here on `Token::sends` does not return before every target is done with it, even if a hook panics.
        let full = self.queue_at(token, token.targets(), me);
        if full.is_empty() {
            token.report_interrupts();
        }
        if self.policy().order != Order::Serial {
            self.do_own_part(asked, token.generation.get(), range);
        }
        match full.is_empty() {
            true => token.count_targets(),
            false => token.full.set(full),
        }
    }

    /// Queues the request of `token` at every target whose queue is not full, and interrupts those whose queue was
    /// empty. Returns the others. Pinned on `me`.
    ///
    /// The interrupts that are due have been sent when it returns, before any wait. A requester that found a queue
    /// empty must send the one that all later requesters rely on. Otherwise two requesters could each wait for a queue
    /// that is served only after the other's interrupt (C5).
    // Not inlined: the own part needs no room for this.
    #[inline(never)]
    fn queue_at(&self, token: &Token<'_, 'k, K, W>, targets: &CpuMask<W>, me: CpuId) -> CpuMask<W> {
        let Some(request) = token.in_progress() else {
            return CpuMask::EMPTY;
        };
        let flag = self.cpus[me].own.sending.set();
        let (mut fresh, mut full) = (CpuMask::EMPTY, CpuMask::EMPTY);
        for cpu in targets.iter() {
            let target = &self.cpus[cpu];
            match self.put(target, me, request) {
                Some((slot, first)) => {
                    if first || flag.is_nested() {
                        fresh.insert(cpu);
                        token.interrupts.set(token.interrupts.get() + 1);
                    }
                    token.expected.set(token.expected.get() + 1);
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
        let own = &self.cpus[me].request.0;
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

impl<K: Kernel<W>, const W: usize> Token<'_, '_, K, W> {
    /// Targets are to be removed from the walker set of `space`, which the requester borrows until it has waited.
    pub(crate) fn forget_walks_of(&self, space: &Space<K::Facade, W>) {
        self.named.set(core::ptr::from_ref(space).expose_provenance() as u64);
        self.forgets_walks.set(true);
    }

    /// Targets that have left `space` are to leave its set. The requester borrows it until it has waited.
    pub(crate) fn depart_from(&self, space: &Space<K::Facade, W>) {
        self.named.set(core::ptr::from_ref(space).expose_provenance() as u64);
        self.departs.set(true);
    }

    /// Whether it can only be sent with a descriptor: posts name no space.
    #[inline]
    pub(crate) fn names_space(&self) -> bool {
        self.named.get() != 0
    }

    /// The request that this token has sent, until every target is done with it.
    #[inline]
    fn in_progress(&self) -> Option<&Request<K::Facade>> {
        match self.place.get() {
            Place::NOWHERE => None,
            // SAFETY: it was put there.
            Place::TOKEN => Some(unsafe { self.room.request() }),
            place if self.engine.policy().requests.is_per_cpu() => Some(&self.engine.cpus[place.cpu()].request.0),
            _ => None,
        }
    }

    fn report_interrupts(&self) {
        self.engine.kernel.event(Event::Interrupted {
            sent: self.interrupts.get(),
            targets: self.expected.get(),
        });
    }

    /// Waits until every target is done with the request of this token, if there is one. Once for a token.
    #[inline(always)]
    pub(crate) fn await_request(&self) {
        if self.place.get() != Place::NOWHERE {
            self.await_answers();
        }
    }

    /// Waits until every target has answered, pinned if waits spin.
    ///
    /// After unpinning, nothing here may rely on the CPU: the frame, and the request in it, migrates with the waiter.
    // Not inlined: a waiter serves requests deep in its stack, so little lies in its frame (`cargo xtask stack`).
    #[inline(never)]
    fn await_answers(&self) {
        let Some(request) = self.in_progress() else { return };
        // `request` has left the pin to this wait, if waits spin.
        self.begin_timed_wait();
        // Read after the calls: else two copies are kept at hand.
        let engine = self.engine;
        let _pin = engine.still_pinned_wait();
        self.wait_until_answered(engine, request);
        self.finish_request(request);
    }

    /// Every target is done with the request.
    // Not inlined: the wait keeps less at hand.
    #[inline(never)]
    fn finish_request(&self, request: &Request<K::Facade>) {
        match self.place.replace(Place::NOWHERE) {
            // SAFETY: it was put there, and every target is done with it.
            Place::TOKEN => unsafe { self.room.take_out() },
            _ => request.close(),
        }
        self.learn_from_answers();
        self.targets.set(CpuMask::EMPTY);
    }

    #[inline(always)]
    fn wait_until_answered(&self, engine: &Engine<'_, K, W>, request: &Request<K::Facade>) {
        let report = || self.report_unanswered(request);
        let answered = || request.is_complete() || self.queue_rest(request) && request.is_complete();
        engine.wait_deep(report, answered);
    }

    /// Reports a CPU whose queue is full. If there is none, one that has not taken the request, or else one that is
    /// still serving it.
    #[cold]
    #[inline(never)]
    fn report_unanswered(&self, request: &Request<K::Facade>) {
        let (engine, targets, full) = (self.engine, self.targets(), self.full.get());
        let waits = |cpu: &CpuId| engine.cpus[*cpu].queue.holds(request);
        let target = full.iter().next().or_else(|| targets.iter().find(waits));
        let target = target.or_else(|| targets.iter().next()).unwrap_or(0);
        engine.report_stuck(engine.kernel.cpu(), target, self.about());
    }

    /// All targets are known, and the local part is done: the request may be complete.
    #[inline]
    fn count_targets(&self) {
        if let Some(request) = self.in_progress() {
            request.sent(self.expected.get());
            self.counted.set(true);
        }
    }

    /// Queues the request at the CPUs whose queue was full, if any. Whichever has a slot first is next: if more CPUs
    /// send than a queue has slots, they must not all wait for the same one. Returns whether it was queued at the last.
    #[inline]
    fn queue_rest(&self, request: &Request<K::Facade>) -> bool {
        !self.counted.get() && self.queue_at_full(request)
    }

    #[cold]
    #[inline(never)]
    fn queue_at_full(&self, request: &Request<K::Facade>) -> bool {
        let engine = self.engine;
        let pin = engine.pinned();
        let wait = || self.wait_until_answered(engine, request);
        let mut full = CpuMask::EMPTY;
        send_or_wait(wait, || full = engine.queue_at(self, &self.full.get(), pin.cpu));
        self.full.set(full);
        if full.is_empty() {
            self.report_interrupts();
            self.count_targets();
        }
        full.is_empty()
    }
}
