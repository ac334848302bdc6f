//! Waiting and sleeping, without polling.
//!
//! A waiting CPU blocks on the lines its condition read; a sleeping one on its wakes. Both are woken by interrupts. A
//! change between the evaluation and the blocking is noticed by comparing line versions, so no wake-up is lost.

use super::config::NEVER;
use super::cpu::{Cpu, Load, Miss, SLOW_HOST, SLOW_RECORDING, State};
use super::record::Core;

impl Core {
    /// Returns when `condition` holds.
    pub(crate) fn wait_until(&self, condition: impl FnMut() -> bool) {
        self.wait(NEVER, condition);
    }

    /// Returns when `condition` holds, or at `until`, ticks: whether it holds.
    pub(crate) fn wait(&self, until: u64, mut condition: impl FnMut() -> bool) -> bool {
        let mut spins_until = None;
        let mut holds = false;
        let from = self.cpu().recorded.borrow().len();
        let outer = self.cpu().slow.get() & SLOW_RECORDING != 0;
        while self.on_cpu() {
            let cpu = self.cpu();
            let noticed = cpu.clock.get();
            let seen = (cpu.raised.get(), cpu.interrupts.get());
            cpu.set_slow(SLOW_RECORDING, true);
            holds = condition();
            cpu.set_slow(SLOW_RECORDING, outer);
            if holds {
                break;
            }
            let before = cpu.events.get();
            if cpu.clock.get() >= until {
                break;
            }
            let exit = *spins_until.get_or_insert_with(|| self.spins_until(cpu));
            if cpu.clock.get() >= exit {
                self.take_spin_exit(cpu);
                spins_until = None;
            } else if (cpu.raised.get(), cpu.interrupts.get()) == seen && self.enlist(cpu, from) {
                self.block(cpu, noticed, exit.min(until));
                self.delist(cpu, from);
            }
            if cpu.events.get() == before {
                // A condition that touches no word must not stop the clock.
                cpu.count();
            }
            cpu.recorded.borrow_mut().truncate(from);
            // The waiter may continue on another CPU.
            self.preemption_point();
        }
        self.cpu().recorded.borrow_mut().truncate(from);
        holds
    }

    /// Blocks `cpu` until a line it waits on changes, an interrupt arrives that it had not noticed at `noticed`, or
    /// `until`.
    fn block(&self, cpu: &Cpu, noticed: u64, until: u64) {
        cpu.miss.set(Miss::NONE);
        let clock = cpu.clock.get();
        let interrupt = if cpu.masked.get() {
            cpu.irqs.after(noticed)
        } else {
            cpu.irq_at.get()
        };
        let recheck = if self.recheck == 0 { NEVER } else { clock + self.recheck };
        self.set_state(cpu, State::Waiting);
        let leaves = cpu.exit_due_at().min(until).max(clock);
        self.suspend(cpu, interrupt.max(clock).min(recheck).min(leaves));
        if self.dying.get() {
            return;
        }
        self.set_state(cpu, State::Running);
        if cpu.exit_due() {
            self.take_exit(cpu);
        }
        if cpu.interrupt_due() {
            self.take_interrupts(cpu);
        }
    }

    /// Idles until a wake, or once until the deadline passes. Interrupts are taken meanwhile unless masked.
    pub(crate) fn sleep(&self) {
        let cpu = self.cpu();
        cpu.count();
        while self.on_cpu() && cpu.slow.get() & SLOW_HOST == 0 {
            let clock = cpu.clock.get();
            if cpu.wake_at.get() <= clock {
                let (_, next) = cpu.wakes.take(clock);
                cpu.wake_at.set(next);
                break;
            }
            if cpu.interrupt_due() {
                self.take_interrupts(cpu);
                continue;
            }
            let deadline = if cpu.deadline_seen.get() {
                NEVER
            } else {
                self.deadline.get()
            };
            if clock >= deadline {
                cpu.deadline_seen.set(true);
                break;
            }
            let interrupt = if cpu.masked.get() { NEVER } else { cpu.irq_at.get() };
            cpu.asleep_since.set(clock);
            self.set_state(cpu, State::Sleeping);
            self.suspend(cpu, cpu.wake_at.get().min(interrupt).min(deadline));
            if self.dying.get() {
                return;
            }
            cpu.core_slept.set(self.core_sleep(cpu, cpu.clock.get()));
            self.set_state(cpu, State::Running);
        }
        cpu.core_slept.set(0);
        self.refresh();
    }

    /// How long `cpu` has slept at `now`, if its siblings do nothing either; else 0. Ticks.
    pub(crate) fn core_sleep(&self, cpu: &Cpu, now: u64) -> u64 {
        let mut siblings = cpu.siblings.iter().map(|&sibling| &self.cpus[usize::from(sibling)]);
        let idle = |sibling: &Cpu| sibling.state.get().load() == Load::None;
        match cpu.state.get() == State::Sleeping && siblings.all(idle) {
            true => now.saturating_sub(cpu.asleep_since.get()),
            false => 0,
        }
    }

    /// Wakes `target` after `ticks`; remembered if it does not sleep.
    pub(crate) fn wake(&self, target: usize, ticks: u64) {
        let cpu = self.cpu();
        let mut at = self.time.get();
        if self.on_cpu() {
            cpu.count();
            self.sync(cpu);
            // Not before this CPU's stores are visible: the sleeper would evaluate its condition, find it false and
            // sleep on.
            at = cpu.clock.get();
            if !cpu.buffer.borrow().is_empty() {
                at = at.max(cpu.last_drain.get());
            }
        }
        let target = &self.cpus[target];
        target.wake_at.set(target.wakes.add(at + ticks, at));
        if target.state.get() == State::Sleeping {
            self.wake_no_later(target, (at + ticks).max(target.clock.get()));
        }
    }
}
