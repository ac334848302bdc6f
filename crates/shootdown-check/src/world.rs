//! The facade of this machine: the engine's atomics and its waits, each a step before which other CPUs may run.

use crate::architecture::Architecture;
use crate::machine::{self, with};
use crate::ordering_sites::{Order, is_kept};
use crate::sharing::Touch;
use crate::word::{Address, MAX_CPUS};
use corosensei::Yielder;
use shootdown::facade::{Facade, Word};
use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::Ordering;

/// Why a CPU is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resume {
    /// To run.
    Run,
    /// To take its interrupt.
    Interrupt,
}

thread_local! {
    /// The yielder of each CPU's running script.
    static YIELDERS: [Cell<*const Yielder<Resume, ()>>; MAX_CPUS] =
        const { [const { Cell::new(std::ptr::null()) }; MAX_CPUS] };
    /// The stack depth of each suspended script: an address in its last frame.
    static SUSPENDED_AT: [Cell<usize>; MAX_CPUS] = const { [const { Cell::new(0) }; MAX_CPUS] };
    /// The shootdown interrupt's handler.
    static HANDLER: Cell<fn()> = const { Cell::new(|| ()) };
}

/// Sets how CPU `cpu` yields.
pub(crate) fn yields_through(cpu: usize, yielder: &Yielder<Resume, ()>) {
    YIELDERS.with(|yielders| yielders[cpu].set(yielder));
}

/// Sets the interrupt handler.
pub(crate) fn handles_by(handler: fn()) {
    HANDLER.set(handler);
}

/// An address in the last frame of a suspended script, above what the stack switch pushes.
pub(crate) fn suspended_at(cpu: usize) -> usize {
    SUSPENDED_AT.with(|places| places[cpu].get())
}

/// Called when a script is restored to where [`suspended_at`] was `place`.
pub(crate) fn is_suspended_at(cpu: usize, place: usize) {
    SUSPENDED_AT.with(|places| places[cpu].set(place));
}

/// Lets other CPUs run first, and takes interrupts that arrive meanwhile.
pub(crate) fn point() {
    let cpu = with(|machine| machine.current);
    let yielder = YIELDERS.with(|yielders| yielders[cpu].get());
    loop {
        let here = 0_u8;
        is_suspended_at(cpu, std::hint::black_box(&raw const here).expose_provenance());
        // SAFETY: the yielder lives on the stack of the coroutine from which this is called, below this frame.
        match unsafe { &*yielder }.suspend(()) {
            Resume::Run => return,
            Resume::Interrupt => {
                with(machine::Machine::take_interrupt);
                HANDLER.get()();
                with(machine::Machine::end_interrupt);
            }
        }
    }
}

/// Lets other CPUs run first, once the scripts have begun.
pub(crate) fn point_in_script() {
    if with(machine::Machine::is_point_elsewhere) {
        point();
    }
}

#[inline]
fn point_before(address: Address, touch: Touch) {
    if with(|machine| machine.is_point(address, touch)) {
        point();
    }
}

/// A word of this machine.
#[derive(Debug)]
pub struct CheckWord(Address);

impl CheckWord {
    pub(crate) fn address(&self) -> Address {
        self.0
    }

    #[track_caller]
    fn update(&self, change: impl FnOnce(u64) -> Option<u64>) -> u64 {
        let full = is_kept(Location::caller(), Order::Full);
        point_before(self.0, Touch::Write);
        with(|machine| machine.update(self.0, full, change))
    }
}

impl Drop for CheckWord {
    fn drop(&mut self) {
        with(|machine| machine.memory.free(self.0));
    }
}

// SAFETY: the explored machine's memory, with the barriers of its instruction set.
unsafe impl Word for CheckWord {
    fn new(value: u64) -> Self {
        CheckWord(with(|machine| machine.begin_word(value)))
    }

    #[track_caller]
    fn load(&self, order: Ordering) -> u64 {
        let acquire = order == Ordering::Acquire && is_kept(Location::caller(), Order::Acquire);
        point_before(self.0, Touch::Read);
        with(|machine| machine.load(self.0, acquire))
    }

    #[track_caller]
    fn store(&self, value: u64, order: Ordering) {
        let release = order == Ordering::Release && is_kept(Location::caller(), Order::Release);
        point_before(self.0, Touch::Write);
        with(|machine| machine.store(self.0, value, release));
    }

    #[track_caller]
    fn fetch_add_full(&self, value: u64) -> u64 {
        self.update(|old| Some(old.wrapping_add(value)))
    }

    #[track_caller]
    fn fetch_or_full(&self, bits: u64) -> u64 {
        self.update(|old| Some(old | bits))
    }

    #[track_caller]
    fn fetch_and_full(&self, bits: u64) -> u64 {
        self.update(|old| Some(old & bits))
    }

    #[track_caller]
    fn swap_full(&self, value: u64) -> u64 {
        self.update(|_| Some(value))
    }

    #[track_caller]
    fn compare_exchange_full(&self, current: u64, new: u64) -> Result<u64, u64> {
        let old = self.update(|old| (old == current).then_some(new));
        if old == current { Ok(old) } else { Err(old) }
    }
}

/// The facade with the machine's memory model: see `barriers.rs`.
#[derive(Debug, Clone, Copy)]
pub struct CheckWorld;

/// Carries out a barrier; other CPUs run first if it could affect them.
#[track_caller]
fn barrier(what: fn(&mut machine::Machine)) {
    if !is_kept(Location::caller(), Order::Barrier) {
        return;
    }
    // With nothing in the buffer, and no walker behind, a barrier affects only its own CPU.
    if with(|machine| machine.has_to_publish() && machine.is_point_elsewhere()) {
        point();
        with(|machine| machine.learns(11));
    }
    with(what);
}

fn is_x86() -> bool {
    with(|machine| machine.architecture == Architecture::X86)
}

// SAFETY: the explored machine's memory, with the barriers of its instruction set.
unsafe impl Facade for CheckWorld {
    type U64 = CheckWord;

    #[track_caller]
    fn full_barrier() {
        barrier(machine::Machine::full_barrier);
    }

    #[track_caller]
    fn publish_tables() {
        barrier(machine::Machine::publish_tables);
    }

    #[track_caller]
    fn publish_tables_before_full() {
        if !is_x86() {
            Self::publish_tables();
        }
    }

    #[track_caller]
    fn publish_tables_full() {
        match with(|machine| machine.architecture) {
            // DSB ISH, as before a root load.
            Architecture::Arm => barrier(machine::Machine::before_root_load),
            Architecture::X86 | Architecture::RiscV => Self::publish_tables(),
        }
    }

    fn after_ipi() {}

    #[track_caller]
    fn before_ipi() {
        barrier(machine::Machine::before_ipi);
    }

    #[track_caller]
    fn before_root_load() {
        if !is_x86() {
            barrier(machine::Machine::before_root_load);
        }
    }

    fn wait_until(mut condition: impl FnMut() -> bool) {
        loop {
            let before = with(machine::Machine::condition_begins);
            if condition() {
                return with(machine::Machine::condition_held);
            }
            if with(|machine| machine.condition_failed(before) && machine.is_point_elsewhere()) {
                point();
                with(machine::Machine::unblock);
            }
        }
    }
}
