//! Who knows of what: happens-before as C11 defines it, by vector clocks. A schedule in which everything goes well
//! shows a missing release or acquire as well as one in which it goes wrong would. And what nobody can miss: what was
//! written before a full barrier that came before one of its own. What a CPU does not know of and can miss, a load may
//! miss (`words.rs`), and so may its table walker (`caches.rs`).

use crate::world::{CPUS, here};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

/// Of each CPU, how many of its events.
type Times = [u64; CPUS];

/// What is known; what besides cannot be missed; and what besides has been done elsewhere under what broadcasts have
/// invalidated, which says nothing about what was written elsewhere.
#[derive(Clone, Copy, Default)]
pub struct Clock {
    known: Times,
    reached: Times,
    over: Times,
}

#[derive(Clone, Copy, Default)]
struct Cpu {
    now: Clock,
    /// What relaxed loads have read, which a fence makes known.
    read: Clock,
    /// What was known at the last fence, which relaxed stores pass on.
    fenced: Clock,
    /// What its table walker knows besides, because of broadcasts.
    walker: Times,
}

std::thread_local! {
    static CPUS_NOW: RefCell<[Cpu; CPUS]> = RefCell::default();
    /// What was written before any full barrier so far.
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

/// Something happens on this CPU. Returns its time there.
pub fn tick() -> u64 {
    let cpu = here();
    with(|this| {
        this.now.known[cpu] += 1;
        this.now.known[cpu]
    })
}

/// Whether this CPU knows that what `cpu` used at `time` is over there.
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

/// What this CPU knows.
pub fn now() -> Clock {
    with(|this| this.now)
}

/// This CPU learns all that was known to whoever hands something to it: a task that migrates, a lock.
pub fn learn(known: &Clock) {
    with(|this| join(&mut this.now, known));
}

/// This CPU is interrupted by one that knew that: it cannot miss it.
pub fn is_interrupted(by: &Clock) {
    with(|this| {
        latest(&mut this.now.reached, &by.known);
        latest(&mut this.now.reached, &by.reached);
    });
}

/// All that CPU `cpu` knows.
pub fn known_to(cpu: usize) -> Clock {
    CPUS_NOW.with_borrow(|cpus| cpus[cpu].now)
}

/// Broadcasts of this CPU are complete on `cpus`, a bit each: what was used on any of them is over, and their walkers
/// find what this CPU has written. A full barrier as well.
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

/// A full barrier: an acquire fence and a release fence; and of two, whoever passes the later one cannot miss what was
/// written before the earlier one.
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

/// What a word passes on.
#[derive(Clone, Copy, Default)]
pub struct Passed(Clock);

impl Passed {
    /// A load that finds it.
    pub fn load(&self, order: Ordering) {
        with(|this| {
            join(&mut this.read, &self.0);
            if order == Ordering::Acquire {
                join(&mut this.now, &self.0);
            }
        });
    }

    /// What a store passes on.
    pub fn store(order: Ordering) -> Self {
        Passed(with(|this| {
            if order == Ordering::Release {
                this.now
            } else {
                this.fenced
            }
        }))
    }

    /// What a read-modify-write between two full barriers passes on that finds this one. It carries on what was passed.
    pub fn modify(&self) -> Self {
        fence();
        self.load(Ordering::Acquire);
        let mut passed = *self;
        join(&mut passed.0, &now());
        fence();
        passed
    }
}
