//! Flushing a range of one space: dispatch, and the token that is waited for.

use crate::cpuset::CpuMask;
use crate::design::{Errata, Order, Reach, Requests, Tags, Wait};
use crate::engine::{Engine, Pinned};
use crate::facade::{Facade, Word};
use crate::fault::fault;
use crate::handler::POSTED;
#[cfg(feature = "faults")]
use crate::hooks::Local;
use crate::hooks::{CpuId, Event, Kernel, Stuck, Tag, Way};
use crate::range::Range;
use crate::request::{Ask, Outstanding, Request};
use crate::space::{Mode, Space};
use core::sync::atomic::Ordering;

/// Tickets a token keeps one by one; for targets beyond these the waiter accepts a slightly later ticket instead.
const EXACT_TICKETS: usize = 16;

/// Proof that a flush is complete: C1 holds for everything written before it was dispatched. Frames and table pages may
/// go back to their allocator (C2, C3 as far as hardware walks go).
#[derive(Debug)]
#[must_use = "frames may only be freed with this proof"]
pub struct Flushed(pub(crate) ());

/// A flush that was dispatched and must be waited for before anything is freed.
///
/// Nothing remote refers to it: forgetting it leaks nothing and frees nothing, it only loses the proof. It may be waited
/// for later, on another CPU, with preemption on.
#[must_use = "the flush is not complete until it is waited for"]
pub struct Token<'e, 'k, K: Kernel<W>, const W: usize> {
    engine: &'e Engine<'k, K, W>,
    pub(crate) targets: CpuMask<W>,
    pub(crate) tickets: [u64; EXACT_TICKETS],
    space: u64,
    generation: u64,
    /// Address of the space whose walkers the request forgets; 0 for none. The requester borrows that space until it has
    /// waited, inside `request`.
    pub(crate) walked: u64,
    /// Walkers among the targets, if every walk that could hold a link is.
    pub(crate) walkers_told: Option<usize>,
    /// What secondary TLBs were told and must have carried out; 0 for nothing.
    pub(crate) secondary: u64,
    /// Of a timed request: how many CPUs it interrupted, and the nanoseconds spent until they were.
    timed: Option<(u64, u64)>,
}

