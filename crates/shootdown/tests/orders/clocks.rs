//! Who knows of what: happens-before as C11 defines it, by vector clocks. A schedule in which everything goes well shows a missing
//! release or acquire as well as one in which it goes wrong would.

use crate::world::{CPUS, here};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

/// Of each CPU, how many of its events are known of.
pub type Clock = [u64; CPUS];

#[derive(Clone, Copy, Default)]
struct Cpu {
    now: Clock,
    /// What relaxed loads have read, which a fence makes known.
    read: Clock,
    /// What was known at the last fence, which relaxed stores pass on.
    fenced: Clock,
    /// What its table walker knows besides, because of broadcasts.
    walker: Clock,
}

std::thread_local! {
    static CPUS_NOW: RefCell<[Cpu; CPUS]> = RefCell::default();
}

fn join(clock: &mut Clock, other: &Clock) {
    clock
        .iter_mut()
        .zip(other)
        .for_each(|(one, other)| *one = (*one).max(*other));
}

fn with<T>(look: impl FnOnce(&mut Cpu) -> T) -> T {
    CPUS_NOW.with_borrow_mut(|cpus| look(&mut cpus[here()]))
}

pub fn reset() {
    CPUS_NOW.set(Default::default());
}

/// Something happens on this CPU. Returns its time there.
pub fn tick() -> u64 {
    let cpu = here();
    with(|this| {
        this.now[cpu] += 1;
        this.now[cpu]
    })
}

/// Whether this CPU knows what happened on `cpu` at `time`.
pub fn knows(cpu: usize, time: u64) -> bool {
    with(|this| this.now[cpu] >= time)
}

/// What this CPU knows.
pub fn now() -> Clock {
    with(|this| this.now)
}

/// This CPU learns all that was known to whoever hands something to it: a task that migrates, a lock.
pub fn learn(known: &Clock) {
    with(|this| join(&mut this.now, known));
}

/// All that CPU `cpu` knows.
pub fn known_to(cpu: usize) -> Clock {
    CPUS_NOW.with_borrow(|cpus| cpus[cpu].now)
}

/// Broadcasts of this CPU are complete: it knows all that has happened on any, and every walker finds what it has written.
pub fn synchronise() {
    let all = CPUS_NOW.with_borrow(|cpus| cpus.map(|cpu| cpu.now));
    with(|this| all.iter().for_each(|other| join(&mut this.now, other)));
    let mine = now();
    CPUS_NOW.with_borrow_mut(|cpus| cpus.iter_mut().for_each(|cpu| join(&mut cpu.walker, &mine)));
}

/// Whether the walker of this CPU finds what happened on `cpu` at `time`.
pub fn is_found(cpu: usize, time: u64) -> bool {
    knows(cpu, time) || with(|this| this.walker[cpu] >= time)
}

/// A full barrier: an acquire fence and a release fence.
pub fn fence() {
    with(|this| {
        let read = this.read;
        join(&mut this.now, &read);
        this.fenced = this.now;
    });
}

/// What a word passes on.
#[derive(Default)]
pub struct Passed(Cell<Clock>);

impl Passed {
    pub fn load(&self, order: Ordering) {
        let passed = self.0.get();
        with(|this| {
            join(&mut this.read, &passed);
            if order == Ordering::Acquire {
                join(&mut this.now, &passed);
            }
        });
    }

    pub fn store(&self, order: Ordering) {
        tick();
        let known = with(|this| {
            if order == Ordering::Release {
                this.now
            } else {
                this.fenced
            }
        });
        self.0.set(known);
    }

    /// A read-modify-write between two full barriers. It carries on what was passed.
    pub fn modify(&self) {
        tick();
        fence();
        self.load(Ordering::Acquire);
        let mut passed = self.0.get();
        join(&mut passed, &now());
        self.0.set(passed);
        fence();
    }

    /// One that finds another value.
    pub fn look(&self) {
        fence();
        self.load(Ordering::Acquire);
        fence();
    }
}
