//! Preemption: whether the thread on a CPU may be preempted, and for how long it could not be.
//!
//! Owns each CPU's depth of sections without preemption, which pins of the engine and spinlocks enter. Independent of
//! threads: where preemption is enabled again it calls the machine's preemption point.

use super::host::Host;
use super::interrupted::Interrupted;
use super::latency::{Latencies, WINDOW_NS};
use crate::machine;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// One CPU.
#[derive(Debug, Default)]
struct Cpu {
    /// Number of open sections without preemption.
    depth: Cell<u32>,
    /// When the outermost began, cycles.
    since: Cell<u64>,
}

/// Sections without preemption, on every CPU.
#[derive(Debug)]
pub struct Preemption {
    cpus: Vec<Cpu>,
    /// Length of a window, cycles; the number of the current one, and the longest section that ended in it on any CPU.
    window_cycles: u64,
    window: Cell<u64>,
    longest: Cell<u64>,
    /// The measurements of the run.
    pub latencies: Latencies,
    /// Activities that interrupts hit.
    pub interrupted: Interrupted,
    /// The host, on a virtual machine: where waiters for a spinlock halt.
    host: OnceCell<Rc<Host>>,
}

impl Preemption {
    /// All on, at `ghz` cycles per nanosecond.
    pub fn new(cpus: usize, ghz: f64) -> Self {
        Preemption {
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            window_cycles: ((WINDOW_NS * ghz) as u64).max(1),
            window: Cell::new(0),
            longest: Cell::new(0),
            latencies: Latencies::default(),
            interrupted: Interrupted::default(),
            host: OnceCell::new(),
        }
    }

    /// Declares that the machine is virtual, once.
    pub(super) fn set_host(&self, host: Rc<Host>) {
        assert!(self.host.set(host).is_ok(), "there is a host");
    }

    #[inline]
    pub(super) fn host(&self) -> Option<&Rc<Host>> {
        self.host.get()
    }

    /// Forbids preemption on this CPU until the matching [`on`](Self::on). Nests.
    #[inline]
    pub fn off(&self) {
        // The host (setting up) is not preempted.
        let Some(cpu) = self.cpus.get(machine::cpu()) else {
            return;
        };
        let depth = cpu.depth.get();
        if depth == 0 {
            cpu.since.set(machine::now());
        }
        cpu.depth.set(depth + 1);
    }

    /// Ends one section; true if it was the outermost. A due preemption can then happen at the next point: see
    /// [`machine::preemption_point`].
    #[inline]
    pub fn on(&self) -> bool {
        let Some(cpu) = self.cpus.get(machine::cpu()) else {
            return false;
        };
        let depth = cpu.depth.get();
        if depth == 0 {
            // Stacks that are unwound at the end of the machine.
            debug_assert!(!machine::on_cpu(), "preemption is on already");
            return false;
        }
        cpu.depth.set(depth - 1);
        if depth == 1 {
            self.ended(cpu);
        }
        depth == 1
    }

    fn ended(&self, cpu: &Cpu) {
        let now = machine::now();
        // Time stands at 0 where stacks are unwound when the machine is dropped.
        let length = now.saturating_sub(cpu.since.get());
        self.latencies.preemption_off.record(length);
        let window = now / self.window_cycles;
        if window > self.window.get() {
            self.window.set(window);
            let longest = self.longest.replace(0);
            if longest > 0 {
                self.latencies.longest_preemption_off.record(longest);
            }
        }
        self.longest.set(self.longest.get().max(length));
    }

    /// Whether this CPU may be preempted, interrupts aside.
    pub fn is_on(&self) -> bool {
        self.cpus.get(machine::cpu()).is_some_and(|cpu| cpu.depth.get() == 0)
    }

    /// Resets the measurements: the end of the warm-up.
    pub fn reset(&self) {
        for (_, recorder) in self.latencies.all() {
            recorder.reset();
        }
        self.longest.set(0);
        self.interrupted.reset();
    }
}
