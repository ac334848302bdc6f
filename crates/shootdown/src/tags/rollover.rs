//! System-wide tags for every space, with roll-over, as in Arm and RISC-V kernels, on any machine.
//!
//! A tag is valid in one *epoch*. When the pool is empty the epoch advances. Tags that CPUs are running on stay
//! reserved, and all others become free. Every CPU is marked to flush itself locally at its next pass through the slow
//! path. That is N local flushes, never N broadcasts. The fast path of a switch is one compare-exchange on a line of
//! this CPU.

use crate::cpu::state::PerCpu;
use crate::cpu::wait::FIRST_LOOK;
use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::hooks::{CpuId, Event, Kernel, Tag};
use crate::space::{Mode, Space};
use core::sync::atomic::Ordering;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// The tag under which `space` may be loaded on this CPU now. Interrupts off, on CPU `me`, after joining the set.
    pub(crate) fn rolled_tag(&self, me: CpuId, space: &Space<K::Facade, W>) -> Tag {
        let running = &self.cpus[me].running;
        // Both relaxed: the compare-exchange validates what they find, and is the barrier before the root load.
        let word = space.mode.0.load(Ordering::Relaxed);
        if let Mode::Rolled { epoch, tag } = Mode::unpack(word)
            && epoch == self.rollover.epoch.0.load(Ordering::Relaxed)
        {
            let active = running.active.load(Ordering::Relaxed);
            // Full barrier. Pairs with the swap in `roll_over`: either the roll-over sees this tag and reserves it, or
            // this compare-exchange finds 0 and fails. Also pairs with `dispatch`, like the swap of the mode below.
            if active != 0 && running.active.compare_exchange_full(active, word).is_ok() {
                return tag;
            }
        }
        self.rolled_tag_slowly(me, space)
    }

    fn rolled_tag_slowly(&self, me: CpuId, space: &Space<K::Facade, W>) -> Tag {
        let running = &self.cpus[me].running;
        self.lock_rollover(me, space);
        // Modes are written under the lock.
        let mut mode = Mode::unpack(space.mode.0.load(Ordering::Relaxed));
        let epoch = self.rollover.epoch.0.load(Ordering::Relaxed);
        let valid = matches!(mode, Mode::Rolled { epoch: of, .. } if of == epoch);
        if !valid {
            mode = self.new_tag(mode);
            // Full barrier. Pairs with `dispatch`, which reads the mode after its increment. A flush that saw the old
            // tag wrote its entries before any fill under the new one.
            space.mode.0.swap_full(mode.pack());
        }
        if running.flush_pending.load(Ordering::Relaxed) != 0 {
            running.flush_pending.store(0, Ordering::Relaxed);
            self.flush_every_tag_here();
        }
        running.active.store(mode.pack(), Ordering::Relaxed);
        // Release: orders the store above before the swap of a roll-over by the next holder of the lock.
        self.rollover.lock.0.store(0, Ordering::Release);
        match mode {
            Mode::Rolled { tag, .. } => tag,
            Mode::PerCpu | Mode::Transition(_) | Mode::System(_) | Mode::Demoting(_) => {
                unreachable!("new_tag gives roll-over tags")
            }
        }
    }

    /// Takes the lock, and reports a CPU that holds it too long (C7). Interrupts off.
    ///
    /// Serves no requests: this CPU is in the middle of a switch, and its answer would say that the switch is over
    /// (`wait_for_leavers`). The wait still ends (C5), since the holder has interrupts off and waits for no CPU.
    fn lock_rollover(&self, me: CpuId, space: &Space<K::Facade, W>) {
        let (mut looks, mut deadline) = (FIRST_LOOK, 0);
        K::Facade::wait_until(|| {
            // Pairs with the release in `rolled_tag_slowly`.
            let taken = self.rollover.lock.0.compare_exchange_full(0, me as u64 + 1);
            if let Err(holder) = taken
                && self.is_overdue(&mut looks, &mut deadline)
            {
                self.report_stuck(me, holder as CpuId - 1, (space.id, 0));
            }
            taken.is_ok()
        });
    }

    /// Flushes everything non-global under every tag. No local operation does that on all machines and keeps global
    /// entries, so those are flushed too.
    fn flush_every_tag_here(&self) {
        self.flush_everything_here();
    }

    /// A tag in the current epoch for a space that had `old`. Under the lock.
    fn new_tag(&self, old: Mode) -> Mode {
        let epoch = self.rollover.epoch.0.load(Ordering::Relaxed);
        if let Mode::Rolled { tag, .. } = old {
            let renewed = Mode::Rolled { epoch, tag };
            // A CPU ran on it at the last roll-over: it still belongs to the space.
            let mut reserved = false;
            for cpu in self.cpus.iter() {
                if cpu.running.reserved.load(Ordering::Relaxed) == old.pack() {
                    cpu.running.reserved.store(renewed.pack(), Ordering::Relaxed);
                    reserved = true;
                }
            }
            if reserved {
                return renewed;
            }
        }
        if let Some(tag) = self.tags.allocate() {
            return Mode::Rolled { epoch, tag };
        }
        self.roll_over(epoch + 1);
        match self.tags.allocate() {
            Some(tag) => Mode::Rolled { epoch: epoch + 1, tag },
            // `Engine::new` checked that tags outnumber CPUs, and at most one tag per CPU is reserved.
            None => unreachable!("system-wide tags outnumber the CPUs"),
        }
    }

    fn roll_over(&self, epoch: u64) {
        self.rollover.epoch.0.store(epoch, Ordering::Relaxed);
        self.tags.free_all();
        for cpu in self.cpus.iter() {
            // Full barrier: pairs with the compare-exchange in `rolled_tag`.
            let mut kept = cpu.running.active.swap_full(0);
            if kept == 0 && !cpu.state().is_off() {
                // It took no slow path since the last roll-over, so it still runs on what was reserved then. Unless it
                // is offline: then it runs under no tag, and takes this lock before it does.
                kept = cpu.running.reserved.load(Ordering::Relaxed);
            }
            if let Mode::Rolled { tag, .. } = Mode::unpack(kept) {
                self.tags.reserve(tag);
            }
            cpu.running.reserved.store(kept, Ordering::Relaxed);
            cpu.running.flush_pending.store(1, Ordering::Relaxed);
        }
        self.kernel.event(Event::RollOver);
    }
}

impl<F: Facade> PerCpu<F> {
    /// Clears the tag that this CPU ran under: it has flushed everything and runs under none.
    pub(crate) fn forget_running(&self) {
        // Full barrier: pairs with a requester that queues or posts and then reads the state (head of `cpu/mod.rs`).
        self.running.active.swap_full(0);
    }
}

#[cfg(test)]
mod tests;