/// A broadcast that was issued and not yet synchronised; migration stays pinned until it is.
struct Issued<'e, K: Kernel<W>, const W: usize> {
    instructions: u32,
    _pin: Pinned<'e, K, W>,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Flushes `range` of `space` everywhere and waits. The entry writes must come before the call.
    ///
    /// Calling context: preemption may be on, interrupts should be on (with interrupts off it still makes progress, by
    /// serving its own requests while it waits). Not from the shootdown interrupt, NMI or machine-check handlers. No lock
    /// that a handler or `switch_to` takes may be held. No allocation, no lock.
    ///
    /// Cost when no other CPU uses the space: one locked add, the log entry if the design has a log, the invalidations.
    #[inline]
    pub fn flush(&self, space: &Space<K::Facade, W>, range: Range) -> Flushed {
        self.dispatch(space, range).wait()
    }

    /// Begins a flush; see [`flush`](Self::flush). Pinned for the local part, choosing targets and sending; the waiting is
    /// the token's.
    ///
    /// Designs with stack requests finish inside (their descriptors cannot outlive this call): pinned to the end when the
    /// design spins, with preemption on when its waits are preemptible. The token is then complete.
    ///
    /// # Panics
    /// In debug builds, when somebody must be waited for and this is called from the shootdown handler.
    pub fn dispatch<'e>(&'e self, space: &Space<K::Facade, W>, range: Range) -> Token<'e, 'k, K, W> {
        self.dispatch_or_hold(space, range, false, None)
    }

    /// [`dispatch`](Self::dispatch), where it goes by interrupts telling lockless walkers too: then the token says so.
    pub(crate) fn dispatch_telling<'e>(&'e self, space: &Space<K::Facade, W>, range: Range) -> Token<'e, 'k, K, W> {
        self.dispatch_or_hold(space, range, true, None)
    }

    /// Flushes as [`flush`](Self::flush), and calls `meanwhile` between asking and waiting: while the targets answer, or
    /// while a broadcast is under way. What is done there needs no proof that the flush is complete: letting go of the lock
    /// that protects the page tables, for one, where whoever takes it next minds that a flush is pending
    /// ([`settle`](Self::settle), or a count of unmaps under way). With [`Order::Serial`] everything is over before
    /// `meanwhile` begins.
    ///
    /// `meanwhile` may be called pinned and must not sleep, switch spaces or flush: on the processors concerned the
    /// synchronising instruction waits for broadcasts of its own CPU only.
    pub fn flush_while<T>(
        &self,
        space: &Space<K::Facade, W>,
        range: Range,
        meanwhile: impl FnOnce() -> T,
    ) -> (Flushed, T) {
        if self.design.order == Order::Serial {
            let done = self.flush(space, range);
            return (done, meanwhile());
        }
        let mut issued = None;
        let token = self.dispatch_or_hold(space, range, false, Some(&mut issued));
        let result = meanwhile();
        if let Some(issued) = issued {
            self.synchronise(issued);
        }
        (token.wait(), result)
    }

    /// Waits for a broadcast that was issued, and ends the pin.
    fn synchronise(&self, issued: Issued<'_, K, W>) {
        self.kernel.broadcast_sync();
        self.kernel.event(Event::Broadcast {
            instructions: issued.instructions,
        });
    }

    /// [`dispatch`](Self::dispatch). With `walkers`, and where it goes by interrupts, one request tells lockless walkers too.
    /// Where a broadcast is all it takes and `held` is given, that is left to be synchronised.
    fn dispatch_or_hold<'e>(
        &'e self,
        space: &Space<K::Facade, W>,
        range: Range,
        walkers: bool,
        held: Option<&mut Option<Issued<'e, K, W>>>,
    ) -> Token<'e, 'k, K, W> {
        if self.design.reach == Reach::None {
            return self.token(space, 0);
        }
        let pin = self.pinned();
        let me = pin.cpu;
        if fault!(self.kernel, SkipWhenNotCurrent) && self.cpus[me].state().id() != space.id {
            return self.token(space, 0);
        }
        #[cfg(feature = "faults")]
        if self.kernel.fault(crate::fault::Fault::SendBeforePublish) {
            let mut token = self.token(space, 0);
            self.post(&mut token, self.targets(space, range.tables(), me));
            let generation = space.generation.0.fetch_add_full(1) + 1;
            self.flush_here(me, space, generation, &range);
            return token;
        }
        #[cfg(feature = "faults")]
        let too_early = (walkers && self.kernel.fault(crate::fault::Fault::WalkersReadBeforeBarrier))
            .then(|| self.walkers_of(space, me));
        // C1: entry writes, then this full barrier, then the reads of mode, set and states below. Pairs with the join of
        // `switch_to` (step 2), the barrier of `leave_lazy_here`, the compare-exchange of `promote`, the take of `serve`.
        let generation = if fault!(self.kernel, NoGenerationUnderTag) && matches!(space.mode(), Mode::System(_)) {
            space.generation.0.load(Ordering::Relaxed)
        } else {
            space.generation.0.fetch_add_full(1) + 1
        };
        self.publish_tables();
        let mut token = self.token(space, generation);
        let begun = self.is_sampled(generation).then(|| self.kernel.now_ns());
        let word = space.mode.0.load(Ordering::Acquire);
        token.secondary = self.tell_secondary(space, &range);
        match Mode::unpack(word) {
            Mode::PerCpu => {
                // Only slots read the log. A generation that went out as a broadcast has no entry: a slot that is behind
                // across it flushes everything (C6).
                if self.design.requests == Requests::Log {
                    space.log.append(generation, &range);
                }
                let ask = Ask::Space {
                    id: space.id,
                    generation,
                    range,
                };
                #[cfg(feature = "faults")]
                if self.kernel.fault(crate::fault::Fault::UnpinnedBeforeSending) {
                    self.flush_here(me, space, generation, &range);
                    drop(pin);
                    let pin = self.pinned();
                    let targets = self.targets(space, range.tables(), pin.cpu);
                    self.interrupt(&mut token, targets, ask, pin, |_| {});
                    return token;
                }
                let mut targets = self.targets(space, range.tables(), me);
                let count = targets.len();
                // A broadcast proves nothing about walks, and an early synchronisation nothing at all.
                let by_interrupts = walkers || self.design.errata.interrupt_too;
                if !by_interrupts && self.rather_broadcast(count, &range, generation) {
                    self.kernel.event(Event::Chose {
                        way: Way::Broadcast,
                        targets: count as u32,
                    });
                    self.broadcast_any_tag(&range);
                    drop(pin);
                    if let Some(begun) = begun {
                        self.learn(Way::Broadcast, 0, self.since(begun));
                    }
                    self.consider(space, me);
                    return token;
                }
                if walkers {
                    #[cfg(not(feature = "faults"))]
                    let walking = self.walkers_of(space, me);
                    #[cfg(feature = "faults")]
                    let walking = too_early.unwrap_or_else(|| self.walkers_of(space, me));
                    token.tell(space, &walking, &mut targets);
                }
                #[cfg(feature = "faults")]
                if self.kernel.fault(crate::fault::Fault::UnpinnedBeforeLocalFlush) {
                    drop(pin);
                    let pin = self.pinned();
                    let here = pin.cpu;
                    self.interrupt(&mut token, targets, ask, pin, |engine| {
                        engine.flush_here(here, space, generation, &range)
                    });
                    return token;
                }
                self.interrupt(&mut token, targets, ask, pin, |engine| {
                    engine.flush_here(me, space, generation, &range)
                });
                if let Some(begun) = begun {
                    token.timed = Some((count as u64, self.since(begun)));
                }
                self.consider(space, me);
            }
            Mode::System(tag) => {
                // A request that may end in demotion has more to do, pinned, than wait for its broadcast.
                if let Some(held) = held
                    && begun.is_none()
                    && self.design.errata == Errata::NONE
                {
                    *held = Some(Issued {
                        instructions: self.issue(tag, &range),
                        _pin: pin,
                    });
                    return token;
                }
                self.broadcast_and_sync(tag, &range);
                if self.design.errata.interrupt_too {
                    self.interrupt_besides(&mut token, space, pin);
                } else if let Some(begun) = begun {
                    self.learn(Way::Broadcast, 0, self.since(begun));
                    self.consider_demotion(&mut token, space, word, tag, pin);
                }
            }
            Mode::Transition(tag) => self.flush_in_transition(&mut token, space, word, tag, &range, pin),
            Mode::Demoting(tag) => {
                self.log_if_kept(space, generation, &range);
                self.flush_in_demotion(&mut token, space, word, tag, &range, pin);
            }
            Mode::Rolled { tag, .. } => self.flush_rolled(&mut token, space, tag, &range, walkers, pin),
        }
        token
    }

    pub(crate) fn token<'e>(&'e self, space: &Space<K::Facade, W>, generation: u64) -> Token<'e, 'k, K, W> {
        Token {
            engine: self,
            targets: CpuMask::EMPTY,
            tickets: [0; EXACT_TICKETS],
            space: space.id,
            generation,
            walked: 0,
            walkers_told: None,
            secondary: 0,
            timed: None,
        }
    }

    /// A token for requests that concern no single space.
    pub(crate) fn spaceless_token<'e>(&'e self) -> Token<'e, 'k, K, W> {
        Token {
            engine: self,
            targets: CpuMask::EMPTY,
            tickets: [0; EXACT_TICKETS],
            space: 0,
            generation: 0,
            walked: 0,
            walkers_told: None,
            secondary: 0,
            timed: None,
        }
    }

    /// Interrupts `targets`, does the local part before or while they answer, and unpins: before the wait if waits are
    /// preemptible, after it if they spin.
    ///
    /// With a log the token is left to be waited for; a stack request is waited for here. A request that names a tag, or a
    /// space whose walkers are to be forgotten, needs a descriptor whatever the design, because a handler may dereference
    /// only the space it has loaded, and what a requester that waits holds for it.
    pub(crate) fn interrupt(
        &self,
        token: &mut Token<'_, 'k, K, W>,
        targets: CpuMask<W>,
        ask: Ask,
        pin: Pinned<'_, K, W>,
        local: impl FnOnce(&Self),
    ) {
        if targets.is_empty() {
            local(self);
            self.kernel.event(Event::LocalOnly);
            return;
        }
        self.refuse_in_handler();
        let mut local = Some(local);
        let mut run_local = |engine: &Self| {
            if let Some(local) = local.take() {
                local(engine);
            }
        };
        if self.design.order == Order::Serial {
            run_local(self);
        }
        if self.design.requests == Requests::Log
            && !matches!(ask, Ask::Tag { .. } | Ask::Synchronise)
            && token.walked == 0
        {
            self.post(token, targets);
            run_local(self);
            drop(pin);
        } else {
            self.request(token, &targets, ask, pin, || run_local(self));
        }
    }

    /// Posts to every target and interrupts those that nobody has posted to since they last looked.
    pub(crate) fn post(&self, token: &mut Token<'_, 'k, K, W>, targets: CpuMask<W>) {
        let mut fresh = CpuMask::EMPTY;
        let (mut sent, mut count) = (0, 0);
        for cpu in targets.iter() {
            let post = &self.cpus[cpu].post.0;
            // A post that is still there will be taken after this read, and the taker's full barrier comes before its
            // reads: it will see our generation, whose increment was a full barrier before this read. So no write.
            let mut seen = post.load(Ordering::Relaxed);
            if seen & POSTED == 0 {
                seen = post.fetch_or_full(POSTED);
                if seen & POSTED == 0 {
                    fresh.insert(cpu);
                    sent += 1;
                }
            }
            if let Some(ticket) = token.tickets.get_mut(count as usize) {
                *ticket = seen >> 1;
            }
            count += 1;
        }
        token.targets = targets;
        if sent > 0 {
            K::Facade::before_ipi();
            self.kernel.send_ipi(&fresh);
        }
        self.kernel.event(Event::Interrupted { sent, targets: count });
    }

    /// Queues one stack request at every target, sends, runs `meanwhile`, and waits for all of them, pinned or not.
    ///
    /// From the unpinning on nothing here may speak of `me`: the frame, and the request in it, goes where the waiter goes.
    fn request(
        &self,
        token: &Token<'_, 'k, K, W>,
        targets: &CpuMask<W>,
        ask: Ask,
        pin: Pinned<'_, K, W>,
        meanwhile: impl FnOnce(),
    ) {
        let me = pin.cpu;
        let own = Request::<K::Facade>::for_targets(targets.len());
        let request = &own;
        // Regressions 22 and 24 leave this frame while targets still refer to the request.
        #[cfg(feature = "faults")]
        let request = if fault!(self.kernel, GiveUpWaiting) || fault!(self.kernel, DepartingCpuAcknowledgesTwice) {
            self.cpus[me].spare.reopen(targets.len());
            &self.cpus[me].spare
        } else {
            request
        };
        let late_arguments = fault!(self.kernel, FlagBeforeArguments);
        if !late_arguments {
            request.write(ask, token.walked);
        }
        // From here on the frame cannot be left before every target is done with it.
        let complete = Outstanding(|| {
            let gave_up = core::cell::Cell::new(false);
            self.wait_reporting(
                me,
                token,
                // Who has not taken it; if all have, one of them is still at it.
                || {
                    let waits = |cpu: &CpuId| self.cpus[*cpu].queue.holds(request);
                    targets.iter().find(waits).or_else(|| targets.iter().next())
                },
                || {
                    gave_up.set(fault!(self.kernel, GiveUpWaiting));
                    request.is_complete() || gave_up.get()
                },
            );
        });
        let mut fresh = CpuMask::EMPTY;
        let (mut sent, mut count) = (0, 0);
        for cpu in targets.iter() {
            let target = &self.cpus[cpu];
            let mut slot = target.queue.claim();
            if slot.is_none() {
                // Whoever found a queue empty owes its CPU the interrupt that all later requesters count on. Send what is
                // owed before waiting, or two requesters could each wait for a queue that only the other would have had
                // served (C5).
                if !fresh.is_empty() {
                    K::Facade::before_ipi();
                    self.kernel.send_ipi(&core::mem::take(&mut fresh));
                }
                K::Facade::wait_until(|| {
                    slot = target.queue.claim();
                    if slot.is_none() {
                        self.serve_while_waiting();
                    }
                    slot.is_some() || (target.state().is_off() && !fault!(self.kernel, WaitForCpuThatIsOff))
                });
            }
            // Off since it was chosen, with all its slots taken until it comes online: not to be waited for (C5).
            let Some(slot) = slot else {
                request.acknowledge();
                continue;
            };
            if self.push(target, slot, request) {
                fresh.insert(cpu);
                sent += 1;
            }
            count += 1;
            // C5: a CPU that went off after the push was either seen by its own drain (it acknowledges), or is seen off
            // here, after the full barrier of the push. Pairs with `cpu_offline`.
            let off = target.state().is_off() && !fault!(self.kernel, WaitForCpuThatIsOff);
            if off && target.queue.cancel(slot, request) {
                request.acknowledge();
            }
        }
        if !fresh.is_empty() {
            K::Facade::before_ipi();
            self.kernel.send_ipi(&fresh);
        }
        if late_arguments {
            request.write(ask, token.walked);
        }
        self.kernel.event(Event::Interrupted { sent, targets: count });
        meanwhile();
        request.acknowledge(); // the requester's own
        match self.design.wait {
            Wait::Spin => drop((complete, pin)),
            Wait::Preemptible => drop((pin, complete)),
        }
    }

    fn push(&self, target: &crate::percpu::PerCpu<K::Facade>, slot: u32, request: &Request<K::Facade>) -> bool {
        #[cfg(feature = "faults")]
        if self.kernel.fault(crate::fault::Fault::FlagBeforeArguments) {
            return target.queue.push_flag_first(slot);
        }
        target.queue.push(slot, request)
    }

    /// The local part of a flush of a space on per-CPU tags: nothing if it is not loaded here (its slot is behind and
    /// catches up at the next switch-in), else partial if rule 2 allows, else whatever catching up takes.
    pub(crate) fn flush_here(&self, me: CpuId, space: &Space<K::Facade, W>, generation: u64, range: &Range) {
        let cpu = &self.cpus[me];
        #[cfg(feature = "faults")]
        if self.kernel.fault(crate::fault::Fault::StaleViewOfLoaded) {
            return self.flush_here_unmasked(cpu, space, generation, range);
        }
        self.masked(|| {
            let state = cpu.state();
            if state.id() != space.id {
                return;
            }
            if range.is_walkable(self.design.ceiling)
                && !state.is_on_system_tag()
                && self.advance_by_one(cpu, generation)
            {
                self.flush_range(Tag(cpu.own.tag.load(Ordering::Relaxed) as u16), range);
            } else if space.mode() == Mode::PerCpu && !state.is_on_system_tag() {
                self.catch_up(cpu, space);
            } else {
                self.follow_loaded(cpu);
            }
        });
    }

    /// Regression 20: reads slot and tag, then works on them although a switch may have come in between.
    #[cfg(feature = "faults")]
    fn flush_here_unmasked(
        &self,
        cpu: &crate::percpu::PerCpu<K::Facade>,
        space: &Space<K::Facade, W>,
        generation: u64,
        range: &Range,
    ) {
        if cpu.state().id() != space.id {
            return;
        }
        let slot = cpu.own.slot.load(Ordering::Relaxed) as usize;
        for address in range.addresses() {
            // INVLPG works on whatever tag is loaded by now.
            let tag = Tag(cpu.own.tag.load(Ordering::Acquire) as u16);
            self.kernel.invalidate(Local::Page {
                address,
                stride: range.stride(),
                tag,
                leaf_only: !range.tables(),
            });
        }
        cpu.own.slots[slot].generation.store(generation, Ordering::Relaxed);
    }

    /// The local part under a roll-over tag, whatever is loaded.
    pub(crate) fn flush_tag_here(&self, tag: Tag, range: &Range) {
        self.masked(|| {
            if range.is_walkable(self.design.ceiling) {
                self.flush_range(tag, range);
            } else {
                self.flush_tag(tag);
            }
        });
    }

    /// Waits for `done`, serving own requests, reporting a CPU that does not answer (C7).
    pub(crate) fn wait_reporting(
        &self,
        waiter: CpuId,
        token: &Token<'_, 'k, K, W>,
        target: impl Fn() -> Option<CpuId>,
        mut done: impl FnMut() -> bool,
    ) {
        let _ = self.waits_inside_walk(&self.cpus[waiter]);
        let bound = self.design.stuck_ns;
        let mut deadline = None;
        let mut polls = 0_u32;
        K::Facade::wait_until(|| {
            if done() {
                return true;
            }
            self.serve_while_waiting();
            polls = polls.wrapping_add(1);
            if bound != 0 && polls % 256 == 1 {
                let now = self.kernel.now_ns();
                match deadline {
                    None => deadline = Some(now.saturating_add(bound)),
                    Some(at) if now >= at => {
                        deadline = Some(u64::MAX);
                        self.kernel.stuck(Stuck {
                            waiter,
                            target: target().unwrap_or(waiter),
                            space: token.space,
                            generation: token.generation,
                        });
                    }
                    Some(_) => {}
                }
            }
            done()
        });
    }

    /// Whether this design gives out system-wide tags by promotion.
    pub(crate) fn promotes_at(&self) -> Option<u32> {
        match self.design.tags {
            Tags::Hybrid { promote_at } if self.broadcasts() => Some(match self.design.reach {
                Reach::Adaptive => promote_at.max(self.active_for_promotion()),
                _ => promote_at,
            }),
            _ => None,
        }
    }
}

