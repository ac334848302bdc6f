//! Deferred freeing: an unmap that interrupts nobody. Opt-in ([`Free::Deferred`]), for unmaps of private memory only.
//!
//! # The contract that it relaxes
//! Between the unmap and the end of its deferral other CPUs may still use the old translation (C1 holds from the end of
//! the deferral on, not from the return of the call): a program that touches memory it has unmapped may not notice.
//! Until then the frames and the virtual range stay in *quarantine*: no frame goes back to its allocator (C2), and
//! nothing is mapped in the range. Whoever wants the range back before flushes it ([`Engine::flush`]) and gives the
//! deferral up by that proof ([`Engine::release_by`]). Tags need no quarantine of their own: one changes hands by the
//! rules that it always does (C4). The CPU that unmaps is flushed before the call returns.
//!
//! # How it ends
//! The unmap advances the space's generation, so each slot that holds old entries is behind, and asks for an *epoch*. A
//! CPU that flushes what it has loaded, at a [`tick`](Engine::tick), a switch or a shootdown interrupt, says for which
//! epoch it did. A deferral is over when every online CPU has done so for its epoch or cannot use user addresses at
//! all.
//!
//! | CPU | |
//! | --- | --- |
//! | idle (lazy, or on the kernel's root) | not waited for: it catches up by generation before it uses anything |
//! | off | not waited for: it flushes everything before it uses anything (C5) |
//! | without ticks ([`Engine::tick_stops`]) | if the space runs there, the unmap is synchronous; else not waited for |
//!
//! Synchronous, too: where table pages are freed (C3), under system-wide tags (a broadcast interrupts nobody, and
//! nothing tells a CPU that an entry under such a tag is old), and when what one CPU has unmapped and still waits would
//! exceed [`Design::defer_frames`](crate::Policy::defer_frames).

use crate::cpu::state::PerCpu;
use crate::design::{Free, Reach, Requests};
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::flush::token::Flushed;
use crate::hooks::{CpuId, Event, Kernel};
use crate::range::Range;
use crate::space::{CachePadded, Mode, Space};
use core::sync::atomic::Ordering;

/// What a CPU keeps about deferrals. Written at ticks and by unmaps; read by whoever asks which deferrals are over.
pub(crate) struct Deferring<F: Facade> {
    /// Epoch for which this CPU has flushed; [`NO_TICKS`] while it has no ticks.
    flushed: F::U64,
    /// Frames that unmaps on this CPU keep waiting.
    held: F::U64,
}

const NO_TICKS: u64 = u64::MAX;

impl<F: Facade> Deferring<F> {
    pub(crate) fn new() -> CachePadded<Self> {
        CachePadded(Deferring {
            flushed: F::U64::new(0),
            held: F::U64::new(0),
        })
    }
}

/// Frames and a virtual range in quarantine. Forgetting it leaks the frames, and their count.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "frames and virtual range stay in quarantine until it is released"]
pub struct Deferral {
    epoch: u64,
    /// The space's id.
    space: u64,
    cpu: CpuId,
    frames: u32,
}

/// How an unmap went.
#[derive(Debug)]
#[must_use = "frames may only be freed with the proof"]
pub enum Unmapped {
    /// Synchronously: frames and virtual range are free.
    Now(Flushed),
    /// Deferred: both stay in quarantine.
    Later(Deferral),
}

