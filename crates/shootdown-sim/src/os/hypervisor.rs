//! A hypervisor under the simulated kernel: it deschedules virtual CPUs at any point, and flushes them at entry on
//! request.
//!
//! Owns one word for each virtual CPU, shared with the guest like KVM's "preempted" byte of the steal-time record, and
//! the order of steps at exit and entry. The engine decides what to request.

use super::System;
use crate::machine::{self, Shared, SimWord};
use shootdown::{Local, Word};
use std::sync::atomic::Ordering;

/// The guest as its host sees it. Each is called on the virtual CPU, with interrupts masked.
pub(super) trait Guest {
    /// The virtual CPU leaves the guest: from here on a flush can be requested for its entry.
    fn exits(&self);
    /// It enters: a requested flush happens first.
    fn enters(&self);
    /// The hypervisor flushes everything that the virtual CPU has cached.
    fn flush_everything(&self);
    /// Whether an access by the hardware is in progress, in the middle of which no virtual CPU can leave.
    fn is_in_hardware(&self) -> bool;
}

impl dyn Guest {
    /// This virtual CPU exits, and enters again when `stay` returns.
    pub(super) fn exit_for(&self, stay: impl FnOnce()) {
        let saved = machine::interrupts_off();
        self.exits();
        stay();
        self.enters();
        machine::interrupts_restore(saved);
    }
}

/// The hypervisor's word for one virtual CPU.
#[derive(Debug)]
pub(super) struct VirtualCpu(Shared<SimWord>);

/// It is descheduled.
const OUT: u64 = 1;
/// Its caches are flushed before it runs again. Only ever set together with [`OUT`].
const FLUSH: u64 = 2;

impl VirtualCpu {
    /// Requests a flush at entry; true if the CPU is descheduled and will be flushed.
    pub(super) fn request_flush(&self) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        // The exchange fails if the CPU has entered since, or if another CPU requests a flush: then it is interrupted
        // (C6).
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

    /// The hypervisor deschedules this virtual CPU for `cycles`. Interrupts that arrive meanwhile stay pending. Its
    /// cached translations stay, unless a flush was requested. Without a hypervisor this has no effect.
    pub fn deschedule(&self, cycles: u64) {
        if self.engine.kernel().virtual_cpus.get().is_some() {
            (self as &dyn Guest).exit_for(|| machine::charge(cycles));
        }
    }

    /// The word of this virtual CPU that the guest shares. Without these no CPU can request a flush at entry.
    fn own_word(&self) -> Option<&Shared<SimWord>> {
        let words = self.engine.kernel().virtual_cpus.get();
        words.map(|words| &words[machine::cpu()].0)
    }
}

impl<const W: usize> Guest for System<W> {
    fn exits(&self) {
        // The exit serialises: the guest's stores are visible.
        machine::drain_stores();
        machine::synchronise();
        self.hw.borrow_mut().deschedule(machine::cpu());
        if let Some(word) = self.own_word() {
            word.swap_full(OUT);
        }
    }

    fn enters(&self) {
        let cpu = machine::cpu();
        machine::synchronise();
        // Full barrier. Pairs with the one before `request_flush`: either the request is seen here, or the guest sees
        // the CPU running.
        let flush_requested = self.own_word().is_some_and(|word| word.swap_full(0) & FLUSH != 0);
        machine::synchronise();
        if flush_requested {
            self.flush_everything();
        }
        self.hw.borrow_mut().entered(cpu, machine::now());
    }

    fn flush_everything(&self) {
        let flushed = self.hw.borrow_mut().local(machine::cpu(), Local::All, machine::now());
        flushed.unwrap_or_else(|fault| panic!("a flush of everything has no operand: {fault:?}"));
    }

    fn is_in_hardware(&self) -> bool {
        self.hw.try_borrow_mut().is_err()
    }
}