impl<K: Kernel<W>, const W: usize> Token<'_, '_, K, W> {
    /// Whether nobody needs to be waited for, secondary TLBs included.
    pub fn is_complete(&self) -> bool {
        self.targets.is_empty() && self.secondary == 0
    }

    /// Waits until every target has answered or is off. With preemptible waits preemption stays as the caller has it, and
    /// the waiter may be preempted and migrate; a design that spins pins it meanwhile. Must not be called while holding a
    /// walk guard, from the shootdown handler, or from NMI context. Serves requests aimed at the CPU it waits on (C5).
    ///
    /// # Panics
    /// In debug builds, when somebody must be waited for and this is called from the shootdown handler.
    pub fn wait(self) -> Flushed {
        if self.targets.is_empty() {
            self.engine.await_secondary(self.secondary);
            return Flushed(());
        }
        let begun = self.timed.map(|_| self.engine.kernel.now_ns());
        let _pin = (self.engine.design.wait == Wait::Spin).then(|| self.engine.pinned());
        for (index, cpu) in self.targets.iter().enumerate() {
            let target = &self.engine.cpus[cpu];
            let needed = match self.tickets.get(index) {
                Some(&ticket) => ticket,
                // Not kept: what is posted by now includes our post.
                None => {
                    let post = target.post.0.load(Ordering::Relaxed);
                    if post & POSTED != 0 {
                        post >> 1
                    } else {
                        (post >> 1).wrapping_sub(1)
                    }
                }
            };
            // Acquire: pairs with the release in `serve`; what the target flushed is flushed. A CPU seen off flushes
            // everything before it uses anything again (C5).
            let done = || {
                target.served.0.load(Ordering::Acquire).wrapping_sub(needed + 1) as i64 >= 0
                    || target.state().is_off()
                    || fault!(self.engine.kernel, GiveUpWaiting)
            };
            if !done() {
                // Only for the report: a waiter that migrates is reported where it began.
                let waiter = self.engine.kernel.cpu();
                self.engine.wait_reporting(waiter, &self, || Some(cpu), done);
            }
        }
        if let (Some((targets, sending)), Some(begun)) = (self.timed, begun) {
            let took = sending + self.engine.since(begun);
            self.engine.learn(Way::Interrupts, targets, took);
        }
        self.engine.await_secondary(self.secondary);
        Flushed(())
    }
}
