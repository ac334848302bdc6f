//! A hypervisor under the simulated kernel: it deschedules virtual CPUs at any point, and flushes them at entry when
//! asked.
//!
//! Owns one word for each virtual CPU, shared with the guest as KVM's "preempted" byte of the steal-time record is, and
//! the order of things at exit and entry. What is asked of it is decided in the engine.

use super::System;
use crate::machine::{self, Shared, SimWord};
use shootdown::{Local, Word};
use std::sync::atomic::Ordering;

/// The hypervisor's word about one virtual CPU.
#[derive(Debug)]
pub(super) struct VirtualCpu(Shared<SimWord>);

/// It is descheduled.
const OUT: u64 = 1;
/// Everything it has cached is flushed before it runs again. Only ever set together with [`OUT`].
const FLUSH: u64 = 2;

impl VirtualCpu {
    /// Asks for a flush at entry; true if the CPU is out and will be flushed.
    pub(super) fn ask(&self) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        // The exchange fails if the CPU has entered since, or if somebody else asks: then it is interrupted (C6).
        seen & OUT != 0 && self.0.compare_exchange_full(seen, seen | FLUSH).is_ok()
    }
}

impl<const W: usize> System<W> {
    /// Puts a hypervisor under this kernel. Once, before the run.
    ///
    /// # Panics
    /// When there is one.
    pub fn virtualise(&self) {
        let cpus = self.hw.borrow().config().cpus;
        let words = (0..cpus).map(|_| VirtualCpu(self.allocate(SimWord::new(0)))).collect();
        let set = self.engine.kernel().virtual_cpus.set(words);
        assert!(set.is_ok(), "there is a hypervisor");
    }

    /// The hypervisor takes the processor away from this virtual CPU for `cycles`. Interrupts that come meanwhile wait.
    /// Its caches keep what they hold, unless a flush was asked for. Nothing happens without a hypervisor.
    pub fn deschedule(&self, cycles: u64) {
        if self.engine.kernel().virtual_cpus.get().is_some() {
            self.exit_for(|| machine::charge(cycles));
        }
    }

    /// This virtual CPU exits, and enters again when `stay` returns. Without the words that are shared with the guest
    /// nobody can ask for a flush meanwhile.
    pub(super) fn exit_for(&self, stay: impl FnOnce()) {
        let (cpu, saved) = (machine::cpu(), machine::interrupts_off());
        let word = self.engine.kernel().virtual_cpus.get().map(|cpus| &cpus[cpu].0);
        // The exit serialises: what the guest has stored is visible.
        machine::drain_stores();
        machine::synchronise();
        self.hw.borrow_mut().deschedule(cpu);
        if let Some(word) = word {
            word.swap_full(OUT);
        }
        stay();
        machine::synchronise();
        // Full barrier; pairs with the one before `ask`: either the request is seen here, or the guest sees the CPU in.
        let asked = word.is_some_and(|word| word.swap_full(0) & FLUSH != 0);
        machine::synchronise();
        let mut hw = self.hw.borrow_mut();
        if asked {
            let flushed = hw.local(cpu, Local::All, machine::now());
            flushed.unwrap_or_else(|fault| panic!("a flush of everything has no operand: {fault:?}"));
        }
        hw.entered(cpu, machine::now());
        drop(hw);
        machine::interrupts_restore(saved);
    }
}
