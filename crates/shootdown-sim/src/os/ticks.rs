//! The scheduler's ticks, for designs that rely on them: one interrupt per period on each CPU that is not idle.
//!
//! An idle CPU takes at most one more tick, unless quarantined memory waits for ticks. It resumes with the next period
//! when it runs again. A CPU that runs without ticks ([`System::stop_ticks`]) takes none. Ticks of different CPUs are
//! spread over the period.
//!
//! A tick costs an interrupt's entry and exit and `kernel.tick` of the machine model. Only designs that need ticks have
//! them here, and are charged the whole cost, although other kernels tick too.

use super::System;
use crate::machine;
use std::cell::Cell;
use std::rc::Rc;

const NEVER: u64 = u64::MAX;

/// Times of ticks, cycles.
pub(super) struct Ticks {
    period: u64,
    cost: u64,
    /// Next tick of each CPU.
    next: Vec<Cell<u64>>,
    idle: Vec<Cell<bool>>,
    /// When a CPU last checked for quarantines that are over.
    looked: Cell<u64>,
}

impl Ticks {
    fn begin(&self, cpu: usize) {
        let phase = self.period / self.next.len() as u64 * cpu as u64;
        let periods = (machine::now().saturating_sub(phase)) / self.period + 1;
        self.next[cpu].set(phase + periods * self.period);
        machine::raise(cpu, self.next[cpu].get());
    }
}

impl<const W: usize> System<W> {
    /// Every CPU of the system takes ticks from here on, `period` cycles apart, each at a cost of `cost` cycles. Once,
    /// before any CPU is online.
    ///
    /// # Panics
    /// When they were started before.
    pub fn start_ticks(self: &Rc<Self>, period: u64, cost: u64) {
        let cpus = self.hw.borrow().config().cpus;
        let ticks = Ticks {
            period,
            cost,
            next: vec![Cell::new(NEVER); cpus],
            idle: vec![Cell::new(false); cpus],
            looked: Cell::new(0),
        };
        assert!(self.ticks.set(ticks).is_ok(), "the ticks are started");
        let system = Rc::downgrade(self);
        self.on_interrupt(move || {
            if let Some(system) = system.upgrade() {
                system.tick_if_due();
            }
        });
    }

    fn tick_if_due(&self) {
        let (cpu, now) = (machine::cpu(), machine::now());
        let Some(ticks) = self.ticks.get().filter(|ticks| ticks.next[cpu].get() <= now) else {
            return;
        };
        ticks.next[cpu].set(NEVER);
        machine::charge(ticks.cost);
        self.engine.tick();
        // One CPU checks in a period, for all.
        if now >= ticks.looked.get() + ticks.period {
            ticks.looked.set(now);
            self.release_quarantined();
        }
        if !ticks.idle[cpu].get() || self.quarantined() > 0 {
            ticks.begin(cpu);
        }
    }

    /// This CPU becomes idle, or busy again.
    pub(super) fn set_idle_for_ticks(&self, idle: bool) {
        let Some(ticks) = self.ticks.get() else { return };
        let cpu = machine::cpu();
        if ticks.idle[cpu].replace(idle) && !idle && ticks.next[cpu].get() == NEVER {
            ticks.begin(cpu);
        }
    }

    /// This CPU takes ticks from its coming online on.
    pub(super) fn ticks_come_online(&self) {
        if let Some(ticks) = self.ticks.get() {
            ticks.begin(machine::cpu());
        }
    }

    /// This CPU takes no more ticks, going offline.
    pub(super) fn ticks_go_offline(&self) {
        if let Some(ticks) = self.ticks.get() {
            ticks.next[machine::cpu()].set(NEVER);
        }
    }

    /// This CPU runs without ticks although it runs user code (`nohz_full`).
    pub fn stop_ticks(&self) {
        self.ticks_go_offline();
        self.engine.tick_stops();
    }

    /// It takes ticks again.
    pub fn resume_ticks(&self) {
        self.engine.tick_resumes();
        self.ticks_come_online();
    }
}
