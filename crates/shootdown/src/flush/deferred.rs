//! Deferred freeing: an unmap that interrupts no CPU. Opt-in ([`Free::Deferred`]), only for unmaps of private memory.
//!
//! # The contract that it relaxes
//! Between the unmap and the end of its deferral other CPUs may still use the old translation: C1 holds from the end of
//! the deferral, not from the return of the call. A program that accesses memory it has unmapped may not notice. Until
//! then the frames and the virtual range stay in *quarantine*: no frame is returned to its allocator (C2), and nothing
//! is mapped in the range. To reuse the range earlier, flush it ([`Engine::flush`]) and end the deferral with that
//! proof ([`Engine::release_by`]). Tags need no quarantine of their own: their usual rules apply (C4). The CPU that
//! unmaps is flushed before the call returns.
//!
//! # How it ends
//! The unmap increments the space's generation, so each slot that holds old entries is behind, and requests an *epoch*.
//! A CPU that flushes what it has loaded, at a [`tick`](Engine::tick), a switch or a shootdown interrupt, records the
//! epoch for which it did. A deferral is over when every online CPU has done so for its epoch or cannot use user
//! addresses at all.
//!
//! | CPU | |
//! | --- | --- |
//! | idle (lazy, or on the kernel's root) | not waited for: it catches up by generation before it uses anything |
//! | offline | not waited for: it flushes everything before it uses anything (C5) |
//! | without ticks ([`Engine::tick_stops`]) | the unmap is synchronous if the space runs there; otherwise no wait |
//!
//! An unmap is also synchronous if page-table pages are freed (C3), or if the space has a system-wide tag: a broadcast
//! interrupts no CPU, and a CPU cannot detect that an entry under such a tag is old. It is synchronous, too, if the
//! frames that one CPU's unmaps hold in quarantine would exceed [`Design::defer_frames`](crate::Policy::defer_frames).

use crate::cpu::state::PerCpu;
use crate::design::{Free, Requests};
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::flush::state::NO_TICKS;
use crate::flush::token::Flushed;
use crate::hooks::{CpuId, Event, Kernel};
use crate::range::Range;
use crate::space::{Mode, Space};
use core::sync::atomic::Ordering;

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

/// The result of an unmap.
#[derive(Debug)]
#[must_use = "frames may only be freed with the proof"]
pub enum Unmapped {
    /// Synchronous: frames and virtual range are free.
    Now(Flushed),
    /// Deferred: both stay in quarantine.
    Later(Deferral),
}

