//! The engine on this host's own atomics, embedded in a minimal kernel that records hook calls.

mod compiled;
mod flushing;
mod misuse;
mod no_tags;
mod queries;
mod requests;
mod scattered;
mod secondary;
mod tags;

use shootdown::{
    Broadcast, BroadcastLimits, CpuMask, Design, Engine, Kernel, Local, Native, PerCpu, Root, Secondary, Storage,
    Stuck, Tag, tag_words,
};
use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;

/// A kernel on one host thread that records hook calls. The test selects the CPU.
#[derive(Default)]
struct Recorder {
    cpu: Cell<usize>,
    masked: Cell<bool>,
    pins: Cell<u32>,
    /// Number of calls that forbid migration.
    pinned: Cell<u32>,
    local: RefCell<Vec<(usize, Local)>>,
    loads: RefCell<Vec<(usize, Tag, bool)>>,
    broadcasts: RefCell<Vec<Broadcast>>,
    synced: Cell<u32>,
    ipis: Cell<usize>,
    limits: Option<BroadcastLimits>,
    now: Cell<u64>,
    on_clock: RefCell<Option<Box<dyn Fn()>>>,
    /// Called at the end of a root load, and before interrupts are masked.
    on_load: RefCell<Option<Box<dyn Fn()>>>,
    on_mask: RefCell<Option<Box<dyn Fn()>>>,
    reported: RefCell<Vec<usize>>,
    /// CPUs that were said to have left a space, and its root.
    unloaded: RefCell<Vec<(usize, Root)>>,
    on_unload: RefCell<Option<Box<dyn Fn()>>>,
    /// Whether there is a device, and its notifications. Tickets count from 1.
    device: Cell<bool>,
    notified: RefCell<Vec<(Root, Secondary)>>,
    awaited: RefCell<Vec<u64>>,
}

// SAFETY: each test uses its kernel from one thread.
unsafe impl Sync for Recorder {}

// SAFETY: one thread, which selects the CPU; no translations.
unsafe impl Kernel<1> for &Recorder {
    const PREEMPTIBLE: bool = true;
    type Facade = Native;
    fn cpu(&self) -> usize {
        self.cpu.get()
    }
    fn interrupts_off(&self) -> u64 {
        let act = self.on_mask.borrow_mut().take();
        act.iter().for_each(|act| act());
        u64::from(self.masked.replace(true))
    }
    fn interrupts_restore(&self, saved: u64) {
        self.masked.set(saved != 0);
    }
    fn send_ipi(&self, targets: &CpuMask<1>) {
        assert!(!targets.contains(self.cpu.get()), "no CPU interrupts itself");
        self.ipis.set(self.ipis.get() + targets.len());
    }
    fn invalidate(&self, what: Local) {
        self.local.borrow_mut().push((self.cpu.get(), what));
    }
    fn load_root(&self, _root: Root, tag: Tag, keep: bool) {
        assert!(self.masked.get(), "roots are loaded with interrupts off");
        self.loads.borrow_mut().push((self.cpu.get(), tag, keep));
        if let Some(act) = &*self.on_load.borrow() {
            act();
        }
    }
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        self.limits
    }
    fn now_ns(&self) -> u64 {
        if let Some(act) = &*self.on_clock.borrow() {
            self.now.set(self.now.get() + 1);
            act();
        }
        self.now.get()
    }
    fn unloaded(&self, root: Root) {
        assert!(self.masked.get(), "said with interrupts off");
        self.unloaded.borrow_mut().push((self.cpu.get(), root));
        if let Some(act) = &*self.on_unload.borrow() {
            act();
        }
    }
    fn stuck(&self, report: Stuck) {
        self.reported.borrow_mut().push(report.target);
    }
    fn secondary(&self, root: Root, invalidation: Secondary) -> u64 {
        assert_ne!(self.pins.get(), 0, "notified where migration is forbidden");
        self.notified.borrow_mut().push((root, invalidation));
        if self.device.get() {
            self.notified.borrow().len() as u64
        } else {
            0
        }
    }
    fn secondary_sync(&self, ticket: u64) {
        assert_eq!(self.pins.get(), 0, "it may wait for a device");
        self.awaited.borrow_mut().push(ticket);
    }
    fn pin(&self) {
        self.pins.set(self.pins.get() + 1);
        self.pinned.set(self.pinned.get() + 1);
    }
    fn unpin(&self) {
        self.pins.set(self.pins.get() - 1);
    }
    fn broadcast(&self, what: Broadcast) {
        assert_ne!(self.pins.get(), 0, "broadcasts are issued where migration is forbidden");
        self.broadcasts.borrow_mut().push(what);
    }
    fn broadcast_sync(&self) {
        assert_ne!(self.pins.get(), 0, "the CPU that issued is the one that synchronises");
        self.synced.set(self.synced.get() + 1);
    }
}

struct Memory {
    cpus: Vec<PerCpu<Native>>,
    tags: Vec<AtomicU64>,
}

impl Memory {
    fn new(cpus: usize, design: impl Into<Design>) -> Self {
        let design = design.into();
        Memory {
            cpus: (0..cpus).map(|_| PerCpu::new()).collect(),
            tags: (0..tag_words(design.machine.tag_limit))
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    fn engine<'a>(&'a mut self, kernel: &'a Recorder, design: impl Into<Design>) -> Engine<'a, &'a Recorder, 1> {
        let cpus = self.cpus.len();
        let engine = Engine::new(
            kernel,
            design.into(),
            Root(0),
            Storage {
                cpus: &mut self.cpus,
                tags: &mut self.tags,
            },
        );
        for cpu in 0..cpus {
            kernel.cpu.set(cpu);
            engine.cpu_online();
        }
        kernel.cpu.set(0);
        kernel.local.borrow_mut().clear();
        engine
    }
}

const LIMITS: Option<BroadcastLimits> = Some(BroadcastLimits {
    max_pages: 8,
    max_large_pages: 8,
});
