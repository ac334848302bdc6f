//! Mock kernel that records every hook call. It runs on one thread, which selects the CPU that it stands for.

use crate::cpu::state::PerCpu;
use crate::cpuset::CpuMask;
use crate::design::{Design, Policy, Wait};
use crate::engine::{Engine, Storage};
use crate::facade::{Facade, Word};
use crate::hooks::{Broadcast, BroadcastLimits, CpuId, Event, Kernel, Local, Root, Tag};
use crate::space::Space;
use crate::stuck::Stuck;
use crate::testing::interleave::InterleavedWord;
use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::vec::Vec;

/// A recorded hook call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    BeforeIpi,
    Sent(Vec<CpuId>),
    /// One poll of a wait condition.
    Waited,
    /// A local invalidation.
    Here,
    /// A stuck report of that CPU.
    Stuck(CpuId),
    /// Broadcasts are complete.
    Synchronised,
}

pub(crate) type OnWait = Box<dyn FnMut(u32)>;

std::thread_local! {
    pub(crate) static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
    /// Runs after each poll of a waiter, with the number of polls.
    pub(crate) static ON_WAIT: RefCell<Option<OnWait>> = const { RefCell::new(None) };
    pub(crate) static CPU: Cell<usize> = const { Cell::new(0) };
    /// Number of `after_ipi` calls.
    pub(crate) static AFTER_IPI: Cell<u32> = const { Cell::new(0) };
    /// Publications of table writes, and broadcasts.
    pub(crate) static STEPS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    /// Whether interrupts are off.
    pub(crate) static MASKED: Cell<bool> = const { Cell::new(false) };
    /// Whether the kernel says that interrupts are off when the engine has not masked them.
    pub(crate) static SAYS_OFF: Cell<bool> = const { Cell::new(false) };
    /// The last stuck report.
    pub(crate) static REPORTED: Cell<Option<Stuck>> = const { Cell::new(None) };
    /// Whether the next send fails.
    pub(crate) static FAILS: Cell<bool> = const { Cell::new(false) };
    /// Whether there are broadcasts, and those to every CPU so far.
    pub(crate) static BROADCASTS: Cell<bool> = const { Cell::new(false) };
    pub(crate) static BROADCAST: RefCell<Vec<Broadcast>> = const { RefCell::new(Vec::new()) };
    /// Whether they are targeted, and the targets so far.
    pub(crate) static AIMED: Cell<bool> = const { Cell::new(false) };
    pub(crate) static AIMED_AT: RefCell<Vec<Vec<CpuId>>> = const { RefCell::new(Vec::new()) };
    pub(crate) static EVENTS: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
    pub(crate) static PINS: Cell<u32> = const { Cell::new(0) };
    /// The times that the clock returns; the next one is last.
    pub(crate) static CLOCK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct World;

// SAFETY: one thread, which selects the CPU; no translations.
unsafe impl Facade for World {
    type U64 = InterleavedWord;
    fn full_barrier() {}
    fn publish_tables() {
        STEPS.with_borrow_mut(|steps| steps.push("published"));
    }
    fn before_ipi() {
        SEEN.with_borrow_mut(|seen| seen.push(Seen::BeforeIpi));
    }
    fn after_ipi() {
        AFTER_IPI.set(AFTER_IPI.get() + 1);
    }
    fn before_root_load() {}
    fn wait_until(mut condition: impl FnMut() -> bool) {
        for round in 1..1000 {
            if condition() {
                return;
            }
            SEEN.with_borrow_mut(|seen| seen.push(Seen::Waited));
            let act = ON_WAIT.take();
            let act = act.map(|mut act| {
                act(round);
                act
            });
            ON_WAIT.set(act);
        }
        panic!("waits for ever: {:?}", SEEN.take());
    }
}

// SAFETY: one thread, which selects the CPU; no translations.
unsafe impl<const W: usize> Kernel<W> for World {
    const PREEMPTIBLE: bool = true;
    type Facade = World;
    fn cpu(&self) -> usize {
        CPU.get()
    }
    fn interrupts_off(&self) -> u64 {
        u64::from(MASKED.replace(true))
    }
    fn interrupts_restore(&self, saved: u64) {
        MASKED.set(saved != 0);
    }
    fn interrupts_are_off(&self) -> bool {
        SAYS_OFF.get() || MASKED.get()
    }
    fn send_ipi(&self, targets: &CpuMask<W>) {
        SEEN.with_borrow_mut(|seen| seen.push(Seen::Sent(targets.iter().collect())));
        assert!(!FAILS.replace(false), "this sending fails");
    }
    fn invalidate(&self, _what: Local) {
        SEEN.with_borrow_mut(|seen| seen.push(Seen::Here));
    }
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        (BROADCASTS.get() || AIMED.get()).then_some(BroadcastLimits {
            max_pages: 8,
            max_large_pages: 8,
        })
    }
    fn broadcast_is_targeted(&self) -> bool {
        AIMED.get()
    }
    fn broadcast(&self, what: Broadcast) {
        STEPS.with_borrow_mut(|steps| steps.push("broadcast"));
        BROADCAST.with_borrow_mut(|broadcast| broadcast.push(what));
    }
    fn broadcast_to(&self, targets: &CpuMask<W>, _what: Broadcast) {
        AIMED_AT.with_borrow_mut(|aimed| aimed.push(targets.iter().collect()));
    }
    fn broadcast_sync(&self) {
        SEEN.with_borrow_mut(|seen| seen.push(Seen::Synchronised));
    }
    fn event(&self, event: Event) {
        if matches!(event, Event::Broadcast { .. }) {
            SEEN.with_borrow(|seen| assert_eq!(seen.last(), Some(&Seen::Synchronised), "it is not over"));
        }
        EVENTS.with_borrow_mut(|events| events.push(event));
    }
    fn pin(&self) {
        PINS.set(PINS.get() + 1);
    }
    fn unpin(&self) {
        PINS.set(PINS.get() - 1);
    }
    fn now_ns(&self) -> u64 {
        CLOCK.with_borrow_mut(|clock| clock.pop().expect("the clock is read no more often"))
    }
    fn stuck(&self, report: Stuck) {
        REPORTED.set(Some(report));
        SEEN.with_borrow_mut(|seen| seen.push(Seen::Stuck(report.target)));
    }
    fn load_root(&self, _root: Root, _tag: Tag, _keep: bool) {}
}

