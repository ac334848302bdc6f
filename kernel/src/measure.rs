//! How long interrupts and preemption are off, and counts of the engine's rare events.
//!
//! A stretch is measured twice: in instructions (or ticks) of its own CPU, and in those of the whole machine meanwhile,
//! which a waiting interrupt sees. Only while [`track`] is on, because the readings cost instructions.

use crate::cpu::Cpu;
use crate::time::Own;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shootdown::Event;

static TRACKING: AtomicBool = AtomicBool::new(false);

/// The longest stretch so far, in ticks.
#[derive(Default)]
pub struct Longest {
    /// Of its CPU's own.
    pub own: AtomicU64,
    /// Of the machine.
    pub machine: AtomicU64,
}

/// Stretches of one CPU.
#[derive(Default)]
pub struct Silence {
    masked: Cell<Option<Own>>,
    pinned: Cell<Option<Own>>,
    /// Interrupts off.
    pub interrupts: Longest,
    /// Preemption off.
    pub preemption: Longest,
}

impl Longest {
    fn note(&self, begun: &Own, cpu: &Cpu) {
        self.own.fetch_max(begun.elapsed(cpu), Ordering::Relaxed);
        self.machine.fetch_max(begun.machine(), Ordering::Relaxed);
    }
}

/// Starts or stops measuring.
pub fn track(on: bool) {
    TRACKING.store(on, Ordering::SeqCst);
}

#[inline]
pub fn tracking() -> bool {
    TRACKING.load(Ordering::Relaxed)
}

/// Interrupts were masked here.
#[inline]
pub fn interrupts_off(cpu: &Cpu) {
    cpu.silence.masked.set(Some(Own::now(cpu)));
}

/// They are about to be unmasked.
#[inline]
pub fn interrupts_on(cpu: &Cpu) {
    if let Some(begun) = cpu.silence.masked.take() {
        cpu.silence.interrupts.note(&begun, cpu);
    }
}

/// Preemption was disabled here.
#[inline]
pub fn preemption_off(cpu: &Cpu) {
    cpu.silence.pinned.set(Some(Own::now(cpu)));
}

/// It is about to be enabled.
#[inline]
pub fn preemption_on(cpu: &Cpu) {
    if let Some(begun) = cpu.silence.pinned.take() {
        cpu.silence.preemption.note(&begun, cpu);
    }
}

/// The end of an interrupt handler, which has interrupts off, that began then.
#[inline]
pub fn handler_took(cpu: &Cpu, begun: &Own) {
    if tracking() {
        cpu.silence.interrupts.note(begun, cpu);
    }
}

/// The engine's rare events, over all CPUs.
pub struct Events {
    /// Spaces promoted to a system-wide tag.
    pub promoted: AtomicU64,
    /// Spaces demoted.
    pub demoted: AtomicU64,
}

/// The counts.
pub static EVENTS: Events = Events {
    promoted: AtomicU64::new(0),
    demoted: AtomicU64::new(0),
};

/// Counts an event, if it is one of the rare ones.
#[inline]
pub fn event(event: Event) {
    match event {
        Event::Promoted => EVENTS.promoted.fetch_add(1, Ordering::Relaxed),
        Event::Demoted => EVENTS.demoted.fetch_add(1, Ordering::Relaxed),
        _ => 0,
    };
}
