//! Which CPU knows of which event: C11 happens-before, by vector clocks. It finds a missing release or acquire even in
//! a schedule in which nothing goes wrong. Also tracks which writes a CPU cannot miss: those before a full barrier that
//! precedes one of its own. A load (`tracked_words.rs`) or the CPU's table walker (`caches.rs`) may miss any write that
//! the CPU neither knows of nor must see.

use crate::world::{CPUS, here};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

/// For each CPU, its number of events.
type Times = [u64; CPUS];

/// Events that are known; those that also cannot be missed; and those that are also over elsewhere because broadcasts
/// have invalidated the translations, which says nothing about writes there.
#[derive(Clone, Copy, Default)]
pub struct Clock {
    known: Times,
    reached: Times,
    over: Times,
}

#[derive(Clone, Copy, Default)]
struct Cpu {
    now: Clock,
    /// Read by relaxed loads; a fence makes it known.
    read: Clock,
    /// Known at the last fence; relaxed stores pass it on.
    fenced: Clock,
    /// Also known to its table walker, because of broadcasts.
    walker: Times,
}

std::thread_local! {
    static CPUS_NOW: RefCell<[Cpu; CPUS]> = RefCell::default();
    /// Written before any full barrier so far.
    static BEFORE_FENCES: Cell<Times> = const { Cell::new([0; CPUS]) };
}

fn latest(times: &mut Times, other: &Times) {
    times
        .iter_mut()
        .zip(other)
        .for_each(|(one, other)| *one = (*one).max(*other));
}

pub fn join(clock: &mut Clock, other: &Clock) {
    latest(&mut clock.known, &other.known);
    latest(&mut clock.reached, &other.reached);
    latest(&mut clock.over, &other.over);
}

fn with<T>(look: impl FnOnce(&mut Cpu) -> T) -> T {
    CPUS_NOW.with_borrow_mut(|cpus| look(&mut cpus[here()]))
}

pub fn reset() {
    CPUS_NOW.set(Default::default());
    BEFORE_FENCES.set(Default::default());
}

/// An event on this CPU. Returns its time there.
pub fn tick() -> u64 {
    let cpu = here();
    with(|this| {
        this.now.known[cpu] += 1;
        this.now.known[cpu]
    })
}

/// Whether this CPU knows that the use by `cpu` at `time` is over.
pub fn knows(cpu: usize, time: u64) -> bool {
    with(|this| this.now.known[cpu].max(this.now.over[cpu]) >= time)
}

/// Whether a load on this CPU may miss what `cpu` wrote at `time`.
pub fn may_miss(cpu: usize, time: u64) -> bool {
    with(|this| this.now.known[cpu] < time && this.now.reached[cpu] < time)
}

/// Whether the walker of CPU `walker` may miss what `cpu` wrote at `time`.
pub fn walker_may_miss(walker: usize, cpu: usize, time: u64) -> bool {
    let this = CPUS_NOW.with_borrow(|cpus| cpus[walker]);
    [this.now.known, this.now.reached, this.walker]
        .iter()
        .all(|times| times[cpu] < time)
}

/// The clock of this CPU.
pub fn now() -> Clock {
    with(|this| this.now)
}

/// This CPU learns all that was known at a hand-over: a task that migrates, a lock.
pub fn learn(known: &Clock) {
    with(|this| join(&mut this.now, known));
}

/// This CPU is interrupted by a CPU with that clock: it cannot miss what that one knew.
pub fn is_interrupted(by: &Clock) {
    with(|this| {
        latest(&mut this.now.reached, &by.known);
        latest(&mut this.now.reached, &by.reached);
    });
}

/// The clock of CPU `cpu`.
pub fn known_to(cpu: usize) -> Clock {
    CPUS_NOW.with_borrow(|cpus| cpus[cpu].now)
}

/// Broadcasts of this CPU are complete on `cpus`, one bit each: uses on any of them are over, and their walkers find
/// what this CPU has written. Also a full barrier.
pub fn synchronise(cpus: u64) {
    fence();
    let reached = |cpu: usize| cpus >> cpu & 1 == 1;
    let all = CPUS_NOW.with_borrow(|cpus| cpus.map(|cpu| cpu.now.known));
    let all = all.iter().enumerate().filter(|&(cpu, _)| reached(cpu));
    with(|this| all.for_each(|(_, other)| latest(&mut this.now.over, other)));
    let mine = now();
    CPUS_NOW.with_borrow_mut(|cpus| {
        let reached = cpus.iter_mut().enumerate().filter(|&(cpu, _)| reached(cpu));
        reached.for_each(|(_, cpu)| latest(&mut cpu.walker, &mine.known));
    });
}

/// Whether the walker of this CPU finds what happened on `cpu` at `time`.
pub fn is_found(cpu: usize, time: u64) -> bool {
    with(|this| this.now.known[cpu].max(this.walker[cpu]) >= time)
}

/// A full barrier: an acquire fence and a release fence. Of two full barriers, the CPU that passes the later one cannot
/// miss what was written before the earlier one.
pub fn fence() {
    let mut before = BEFORE_FENCES.get();
    with(|this| {
        let read = this.read;
        join(&mut this.now, &read);
        latest(&mut this.now.reached, &before);
        latest(&mut before, &this.now.known);
        latest(&mut before, &this.now.reached);
        this.fenced = this.now;
    });
    BEFORE_FENCES.set(before);
}

/// The clock that a word passes on.
#[derive(Clone, Copy, Default)]
pub struct Passed(Clock);

impl Passed {
    /// A load that returns this value.
    pub fn load(&self, order: Ordering) {
        with(|this| {
            join(&mut this.read, &self.0);
            if order == Ordering::Acquire {
                join(&mut this.now, &self.0);
            }
        });
    }

    /// The clock that a store passes on.
    pub fn store(order: Ordering) -> Self {
        Passed(with(|this| {
            if order == Ordering::Release {
                this.now
            } else {
                this.fenced
            }
        }))
    }

    /// The clock that a read-modify-write between two full barriers passes on when it reads this value. It continues
    /// the release sequence.
    pub fn modify(&self) -> Self {
        fence();
        self.load(Ordering::Acquire);
        let mut passed = *self;
        join(&mut passed.0, &now());
        fence();
        passed
    }
}