pub(crate) type Sys = Engine<'static, World, 1>;
pub(crate) type InWorld = &'static Space<World, 1>;

pub(crate) const DESIGN: Policy = Policy {
    stuck_ns: 0,
    wait: Wait::SpinServing,
    ..Policy::IPI
};

pub(crate) fn on<T>(cpu: usize, what: impl FnOnce() -> T) -> T {
    let me = CPU.replace(cpu);
    let result = what();
    CPU.set(me);
    result
}

/// Three CPUs that run one space.
pub(crate) fn three(design: impl Into<Design>) -> (&'static Sys, InWorld) {
    many(design, 3)
}

pub(crate) fn many(design: impl Into<Design>, cpus: usize) -> (&'static Sys, InWorld) {
    let design = design.into();
    let storage = Storage {
        cpus: Vec::leak((0..cpus).map(|_| PerCpu::new()).collect()),
        tags: Vec::leak(
            (0..crate::tag_words(design.machine.tag_limit))
                .map(|_| InterleavedWord::new(0))
                .collect(),
        ),
    };
    let engine: &'static Sys = Box::leak(Box::new(Engine::new(World, design, Root(0), storage)));
    let space: InWorld = Box::leak(Box::new(engine.space(Root(1))));
    for cpu in 0..cpus {
        // SAFETY: the space is leaked.
        on(cpu, || unsafe {
            engine.cpu_online();
            engine.switch_to(space);
        });
    }
    (engine, space)
}

/// The shootdown interrupt on the current CPU.
pub(crate) fn handle<const W: usize>(engine: &Engine<'static, World, W>) {
    let masked = MASKED.replace(true);
    // SAFETY: one thread.
    unsafe { engine.on_ipi() };
    MASKED.set(masked);
}

/// Every CPU but 0 answers.
pub(crate) fn all_answer(engine: &Sys) {
    (1..engine.cpus.len()).for_each(|cpu| on(cpu, || handle(engine)));
}
