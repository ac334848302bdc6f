//! The shootdown interrupt, and self-service: doing what others have asked of this CPU.
//!
//! Handlers take no lock, allocate nothing and wait for nobody (C5).

use crate::design::Requests;
use crate::engine::Engine;
use crate::facade::Word;
use crate::fault::fault;
use crate::hooks::{Answer, Event, Kernel, Tag};
use crate::percpu::PerCpu;
use crate::request::{Ask, Request};
use crate::space::Space;
use core::sync::atomic::Ordering;

/// Set in a CPU's `post` word when something was posted since the last take.
pub(crate) const POSTED: u64 = 1;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// The shootdown interrupt's handler. Call it with interrupts off, once per interrupt; a spurious call is harmless.
    ///
    /// Walks run with interrupts off, so a handler that runs proves that none is under way on this CPU.
    pub fn on_ipi(&self) {
        let cpu = &self.cpus[self.kernel.cpu()];
        self.serve(cpu);
        self.quiescent_here(cpu);
    }

    /// Serves everything asked of this CPU; interrupts off, on that CPU.
    pub(crate) fn serve(&self, cpu: &PerCpu<K::Facade>) {
        #[cfg(debug_assertions)]
        let _serving = Serving::begin(&cpu.own.serving);
        if cpu.queue.has_ready() {
            cpu.queue.take(|request| {
                // Null: taken back (or regression 14, where the ready bit comes before the pointer).
                if !request.is_null() {
                    // SAFETY: a request that was ready when taken stays on its requester's stack until it is
                    // acknowledged, which is the last thing that `answer` does with it.
                    self.answer(cpu, unsafe { &*request });
                }
            });
        }
        if self.design.requests == Requests::PerRequest || cpu.post.0.load(Ordering::Relaxed) & POSTED == 0 {
            return;
        }
        // The carry clears POSTED and counts one take. A full barrier; pairs with `post`: whoever posts after this gets a
        // new interrupt, whatever was published before an earlier post is seen by the reads below.
        let take = cpu.post.0.fetch_add_full(POSTED) >> 1;
        self.follow_and_finish(cpu);
        // Release: the invalidations, each complete on return, come before it; pairs with the acquire in `wait`.
        cpu.served.0.store(take + 1, Ordering::Release);
    }

    /// Refuses, in debug builds, to wait from within the handler: what it has taken and not answered yet, somebody waits
    /// for, and two such CPUs would wait for each other for ever (C5). Pinned or masked. Costs nothing in a release build.
    #[inline]
    pub(crate) fn refuse_in_handler(&self) {
        #[cfg(debug_assertions)]
        {
            let cpu = self.kernel.cpu();
            let serving = self.cpus[cpu].own.serving.load(Ordering::Relaxed);
            assert!(!serving, "CPU {cpu} waits for others from within the shootdown handler");
        }
    }

    /// Serves from within a wait, whether or not interrupts are on (C5: whoever waits serves).
    #[inline]
    pub(crate) fn serve_while_waiting(&self) {
        if crate::fault::fault!(self.kernel, NoSelfService) {
            return;
        }
        let saved = self.kernel.interrupts_off();
        self.refuse_in_handler();
        let cpu = &self.cpus[self.kernel.cpu()];
        // To answer in the middle of a walk would say that it has ended (C3).
        if (self.design.requests == Requests::Log || cpu.queue.has_ready()) && !self.waits_inside_walk(cpu) {
            self.serve(cpu);
        }
        self.kernel.interrupts_restore(saved);
    }

    /// Catches up, and finishes what is under way here where that is what was asked for. The interrupt would do the latter,
    /// but a CPU that serves while it waits takes none.
    fn follow_and_finish(&self, cpu: &PerCpu<K::Facade>) {
        let answer = self.follow_loaded(cpu);
        self.kernel.event(Event::Answered(answer));
        if self.design.errata.interrupt_too {
            self.kernel.local_sync();
        }
    }

    /// Does what one stack request asks, and acknowledges.
    fn answer(&self, cpu: &PerCpu<K::Facade>, request: &Request<K::Facade>) {
        let (ask, walked, departed) = request.ask();
        match ask {
            Ask::EndWalks => {}
            Ask::CatchUp => self.follow_and_finish(cpu),
            Ask::Synchronise => self.kernel.local_sync(),
            Ask::Kernel { range } => self.flush_kernel_range(cpu, &range),
            Ask::Tag { tag, range } => {
                if range.is_walkable(self.design.ceiling) {
                    self.flush_range(tag, &range);
                } else {
                    self.flush_tag(tag);
                }
                self.kernel.event(Event::Answered(Answer::Flushed));
            }
            Ask::Space { id, generation, range } => {
                let state = cpu.state();
                // Not loaded any more: the slot is behind and will catch up at the next switch-in.
                let answer = if state.id() == id {
                    // Rule 2: a partial flush is right only if this is the very next request and the newest.
                    let partial = range.is_walkable(self.design.ceiling)
                        && !state.is_lazy()
                        && !state.is_on_system_tag()
                        && self.advance_by_one(cpu, generation);
                    if partial {
                        self.flush_range(Tag(cpu.own.tag.load(Ordering::Relaxed) as u16), &range);
                        Answer::Flushed
                    } else {
                        self.follow_loaded(cpu)
                    }
                } else {
                    self.leave_departed(departed);
                    Answer::Elsewhere
                };
                if fault!(self.kernel, DepartsWithoutLooking) {
                    self.leave_departed(departed);
                }
                self.kernel.event(Event::Answered(answer));
            }
        }
        self.forget_walks(cpu, walked, ask != Ask::EndWalks);
        if crate::fault::fault!(self.kernel, DepartingCpuAcknowledgesTwice) && cpu.state().is_off() {
            request.acknowledge();
        }
        request.acknowledge();
    }

    /// Leaves the set of the space at that address, 0 for none, which is not loaded here; the requester keeps it alive. A
    /// requester that misses this CPU from now on may: before it loads the space again it joins, a full barrier (rule 3).
    fn leave_departed(&self, departed: u64) {
        if departed != 0 {
            // SAFETY: the address of a reference that the requester holds until this request is acknowledged.
            let space: &Space<K::Facade, W> = unsafe { &*core::ptr::with_exposed_provenance(departed as usize) };
            space.cpus.leave(self.kernel.cpu());
        }
    }

    /// Rule 2 for the loaded space: records `generation` and returns true if the slot has seen exactly the one before it
    /// and it is still the newest. The flush must follow before interrupts go on.
    pub(crate) fn advance_by_one(&self, cpu: &PerCpu<K::Facade>, generation: u64) -> bool {
        // SAFETY: interrupts are off; see `loaded`.
        let Some(space) = (unsafe { self.loaded(cpu) }) else {
            return false;
        };
        let slot = &cpu.own.slots[cpu.own.slot.load(Ordering::Relaxed) as usize];
        let next = slot.generation.load(Ordering::Relaxed) + 1 == generation
            && space.generation.0.load(Ordering::Acquire) == generation
            && space.mode() == crate::space::Mode::PerCpu;
        if next {
            slot.generation.store(generation, Ordering::Relaxed);
        }
        next
    }
}

/// Marks a CPU as serving. Not a word of the facade: it is no part of the protocol, only its own CPU looks at it, and a
/// simulated run must not depend on how it was built.
#[cfg(debug_assertions)]
struct Serving<'a> {
    mark: &'a core::sync::atomic::AtomicBool,
    outer: bool,
}

#[cfg(debug_assertions)]
impl<'a> Serving<'a> {
    fn begin(mark: &'a core::sync::atomic::AtomicBool) -> Self {
        let outer = mark.swap(true, Ordering::Relaxed);
        Serving { mark, outer }
    }
}

#[cfg(debug_assertions)]
impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.mark.store(self.outer, Ordering::Relaxed);
    }
}
