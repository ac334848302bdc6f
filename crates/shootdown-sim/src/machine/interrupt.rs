//! Interrupts without payload: sending, arrival, merging, masking and the handler.
//!
//! As in a local APIC there is one pending bit: interrupts that arrive before the earlier one is taken merge with it.
//! Independent of the handlers' work.

use super::activity::{What, note};
use super::config::NEVER;
use super::cpu::{Cpu, SLOW_HOST, SLOW_RECORDING, State};
use super::record::{Core, GroupWrite};

/// One arrival in so many is late, so the median of how late they are is what the 99th percentile lies above the rest.
const LATE_ONE_IN: u64 = 50;

impl Core {
    /// Raises an interrupt at each of `targets`; the calling CPU pays for sending.
    pub(crate) fn send_ipi(&self, targets: impl Iterator<Item = usize>) {
        if !self.on_cpu() {
            return targets.for_each(|target| self.raise(target, self.time.get(), NEVER));
        }
        let cpu = self.cpu();
        self.send(targets, |target, sent, at| {
            cpu.ipis_sent.set(cpu.ipis_sent.get() + 1);
            if let Some(hook) = self.send_hook.get() {
                hook(target);
            }
            self.raise(target, at, sent);
        });
    }

    /// Sends a message to each of `targets`, with the timing of interrupts. `arrives` is called with each target, the
    /// start of sending, and the arrival, ticks.
    pub(crate) fn send(&self, targets: impl Iterator<Item = usize>, mut arrives: impl FnMut(usize, u64, u64)) {
        let cpu = self.cpu();
        cpu.count();
        self.sync(cpu);
        let sent = cpu.clock.get();
        let mut cost = self.costs.ipi_first;
        for target in targets {
            let written = self.written_for(target, (cpu.name, sent), || {
                cpu.pass(std::mem::replace(&mut cost, self.costs.ipi_next));
                cpu.clock.get()
            });
            let latency = self.costs.ipi_latency[self.distance(cpu.name, target as u16 + 1)];
            arrives(target, sent, written + latency + self.lateness());
        }
    }

    /// How much later than most this arrival is.
    fn lateness(&self) -> u64 {
        let late = self.costs.ipi_late;
        if late == 0 || self.below(LATE_ONE_IN) != 0 {
            return 0;
        }
        self.below(2 * late + 1)
    }

    /// When the interrupt register was written for `target` of `request`: by `write`, unless a write for the same
    /// request has reached its group.
    #[inline]
    fn written_for(&self, target: usize, request: (u16, u64), write: impl FnOnce() -> u64) -> u64 {
        let Some(&group) = self.ipi_groups.get(target) else {
            return write();
        };
        let last = &self.group_writes[usize::from(group)];
        if last.get().request != request {
            last.set(GroupWrite { request, at: write() });
        }
        last.get().at
    }

    /// Raises an interrupt that arrives at `target` at `at`, ticks. Its sender began to send at `sent`, or [`NEVER`]
    /// without a sender.
    pub(crate) fn raise(&self, target: usize, at: u64, sent: u64) {
        let target = &self.cpus[target];
        target.raise(at, sent);
        if std::ptr::eq(target, self.current.get()) {
            return self.refresh();
        }
        let interruptible = match target.state.get() {
            State::Charging | State::Sleeping => !target.masked.get(),
            // Masked or not: the condition may poll for the interrupt's cause.
            State::Waiting => true,
            State::Running | State::Absent | State::Finished => false,
        };
        if interruptible {
            self.wake_no_later(target, at.max(target.clock.get()));
        }
    }

    /// Takes every interrupt that has arrived at `cpu`, which runs.
    #[inline(never)]
    pub(crate) fn take_interrupts(&self, cpu: &Cpu) {
        while cpu.interrupt_due() && cpu.slow.get() & SLOW_HOST == 0 {
            let (sent, next) = cpu.irqs.take(cpu.clock.get());
            cpu.irq_at.set(next);
            cpu.irq_sent.set(sent);
            cpu.interrupts.set(cpu.interrupts.get() + 1);
            let recording = cpu.slow.get() & SLOW_RECORDING != 0;
            cpu.set_slow(SLOW_RECORDING, false);
            cpu.masked.set(true);
            self.refresh();
            cpu.count();
            note(|| What::HandlerEnters);
            cpu.pass_entry(self.costs.interrupt_entry);
            self.handle_interrupt(cpu);
            cpu.pass_entry(self.costs.interrupt_exit);
            note(|| What::HandlerLeaves);
            cpu.masked.set(false);
            cpu.set_slow(SLOW_RECORDING, recording);
            self.refresh();
        }
    }

    /// Masks or unmasks; a pending interrupt is taken at once.
    pub(crate) fn set_masked(&self, masked: bool) -> bool {
        let cpu = self.cpu();
        let old = cpu.masked.replace(masked);
        if old != masked {
            self.refresh();
            if cpu.interrupt_due() && self.on_cpu() {
                self.catch_up(cpu);
            }
            if !masked {
                self.preemption_point();
            }
        }
        old
    }
}
