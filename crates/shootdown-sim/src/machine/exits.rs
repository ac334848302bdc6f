//! VM exits: a hypervisor under the machine deschedules a CPU at any instruction, also with interrupts off.
//!
//! Owns when a CPU leaves the guest and how long it may spin before it does. The hypervisor owns what happens outside
//! the guest. Without a hypervisor no exit is ever due.

use super::config::NEVER;
use super::cpu::{Cpu, SLOW_RECORDING, State};
use super::hypervisor::Hypervisor;
use super::record::Core;

impl Cpu {
    /// When this CPU leaves the guest.
    #[inline]
    pub(crate) fn exit_due_at(&self) -> u64 {
        if self.outside.get() { NEVER } else { self.exit_at.get() }
    }

    #[inline]
    pub(crate) fn exit_due(&self) -> bool {
        self.exit_due_at() <= self.clock.get()
    }
}

impl Core {
    /// `target` leaves the guest at `at`, ticks, or earlier if it was asked to.
    pub(crate) fn request_exit(&self, target: usize, at: u64) {
        let target = &self.cpus[target];
        target.exit_at.set(target.exit_at.get().min(at));
        if std::ptr::eq(target, self.current.get()) {
            return self.refresh();
        }
        if matches!(target.state.get(), State::Charging | State::Waiting) && !target.outside.get() {
            self.wake_no_later(target, at.max(target.clock.get()));
        }
    }

    /// The running CPU leaves as requested.
    #[inline(never)]
    pub(crate) fn take_exit(&self, cpu: &Cpu) {
        cpu.exit_at.set(NEVER);
        self.outside(cpu, |hypervisor| hypervisor.exits());
    }

    /// When a CPU that begins to spin now exits because of it, ticks.
    pub(crate) fn spins_until(&self, cpu: &Cpu) -> u64 {
        let window = self.hypervisor.get().and_then(|hypervisor| hypervisor.spin_window());
        window.map_or(NEVER, |cycles| {
            let ticks = cycles.max(1) * super::config::TICKS_PER_CYCLE;
            cpu.clock.get().saturating_add(ticks)
        })
    }

    /// The running CPU has spun for its whole window.
    #[inline(never)]
    pub(crate) fn take_spin_exit(&self, cpu: &Cpu) {
        self.outside(cpu, |hypervisor| hypervisor.spins());
    }

    fn outside(&self, cpu: &Cpu, call: impl FnOnce(&dyn Hypervisor)) {
        let Some(hypervisor) = self.hypervisor.get() else {
            return;
        };
        let recording = cpu.slow.get() & SLOW_RECORDING != 0;
        cpu.set_slow(SLOW_RECORDING, false);
        let (masked, outside) = (cpu.masked.replace(true), cpu.outside.replace(true));
        self.refresh();
        call(&**hypervisor);
        cpu.outside.set(outside);
        cpu.masked.set(masked);
        cpu.set_slow(SLOW_RECORDING, recording);
        self.refresh();
    }
}