/// The deferrals that were over at some moment.
#[derive(Debug, Clone, Copy)]
pub struct DeferralsOver(u64);

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Flushes `range` of `space`, whose entries were cleared by an unmap of private memory, at once or later; `frames`
    /// frames wait for it. Only for a range that nobody can rely on being unmapped until somebody maps it again. For
    /// anything else (`madvise`, protection changes, migration, memory shared with others) use [`flush`](Self::flush).
    ///
    /// Context as [`flush`](Self::flush). Where it is deferred it interrupts nobody and waits for no CPU; it writes the
    /// space's generation and a word of this CPU. Ordering: the entry writes come before the call; a full barrier.
    pub fn flush_later(&self, space: &Space<K::Facade, W>, range: Range, frames: u32) -> Unmapped {
        if self.policy().free != Free::Deferred
            || self.policy().reach == Reach::None
            || range.tables()
            || self.mode(space) != Mode::PerCpu
        {
            return Unmapped::Now(self.flush(space, range));
        }
        let pin = self.pinned();
        let me = pin.cpu;
        let held = &self.cpus[me].deferring.0.held;
        if held.load(Ordering::Relaxed) + u64::from(frames) > u64::from(self.policy().defer_frames) {
            drop(pin);
            return Unmapped::Now(self.flush(space, range));
        }
        self.publish_tables();
        // C1: as in `dispatch`. Entry writes, full barrier, then the reads of mode, set, states and epoch.
        let generation = space.log.generation.fetch_add_full(1) + 1;
        if self.policy().requests == Requests::Log {
            space.log.append(generation, &range);
        }
        let secondary = self.notify_secondary(space, &range);
        let targets = self.targets(space, false, me);
        // Acquire, in `contains`: whoever does not find a CPU any more, which takes ticks again, finds the epoch that
        // it has read before it left, or a later one. Pairs with the release in `leave` of `deferrals_wait_for`.
        let tickless = targets.iter().any(|cpu| self.tickless.contains(cpu));
        if tickless || self.mode(space) != Mode::PerCpu {
            drop(pin);
            return Unmapped::Now(self.flush(space, range));
        }
        self.flush_here(me, space, generation, range);
        if targets.is_empty() {
            self.kernel.event(Event::LocalOnly);
            // Not pinned: the hook may wait for a device.
            drop(pin);
            self.await_secondary(secondary);
            return Unmapped::Now(Flushed::new(space.id, false));
        }
        // The next epoch: a CPU that flushes for it reads it first, and so after this generation. Relaxed: full
        // barriers stand between generation and epoch on both sides.
        let epoch = self.deferral_epoch.0.load(Ordering::Relaxed) + 1;
        held.fetch_add_full(u64::from(frames));
        self.kernel.event(Event::Deferred { frames });
        drop(pin);
        self.await_secondary(secondary);
        Unmapped::Later(Deferral {
            epoch,
            space: space.id,
            cpu: me,
            frames,
        })
    }

    /// Which deferrals are over. Reads one line of every CPU: for one CPU now and then, at its tick, not for all at
    /// each. Starts the next epoch when the last is over. Context: any in which a CPU cannot change.
    pub fn deferrals_over(&self) -> DeferralsOver {
        let epoch = self.deferral_epoch.0.load(Ordering::Relaxed);
        // Pairs with the barriers of `leave_lazy` and of the join of `switch_to`: a CPU that is seen unable to use user
        // addresses reads the generations of all deferrals made before this, before it can.
        K::Facade::full_barrier();
        let mut over = epoch;
        self.online.for_each(|cpu| {
            let cpu = &self.cpus[cpu];
            // Acquire: pairs with the release in `flush_deferred_here`; what that CPU flushed is flushed.
            let flushed = cpu.deferring.0.flushed.load(Ordering::Acquire);
            let state = cpu.state();
            // Off, on the kernel's root or on the way to it (no id), or lazy: it joins or catches up before it uses
            // anything.
            if state.id() != 0 && !state.is_lazy() {
                over = over.min(flushed);
            }
        });
        if over == epoch {
            // Losing the race means that somebody else has begun the next.
            let _ = self.deferral_epoch.0.compare_exchange_full(epoch, epoch + 1);
        }
        DeferralsOver(over)
    }

    /// The proof for what waited for `deferral`, if that is over; else the deferral back. Any context.
    ///
    /// # Errors
    /// The deferral, when it is not over.
    pub fn release(&self, deferral: Deferral, over: &DeferralsOver) -> Result<Flushed, Deferral> {
        if deferral.epoch > over.0 {
            return Err(deferral);
        }
        self.give_back(&deferral);
        Ok(Flushed::new(deferral.space, false))
    }

    /// Ends a deferral by the proof of a flush that covers its range, or of the [`retire`](Self::retire) of its space,
    /// begun after it: for whoever wants the virtual range, or the frames, at once. Any context.
    ///
    /// # Errors
    /// The deferral, when the proof is of another space, or of a [batch](crate::Batch) of several spaces, which does
    /// not say of which (C6).
    pub fn release_by(&self, deferral: Deferral, covered_by: &Flushed) -> Result<(), Deferral> {
        if !covered_by.covers(deferral.space) {
            return Err(deferral);
        }
        self.give_back(&deferral);
        Ok(())
    }

    fn give_back(&self, deferral: &Deferral) {
        let held = &self.cpus[deferral.cpu].deferring.0.held;
        held.fetch_add_full(u64::from(deferral.frames).wrapping_neg());
    }

    /// The timer's tick on this CPU, which is in no lockless walk. With [`Free::Deferred`] it flushes what is loaded
    /// here if deferrals wait for it; with [`Walkers::GracePeriod`](crate::Walkers::GracePeriod) it is
    /// [`quiescent`](Self::quiescent). Any context with a CPU that cannot change; masks interrupts itself. A load and a
    /// compare when nothing waits.
    pub fn tick(&self) {
        self.masked(|| {
            let cpu = &self.cpus[self.kernel.cpu()];
            self.quiescent_here(cpu);
            self.flush_deferred_here(cpu);
        });
    }

    /// What is loaded here has caught up, or does now: says so, if an epoch waits for it. Interrupts off, on that CPU.
    #[inline]
    pub(crate) fn flush_deferred_here(&self, cpu: &PerCpu<K::Facade>) {
        if self.policy().free != Free::Deferred {
            return;
        }
        let epoch = self.deferral_epoch.0.load(Ordering::Relaxed);
        let flushed = &cpu.deferring.0.flushed;
        if flushed.load(Ordering::Relaxed) >= epoch {
            return;
        }
        // The epoch, full barrier, then the generation that is caught up with. Pairs with `flush_later`, which
        // increments the generation (full barrier) and read an earlier epoch: this CPU sees that generation.
        K::Facade::full_barrier();
        self.flush_what_is_in_use(cpu);
        flushed.store(epoch, Ordering::Release);
    }

    fn flush_what_is_in_use(&self, cpu: &PerCpu<K::Facade>) {
        // A lazy CPU catches up when it leaves lazy, and keeps its root until then.
        if !cpu.state().is_lazy() {
            self.sync_loaded_space(cpu);
        }
    }

    /// This CPU takes no ticks from now on, although it runs user code (`nohz_full`). Unmaps that concern it are
    /// synchronous, and no deferral waits for it. Called on it, anywhere outside the shootdown handler; idle CPUs need
    /// not.
    pub fn tick_stops(&self) {
        self.masked(|| {
            let me = self.kernel.cpu();
            let cpu = &self.cpus[me];
            // A full barrier; pairs with `flush_later`: increments the generation (full barrier), then reads this set.
            // Either it sees this CPU, or this CPU sees its generation.
            self.tickless.join(me);
            self.flush_what_is_in_use(cpu);
            cpu.deferring.0.flushed.store(NO_TICKS, Ordering::Release);
        });
    }

    /// This CPU takes ticks again, if it took none. Called on it; a CPU that comes online does.
    pub fn tick_resumes(&self) {
        self.masked(|| {
            let me = self.kernel.cpu();
            if self.tickless.contains(me) {
                self.deferrals_wait_for(me);
            }
        });
    }

    /// From here on deferrals wait for this CPU, which was tickless or off.
    pub(crate) fn deferrals_wait_for(&self, me: CpuId) {
        let flushed = &self.cpus[me].deferring.0.flushed;
        // Deferrals of this epoch or an earlier one saw this CPU tickless, or off.
        flushed.store(self.deferral_epoch.0.load(Ordering::Relaxed), Ordering::Relaxed);
        // A full barrier. Pairs with the acquire in `flush_later`, after which its epoch is read.
        self.tickless.leave(me);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use crate::hooks::Root;
    use crate::testing::interleave;
    use crate::testing::mock_kernel::{DESIGN, on, three};
    use core::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_switch_is_over_before_it_is_said_that_what_is_loaded_was_flushed() {
        let mut said = 0;
        for moment in 0..60 {
            let (engine, _) = three(Policy {
                free: Free::Deferred,
                ..DESIGN
            });
            let other = engine.space(Root(2));
            let epoch = engine.deferral_epoch.0.fetch_add_full(1) + 1;
            let seen = Rc::new(Cell::new(None));
            let looks = seen.clone();
            interleave::after(moment, move || {
                let cpu = &engine.cpus[1];
                let flushed = cpu.deferring.0.flushed.load(Ordering::Relaxed) == epoch;
                looks.set(Some((flushed, cpu.own_state().is_switching())));
            });
            // SAFETY: the CPU leaves it below.
            on(1, || unsafe { engine.switch_to(&other) });
            interleave::never();
            assert_ne!(seen.get(), Some((true, true)), "at operation {moment}");
            on(1, || engine.switch_to_kernel());
            said += u32::from(engine.cpus[1].deferring.0.flushed.load(Ordering::Relaxed) == epoch);
        }
        assert_eq!(said, 60);
    }
}
