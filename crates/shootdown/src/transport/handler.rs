//! The shootdown interrupt, and self-service: carries out the requests of other CPUs to this one.
//!
//! Handlers take no lock, allocate nothing and wait for no CPU (C5).

use crate::cpu::state::{POSTED, PerCpu, Slot};
use crate::design::{Ack, Requests};
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::hooks::{Answer, Event, Kernel, Tag};
use crate::range::Range;
use crate::space::Space;
use crate::transport::request::{DecodedRequest, Request};
use core::sync::atomic::Ordering;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Handler of the shootdown interrupt. Call it once per interrupt; a spurious call is harmless.
    ///
    /// Acknowledge the interrupt at its controller first (Arm: read the IAR; RISC-V: clear SSIP). An interrupt that is
    /// raised while this runs must be delivered again. The end of interrupt may be signalled before or after.
    ///
    /// Walks run with interrupts off, so a running handler proves that no walk is in progress on this CPU. A caller
    /// that polls without an interrupt must not hold a walk guard, nor be in the middle of another engine call.
    ///
    /// # Safety
    /// Interrupts are off, and the caller stays on this CPU until it returns: it reads the space that is loaded here,
    /// which a switch by another thread would unload.
    pub unsafe fn on_ipi(&self) {
        // Pairs with `before_ipi`: the loads below see what was posted or queued before the interrupt was raised (C5).
        K::Facade::after_ipi();
        let cpu = &self.cpus[self.kernel.cpu()];
        // It has taken an interrupt.
        cpu.own.mask_seen.note(false);
        self.serve_on_entry(cpu);
        self.quiescent_here(cpu);
        self.flush_deferred_here(cpu);
    }

    /// Serves requests of other CPUs to this one, without an interrupt. Returns whether there were any.
    ///
    /// Call it in every loop that waits with interrupts off for something that a CPU may hold while it flushes.
    /// Examples are a spin lock, a rendezvous, and a panic's wait for the other CPUs. Otherwise that CPU and this one
    /// wait for each other (C5). It masks interrupts itself, and may be called with interrupts on.
    ///
    /// Does nothing inside a [walk](Self::walk), where an answer would say that the walk has ended (C3). Do not take a
    /// lock there that is held over a flush. Does nothing on an offline CPU, so spin locks may poll before their CPU is
    /// online. Not for NMI context. A waiter that may migrate polls the CPU that it runs
    /// on at that time.
    ///
    /// Cost without requests: one load, two where the design posts requests; no store.
    #[inline]
    pub fn poll(&self) -> bool {
        self.note_mask(self.interrupts_were_off());
        self.has_pending_requests(&self.cpus[self.kernel.cpu()]) && self.serve_polled()
    }

    #[cold]
    fn serve_polled(&self) -> bool {
        self.masked(|| {
            let cpu = &self.cpus[self.kernel.cpu()];
            // Off: its TLB may be stale, also for the requester's stack, and no CPU waits for it.
            let serves = !cpu.walking.inside() && !cpu.own_state().is_off();
            if serves {
                self.serve(cpu);
            }
            serves
        })
    }

    /// Answers the requests that were queued or posted to this CPU before it went offline. Interrupts off.
    ///
    /// The CPU has left the set of CPUs that kernel flushes wait for. A requester's stack may be in a mapping that such
    /// a flush has removed and that is in use again. So everything is flushed before the first descriptor is read,
    /// after the ready bits were taken: a requester whose bit was taken keeps its frame until it is answered (C5).
    pub(crate) fn drain(&self, cpu: &PerCpu<K::Facade>) {
        if cpu.queue.has_ready() {
            let ready = cpu.queue.take();
            self.flush_everything_here();
            self.serve_queue(cpu, core::ptr::null(), ready);
        }
        // The queue is not scanned again: a requester that adds to it from now on sees this CPU offline, and takes the
        // request back.
        if let Some(take) = self.take_posts(cpu) {
            self.serve_posts(cpu, take, false);
        }
    }

    /// Serves all requests to this CPU. Interrupts off, on that CPU. Small frames: a waiter serves deep in its stack
    /// (`cargo xtask stack`).
    pub(crate) fn serve(&self, cpu: &PerCpu<K::Facade>) {
        #[cfg(debug_assertions)]
        let _serving = cpu.own.serving.set();
        if cpu.queue.has_ready() {
            let ready = cpu.queue.take();
            self.serve_queue(cpu, core::ptr::null(), ready);
        }
        if let Some(take) = self.take_posts(cpu) {
            self.serve_posts(cpu, take, false);
        }
    }

    /// The same in the interrupt handler, which may answer early (`transport/early_ack.rs`). Tries first what most
    /// requests are (`transport/leaf.rs`).
    // Always, like what it tries: a call would save more registers than that uses (`linux compare`).
    #[inline(always)]
    fn serve_on_entry(&self, cpu: &PerCpu<K::Facade>) {
        #[cfg(debug_assertions)]
        let _serving = cpu.own.serving.set();
        if cpu.queue.has_ready() {
            let mut ready = cpu.queue.take();
            // Only the first: a loop would keep its constants in registers, which it would have to save.
            let first = cpu.queue.next(&mut ready);
            let rest = first.filter(|&request| !self.answer_leaf(cpu, request));
            if rest.is_some() || ready != 0 {
                let rest = rest.unwrap_or(core::ptr::null());
                match self.policy().ack {
                    Ack::Early => self.serve_queue_early(cpu, rest, ready),
                    Ack::Late => self.serve_queue(cpu, rest, ready),
                }
            }
        }
        let Some(take) = self.take_posts(cpu) else {
            return;
        };
        let early = self.may_answer_posts_early(cpu);
        if early || !self.catch_up_leaf(cpu) {
            return self.serve_posts(cpu, take, early);
        }
        self.served(cpu, take);
    }

    /// Carries out `first`, unless it is null, then those of `ready`. Acknowledges each after it. After that a request
    /// may be gone.
    #[inline(never)]
    fn serve_queue(&self, cpu: &PerCpu<K::Facade>, first: *const Request<K::Facade>, ready: u64) {
        Self::serve_each(cpu, first, ready, |request| self.serve_one(cpu, request));
    }

    /// The same in the interrupt handler, where it may acknowledge before it carries a request out.
    #[inline(never)]
    fn serve_queue_early(&self, cpu: &PerCpu<K::Facade>, first: *const Request<K::Facade>, ready: u64) {
        Self::serve_each(cpu, first, ready, |request| self.serve_one_early(cpu, request));
    }

    /// Calls `serve`, which acknowledges it, for `first`, unless that is null, then for each of `ready`.
    #[inline(always)]
    fn serve_each(
        cpu: &PerCpu<K::Facade>,
        first: *const Request<K::Facade>,
        ready: u64,
        serve: impl Fn(&Request<K::Facade>),
    ) {
        let (mut request, mut ready) = (first, ready);
        loop {
            if !request.is_null() {
                // SAFETY: a request that was ready when taken stays on its requester's stack until it is acknowledged,
                // which is the last thing that is done with it.
                serve(unsafe { &*request });
            }
            if ready == 0 {
                return;
            }
            (request, ready) = cpu.queue.next_apart(ready);
        }
    }

    #[inline(always)]
    fn serve_one_early(&self, cpu: &PerCpu<K::Facade>, request: &Request<K::Facade>) {
        let (decoded, walked, _) = request.decode();
        if self.may_answer_early(decoded, walked) {
            request.acknowledge();
            // The space whose set it would leave may be gone: it stays in.
            self.execute_decoded(cpu, decoded, 0);
        } else {
            self.serve_one(cpu, request);
        }
    }

    #[inline(always)]
    fn serve_one(&self, cpu: &PerCpu<K::Facade>, request: &Request<K::Facade>) {
        self.execute(cpu, request);
        if K::POLICY.is_none() || self.registers_walkers() {
            self.forget_walks_for(cpu, request);
        }
        request.acknowledge();
    }

    /// Removes this CPU's registration as a walker, if that is asked.
    // Not inlined: a loop around it keeps less at hand.
    #[inline(never)]
    fn forget_walks_for(&self, cpu: &PerCpu<K::Facade>, request: &Request<K::Facade>) {
        if self.registers_walkers()
            && let Some((walked, keep_loaded)) = request.walks_to_forget()
        {
            self.forget_walks(cpu, walked, keep_loaded);
        }
    }

    /// Takes the posts to this CPU. Returns the number of the take, if there were any.
    #[inline]
    fn take_posts(&self, cpu: &PerCpu<K::Facade>) -> Option<u64> {
        if self.policy().requests != Requests::Log || cpu.post.load(Ordering::Relaxed) & POSTED == 0 {
            return None;
        }
        // The carry clears POSTED and counts one take. Full barrier. Pairs with `post`: a CPU that posts after this
        // sends a new interrupt; what was published before an earlier post is seen by the reads that follow.
        Some(cpu.post.fetch_add_full(POSTED) >> 1)
    }

    /// Carries out the posts of `take` and answers them, or the other way round. Dereferences only the loaded space.
    #[inline(never)]
    fn serve_posts(&self, cpu: &PerCpu<K::Facade>, take: u64, early: bool) {
        if early {
            self.served(cpu, take);
        }
        self.catch_up_and_sync(cpu);
        if !early {
            self.served(cpu, take);
        }
    }

    /// Answers the posts of `take`. Release: ordered after everything that this CPU did under the old translations and,
    /// unless it is early, after the invalidations, each complete on return. Pairs with the acquire in `wait`.
    #[inline]
    fn served(&self, cpu: &PerCpu<K::Facade>, take: u64) {
        cpu.served.0.store(take + 1, Ordering::Release);
    }

    /// Refuses, in debug builds, to wait inside the handler. Other CPUs wait for the requests that it has taken and not
    /// answered yet, and two such CPUs would wait for each other forever (C5). Pinned or masked. Costs nothing in a
    /// release build.
    #[inline]
    pub(crate) fn refuse_in_handler(&self) {
        #[cfg(debug_assertions)]
        {
            let cpu = self.kernel.cpu();
            let serving = self.cpus[cpu].own.serving.is_set();
            assert!(!serving, "CPU {cpu} waits for others from within the shootdown handler");
        }
    }

    /// Whether a waiting CPU serves requests itself. It always does, unless the design leaves that to the interrupt and
    /// the interrupt can arrive. The answer does not change during a wait.
    #[inline]
    pub(crate) fn serves_while_waiting(&self) -> bool {
        self.policy().wait.serves() || self.kernel.interrupts_are_off()
    }

    /// Serves requests to the CPU that this runs on, from within a wait, with interrupts on or off. Returns whether
    /// there were any. It checks before it masks: a waiter that migrates in between has checked its previous CPU, and
    /// checks again at its next poll.
    #[inline]
    pub(crate) fn serve_own(&self) -> bool {
        let pending = self.has_pending_requests(&self.cpus[self.kernel.cpu()]);
        if pending {
            self.serve_pending_masked();
        }
        pending
    }

    /// Whether there is anything to serve on `cpu`. Relaxed: the next check finds a request that arrives now.
    #[inline]
    fn has_pending_requests(&self, cpu: &PerCpu<K::Facade>) -> bool {
        cpu.queue.has_ready()
            || self.policy().requests == Requests::Log && cpu.post.load(Ordering::Relaxed) & POSTED != 0
    }

    /// The same, without a frame of its own.
    #[inline(always)]
    pub(crate) fn serve_own_inlined(&self) -> bool {
        let pending = self.has_pending_requests(&self.cpus[self.kernel.cpu()]);
        if pending {
            self.serve_pending();
        }
        pending
    }

    #[inline(never)]
    fn serve_pending_masked(&self) {
        self.serve_pending();
    }

    #[inline(always)]
    fn serve_pending(&self) {
        self.masked(|| {
            self.refuse_in_handler();
            let cpu = &self.cpus[self.kernel.cpu()];
            // An answer in the middle of a walk would say that it has ended (C3).
            if !self.waits_inside_walk(cpu) {
                self.serve(cpu);
            }
        });
    }

    /// Catches up, and synchronises this CPU if that was requested. The interrupt would do the latter, but a CPU that
    /// serves while it waits takes no interrupt.
    fn catch_up_and_sync(&self, cpu: &PerCpu<K::Facade>) {
        let answer = self.sync_loaded_space(cpu);
        self.kernel.event(Event::Answered(answer));
        if self.machine().errata.interrupt_too {
            self.kernel.local_sync();
        }
    }

    /// Carries out `request`; the caller acknowledges it.
    // Not inlined: it ends in tail calls, so that only the small frame of `serve_queue` is below them.
    #[inline(never)]
    fn execute(&self, cpu: &PerCpu<K::Facade>, request: &Request<K::Facade>) {
        let (decoded, _, departed) = request.decode();
        self.execute_decoded(cpu, decoded, departed);
    }

    /// `departed`: address of the space whose set this CPU leaves if it has left the space, or 0.
    #[inline(always)]
    fn execute_decoded(&self, cpu: &PerCpu<K::Facade>, decoded: DecodedRequest, departed: u64) {
        match decoded {
            DecodedRequest::EndWalks => {}
            DecodedRequest::CatchUp => self.catch_up_and_sync(cpu),
            DecodedRequest::Synchronise => self.kernel.local_sync(),
            DecodedRequest::Kernel { range } => self.flush_kernel_range(cpu, range),
            // No request has a tag where spaces have none; so the compiler leaves this out.
            DecodedRequest::Tag { .. } if !self.policy().tags.has_system_tags() => {}
            DecodedRequest::Tag { tag, range } => {
                self.flush_under(tag, range);
                self.kernel.event(Event::Answered(Answer::Flushed));
            }
            DecodedRequest::Space { id, generation, range } => {
                let state = cpu.state();
                // Not loaded any more: the slot is behind and catches up at the next switch-in.
                let answer = if state.id() != id {
                    self.leave_departed(departed);
                    Answer::Elsewhere
                } else if state.is_lazy() {
                    self.sync_loaded_space(cpu)
                } else {
                    // SAFETY: interrupts are off; see `loaded`.
                    let space = unsafe { self.loaded(cpu) };
                    let answer = space.and_then(|space| self.flush_next(cpu, space, generation, &range));
                    answer.unwrap_or_else(|| self.sync_loaded_space(cpu))
                };
                self.kernel.event(Event::Answered(answer));
            }
        }
    }

    /// Leaves the set of the space at that address (0 for none), which is not loaded here. The requester keeps it
    /// alive. Later requesters may miss this CPU: it joins, with a full barrier, before it loads the space again (rule
    /// 3).
    pub(crate) fn leave_departed(&self, departed: u64) {
        if departed != 0 {
            // SAFETY: the address of a reference that the requester holds until this request is acknowledged.
            let space: &Space<K::Facade, W> = unsafe { &*core::ptr::with_exposed_provenance(departed as usize) };
            if !self.holds_tag_in_set(self.mode(space)) {
                space.cpus.leave(self.kernel.cpu());
            }
        }
    }

    /// Rule 2 for `space`, which is loaded on this CPU. Nothing is left to do if the slot has seen `generation`. That
    /// is usual when several requests were taken together, and then the line that all requesters write is not even
    /// read. Otherwise returns `None` and does nothing, unless only `range` is missing. Interrupts off.
    // Always inlined: as a separate function it would first save half the registers.
    #[inline(always)]
    pub(crate) fn flush_next(
        &self,
        cpu: &PerCpu<K::Facade>,
        space: &Space<K::Facade, W>,
        generation: u64,
        range: &Range,
    ) -> Option<Answer> {
        let (slot, tag) = match self.next_in_slot(cpu, space, generation) {
            Next::Seen => return Some(Answer::Current),
            Next::Further => return None,
            Next::This(slot, tag) => (slot, tag),
        };
        // One page first: that is the test by which it is flushed.
        let ceiling = self.policy().ceiling;
        let walkable = range.is_one_leaf() && ceiling > 0 || range.is_walkable(ceiling);
        if !walkable {
            return None;
        }
        Some(self.flush_range_of(slot, tag, generation, range))
    }

    /// Whether the loaded slot of this CPU, which runs `space`, is behind by `generation` alone, and `generation` is
    /// still the newest (relaxed: only so that later requests are served with it). Interrupts off.
    #[inline(always)]
    pub(crate) fn next_in_slot<'c>(
        &self,
        cpu: &'c PerCpu<K::Facade>,
        space: &Space<K::Facade, W>,
        generation: u64,
    ) -> Next<'c, K::Facade> {
        // If there is a tag, or one is being given or taken, the slot is left or about to be left, regardless of its
        // generation.
        if !self.is_per_cpu(self.mode_word(space, Ordering::Acquire)) {
            return Next::Further;
        }
        let (index, slot) = cpu.own.loaded_slot();
        let seen = slot.generation.load(Ordering::Relaxed);
        if seen + 1 != generation {
            return if seen >= generation { Next::Seen } else { Next::Further };
        }
        if space.log.generation.load(Ordering::Relaxed) != generation {
            return Next::Further;
        }
        Next::This(slot, self.slot_tag(index))
    }
}

/// What the loaded slot of a CPU has not seen of a space, up to a request.
pub(crate) enum Next<'c, F: Facade> {
    /// Nothing.
    Seen,
    /// This request alone.
    This(&'c Slot<F>, Tag),
    /// More, or the space is on another tag.
    Further,
}

#[cfg(test)]
mod tests;