/// The deferrals that were over at one point in time.
#[derive(Debug, Clone, Copy)]
pub struct DeferralsOver(u64);

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Flushes `range` of `space`, whose entries were cleared by an unmap of private memory, at once or later; `frames`
    /// frames wait for it. Only for a range on whose unmapping no code relies until it is mapped again. For anything
    /// else (`madvise`, protection changes, migration, shared memory) use [`flush`](Self::flush).
    ///
    /// Context as for [`flush`](Self::flush). If deferred it interrupts no CPU and waits for none; it writes the
    /// space's generation and a word of this CPU. Ordering: the entry writes come before the call; a full barrier.
    pub fn flush_later(&self, space: &Space<K::Facade, W>, range: Range, frames: u32) -> Unmapped {
        if self.policy().free != Free::Deferred
            || self.policy().reach.is_control()
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
        // Acquire, in `contains`: a CPU that is no longer in the set takes ticks again. This CPU then finds the epoch
        // that the other read before it left, or a later one. Pairs with the release in `leave` of
        // `deferrals_wait_for`.
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
        // The next epoch: a CPU that flushes for it reads it first, and so flushes after this generation. Relaxed:
        // there are full barriers between generation and epoch on both sides.
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

    /// Returns which deferrals are over. Reads one line of every CPU: call it on one CPU occasionally, at its tick, not
    /// on all CPUs at each tick. Starts the next epoch when the last is over. Context: any without migration.
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
            // Offline, on the kernel's root or on the way to it (no id), or lazy: it joins or catches up before it uses
            // anything.
            if state.id() != 0 && !state.is_lazy() {
                over = over.min(flushed);
            }
        });
        if over == epoch {
            // If the exchange fails, another CPU has begun the next.
            let _ = self.deferral_epoch.0.compare_exchange_full(epoch, epoch + 1);
        }
        DeferralsOver(over)
    }

    /// The proof for the frames and range of `deferral`, if that is over; otherwise returns the deferral. Any context.
    ///
    /// # Errors
    /// The deferral, if it is not over.
    pub fn release(&self, deferral: Deferral, over: &DeferralsOver) -> Result<Flushed, Deferral> {
        if deferral.epoch > over.0 {
            return Err(deferral);
        }
        self.give_back(&deferral);
        Ok(Flushed::new(deferral.space, false))
    }

    /// Ends a deferral by a proof begun after it: of a flush that covers its range, or of the [`retire`](Self::retire)
    /// of its space. For immediate reuse of the virtual range or the frames. Any context.
    ///
    /// # Errors
    /// The deferral, if the proof is of another space, or of a [batch](crate::Batch) of several spaces, which does not
    /// name them (C6).
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

    /// The timer tick of this CPU, which is in no lockless walk. With [`Free::Deferred`] it flushes the loaded space if
    /// deferrals wait for it. With [`Walkers::GracePeriod`](crate::Walkers::GracePeriod) it is
    /// [`quiescent`](Self::quiescent). Any context without migration; masks interrupts itself. A load and a compare if
    /// nothing waits.
    pub fn tick(&self) {
        self.masked(|| {
            let cpu = &self.cpus[self.kernel.cpu()];
            self.quiescent_here(cpu);
            self.flush_deferred_here(cpu);
        });
    }

    /// The loaded space has caught up, or does now. Records that, if an epoch waits for it. Interrupts off, on that
    /// CPU.
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
        // The epoch, full barrier, then the generation to catch up with. Pairs with `flush_later`, which increments the
        // generation (full barrier) and read an earlier epoch: this CPU sees that generation.
        K::Facade::full_barrier();
        self.flush_what_is_in_use(cpu);
        flushed.store(epoch, Ordering::Release);
    }

    fn flush_what_is_in_use(&self, cpu: &PerCpu<K::Facade>) {
        // A lazy CPU catches up when it leaves lazy TLB mode, and keeps its root until then.
        if !cpu.state().is_lazy() {
            self.sync_loaded_space(cpu);
        }
    }

    /// Stops the ticks of this CPU, although it runs user code (`nohz_full`). Unmaps with this CPU as a target are
    /// synchronous, and no deferral waits for it. Call it on that CPU, anywhere outside the shootdown handler. Idle
    /// CPUs need not.
    pub fn tick_stops(&self) {
        self.masked(|| {
            let me = self.kernel.cpu();
            let cpu = &self.cpus[me];
            // A full barrier. Pairs with `flush_later`: increments the generation (full barrier), then reads this set.
            // Either it sees this CPU, or this CPU sees its generation.
            self.tickless.join(me);
            self.flush_what_is_in_use(cpu);
            cpu.deferring.0.flushed.store(NO_TICKS, Ordering::Release);
        });
    }

    /// Resumes the ticks of this CPU, if they were stopped. Call it on that CPU; a CPU that comes online does.
    pub fn tick_resumes(&self) {
        self.masked(|| {
            let me = self.kernel.cpu();
            if self.tickless.contains(me) {
                self.deferrals_wait_for(me);
            }
        });
    }

    /// From here on deferrals wait for this CPU, which was tickless or offline.
    pub(crate) fn deferrals_wait_for(&self, me: CpuId) {
        let flushed = &self.cpus[me].deferring.0.flushed;
        // Deferrals of this epoch or an earlier one saw this CPU tickless, or offline.
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
    fn loaded_space_is_reported_flushed_only_after_the_switch() {
        let mut reported = 0;
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
            reported += u32::from(engine.cpus[1].deferring.0.flushed.load(Ordering::Relaxed) == epoch);
        }
        assert_eq!(reported, 60);
    }
}
