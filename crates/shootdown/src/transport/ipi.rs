//! Reaching other CPUs by interrupts: a ticket posted at each for the log, or a descriptor queued at each.

use crate::cpu::state::PerCpu;
use crate::cpuset::CpuMask;
use crate::design::{Order, Requests};
use crate::engine::{Engine, Pinned};
use crate::facade::{Facade, Word};
use crate::flush::targets::AHEAD;
use crate::flush::token::Token;
use crate::hooks::{CpuId, Event, Kernel};
use crate::transport::handler::POSTED;
use crate::transport::request::{Asked, Outstanding, Request};
use core::cell::Cell;
use core::sync::atomic::Ordering;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Interrupts `targets`, does the local part before or while they answer, and unpins: before the wait if waits are
    /// preemptible, after it if they spin.
    ///
    /// With a log the token is left to be waited for; a stack request is waited for here. A request that names a tag,
    /// or a space whose walkers are to be forgotten or whose set is to be left, needs a descriptor whatever the design,
    /// because a handler may dereference only the space it has loaded, and what a requester that waits holds for it.
    #[inline]
    pub(crate) fn interrupt(
        &self,
        token: &mut Token<'_, 'k, K, W>,
        targets: CpuMask<W>,
        asked: Asked,
        pin: Pinned<'_, K, W>,
        local: impl Fn(&Self),
    ) {
        // Here it is written once for both cases, so that it can be part of this function.
        let (alone, serial) = (targets.is_empty(), self.policy().order == Order::Serial);
        if alone || serial {
            local(self);
        }
        if alone {
            self.kernel.event(Event::LocalOnly);
            return;
        }
        self.refuse_in_handler();
        let meanwhile = || {
            if !serial {
                local(self);
            }
        };
        let posted = !asked.needs_descriptor() && token.walked == 0 && token.departed == 0;
        if self.policy().requests == Requests::Log && posted {
            self.post(token, targets, pin.cpu);
            meanwhile();
            drop(pin);
        } else {
            self.request(token, &targets, asked, pin, meanwhile);
        }
    }

    /// Posts to every target and interrupts those that nobody has posted to since they last looked. Once for a token.
    ///
    /// All of them when it is on top of another that is sending: an interrupt may come in between a post and its
    /// sending, and its handler may flush. What it finds posted is owed an interrupt by the one below, which cannot
    /// send while the handler waits (C5).
    pub(crate) fn post(&self, token: &mut Token<'_, 'k, K, W>, targets: CpuMask<W>, me: CpuId) {
        let mut fresh = CpuMask::EMPTY;
        let (mut sent, mut count) = (0, 0);
        let owing = self.cpus[me].own.sending.set();
        // A post is a full barrier, so their lines would come one after the other.
        let mut ahead = targets.iter();
        let mut prefetch_next = || {
            let next = ahead.next();
            next.inspect(|&cpu| K::Facade::prefetch_to_write(&self.cpus[cpu].post))
        };
        (0..AHEAD).take_while(|_| prefetch_next().is_some()).for_each(drop);
        for cpu in targets.iter() {
            prefetch_next();
            let post = &self.cpus[cpu].post;
            // A post that is still there will be taken after this read, and the taker's full barrier comes before its
            // reads: it will see our generation, whose increment was a full barrier before this read. So no write.
            let mut seen = post.load(Ordering::Relaxed);
            if seen & POSTED == 0 {
                seen = post.fetch_or_full(POSTED);
            }
            if seen & POSTED == 0 || owing.nested {
                fresh.insert(cpu);
                sent += 1;
            }
            token.expect(seen >> 1);
            count += 1;
        }
        token.targets = targets;
        if sent > 0 {
            K::Facade::before_ipi();
            self.kernel.send_ipi(&fresh);
        }
        drop(owing);
        self.kernel.event(Event::Interrupted { sent, targets: count });
    }

    /// Queues one stack request at every target, sends, runs `meanwhile`, and waits for all of them, pinned or not.
    ///
    /// From the unpinning on nothing here may speak of `me`: the frame, and the request in it, goes where the waiter
    /// goes.
    #[inline]
    fn request(
        &self,
        token: &Token<'_, 'k, K, W>,
        targets: &CpuMask<W>,
        asked: Asked,
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
        let count = Cell::new(0);
        // From here on the frame cannot be left before every target is done with it, not even when a hook panics.
        let complete = Outstanding(|| {
            request.sent(count.get());
            self.wait_reporting(
                me,
                token.about(),
                || self.has_not_answered(request, targets),
                || request.is_complete(),
            );
            if let Some(own) = own {
                own.close();
            }
        });
        let owing = self.cpus[me].own.sending.set();
        let mut fresh = CpuMask::EMPTY;
        let mut sent = 0;
        let mut queued =
            |cpu: CpuId, target: &PerCpu<K::Facade>, (slot, first): (u32, bool), fresh: &mut CpuMask<W>| {
                if first || owing.nested {
                    fresh.insert(cpu);
                    sent += 1;
                }
                count.set(count.get() + 1);
                // C5: a CPU that went off after that was either seen by its own drain (it acknowledges), or is seen off
                // here, after the full barrier of `put`. Pairs with `cpu_offline`.
                if target.state().is_off() && target.queue.cancel(slot, request) {
                    request.acknowledge();
                }
            };
        // Where more CPUs ask than a queue has slots, they must not all wait for the first target: full queues are
        // passed over, and come back to in an order that differs by requester.
        let mut full = CpuMask::<W>::EMPTY;
        for cpu in targets.iter() {
            let target = &self.cpus[cpu];
            match self.put(target, me, request) {
                Some(place) => queued(cpu, target, place, &mut fresh),
                None => full.insert(cpu),
            }
        }
        if !full.is_empty() {
            for cpu in full.iter_from(me) {
                let target = &self.cpus[cpu];
                let mut place = self.put(target, me, request);
                if place.is_none() {
                    // Whoever found a queue empty owes its CPU the interrupt that all later requesters count on. Send
                    // what is owed before waiting, or two requesters could each wait for a queue that only the other
                    // would have had served (C5).
                    if !fresh.is_empty() {
                        K::Facade::before_ipi();
                        self.kernel.send_ipi(&core::mem::take(&mut fresh));
                    }
                    self.wait_reporting(
                        me,
                        token.about(),
                        || Some(cpu),
                        || {
                            place = self.put(target, me, request);
                            place.is_some() || target.state().is_off()
                        },
                    );
                }
                // Off since it was chosen, with all its slots taken until it comes online: not to be waited for (C5).
                if let Some(place) = place {
                    queued(cpu, target, place, &mut fresh);
                }
            }
        }
        if !fresh.is_empty() {
            K::Facade::before_ipi();
            self.kernel.send_ipi(&fresh);
        }
        drop(owing);
        self.kernel.event(Event::Interrupted {
            sent,
            targets: count.get(),
        });
        meanwhile();
        match self.policy().wait.is_preemptible() {
            false => drop((complete, pin)),
            true => drop((pin, complete)),
        }
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
        if self.policy().requests != Requests::PerCpu {
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

#[cfg(test)]
mod tests;
