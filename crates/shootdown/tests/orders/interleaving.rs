//! Actions of other CPUs in the middle of one CPU's action. Occasionally, before an operation on a word, another CPU
//! runs a complete action that waits for no CPU, or takes an interrupt. Walks last until another such point.
//! Alternatively a test chooses the action and the operation (`chosen.rs`).

use crate::caches::{self, LINK, Name};
use crate::play::{Play, Random};
use crate::world::{self, CPUS, TrackingKernel, deliver, here, on, on_without_interrupts};
use shootdown::{LOG_ENTRIES, Requests, Tags, Walk, Walkers};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Average number of operations on words between two such points.
const RARELY: u64 = 12;

/// One load in this many returns an older value, if it may.
const OLD: u64 = 3;

struct UnderWay {
    cpu: usize,
    /// Link to a table that was read, and its version.
    link: Name,
    version: u64,
    nmi: bool,
    /// Not dropped with its thread, whose other state is already gone by then.
    walk: ManuallyDrop<Walk<'static, 'static, &'static TrackingKernel, 1>>,
}

std::thread_local! {
    static PLAY: Cell<Option<(&'static Play, &'static Random)>> = const { Cell::new(None) };
    static RARE: Cell<u64> = const { Cell::new(RARELY) };
    static BUSY: Cell<bool> = const { Cell::new(false) };
    /// Loads return the latest value.
    static FRESH: Cell<bool> = const { Cell::new(false) };
    /// The chosen action, and the number of operations before it.
    static CHOSEN: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// Decides which loads return older values where nothing is random.
    static LATE: RefCell<Option<Random>> = const { RefCell::new(None) };
    /// Only loads of the interrupted action return older values.
    static LATE_OUTSIDE: Cell<bool> = const { Cell::new(false) };
    static WALKS: RefCell<Vec<UnderWay>> = const { RefCell::new(Vec::new()) };
}

/// From now on in this run, or never if `None`.
pub fn begin(play: Option<&'static Play>, seed: u64) {
    WALKS.take();
    CHOSEN.take();
    LATE.take();
    BUSY.set(false);
    RARE.set(RARELY);
    PLAY.set(play.map(|play| (play, &*Box::leak(Box::new(Random::new(seed + 77))))));
}

/// No more actions interrupt, and all walks are over.
pub fn end_all() {
    PLAY.set(None);
    end_walks();
}

/// The same, with this average number of operations between two points.
pub fn begin_often(play: &'static Play, seed: u64, rarely: u64) {
    begin(Some(play), seed);
    RARE.set(rarely);
}

/// Whether the chosen action has interrupted the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    In,
    /// It has not: there were fewer operations.
    Never,
    /// It had to wait for the CPU that it interrupted, which this simulation cannot run. Everything was left as it was.
    Waits,
}

/// Unwinds from a wait for the interrupted CPU.
struct Waits;

/// Runs `one`, and `other` once, before the operation on a word that comes after `operations` others. Meanwhile some
/// loads return older values if they may, chosen by `seed`. With an odd seed this includes loads of `other`; without a
/// seed there are none.
pub fn together(operations: u32, seed: Option<u64>, one: impl FnOnce(), other: impl FnOnce() + 'static) -> Came {
    CHOSEN.set(Some(Box::new(other)));
    LEFT.set(operations);
    LATE.set(seed.map(Random::new));
    LATE_OUTSIDE.set(seed.is_some_and(|seed| seed.is_multiple_of(2)));
    let done = catch_unwind(AssertUnwindSafe(one));
    LATE.set(None);
    match done {
        Ok(()) if CHOSEN.take().is_none() => Came::In,
        Ok(()) => Came::Never,
        Err(why) if why.is::<Waits>() => Came::Waits,
        Err(why) => resume_unwind(why),
    }
}

/// Runs the chosen action if its point is reached. Returns whether there was one.
fn chosen() -> bool {
    if LATE.with_borrow(Option::is_none) && CHOSEN.with_borrow(Option::is_none) {
        return false;
    }
    if LEFT.get() > 0 {
        LEFT.set(LEFT.get() - 1);
    } else if let Some(what) = CHOSEN.take() {
        BUSY.set(true);
        what();
        BUSY.set(false);
    }
    true
}

/// Called when a wait never ends. If the chosen action is running, ends the run.
pub fn gives_up() {
    if BUSY.get() && LATE.with_borrow(Option::is_some) && !std::thread::panicking() {
        resume_unwind(Box::new(Waits));
    }
}

/// Whether an interrupting action is running.
pub fn interleaves() -> bool {
    BUSY.get()
}

/// A point at which another CPU may run.
pub fn interleaving_point() {
    if BUSY.get() || chosen() {
        return;
    }
    let Some((play, random)) = PLAY.get().filter(|_| !BUSY.get() && !std::thread::panicking()) else {
        return;
    };
    if random.one_in(RARE.get()) {
        BUSY.set(true);
        interleave(play, random);
        BUSY.set(false);
    }
}

/// Whether a load returns an older value, if it may.
pub fn reads_late() -> bool {
    if std::thread::panicking() {
        return false;
    }
    let at_random = || PLAY.get().is_some_and(|(_, random)| !FRESH.get() && random.one_in(OLD));
    let by_choice = |random: &Random| !(BUSY.get() && LATE_OUTSIDE.get()) && random.one_in(2);
    LATE.with_borrow(|late| late.as_ref().map_or_else(at_random, by_choice))
}

fn interleave(play: &'static Play, random: &Random) {
    let cpu = random.below(CPUS as u64) as usize;
    let space = play.some_space(random);
    // With frequent interleaving, most actions are flushes.
    let what = if RARE.get() < RARELY && random.one_in(3) {
        19
    } else {
        random.below(20)
    };
    if what < 5 {
        return deliver();
    }
    if what < 7 {
        return on_without_interrupts(cpu, || play.look(space));
    }
    if world::is_busy(cpu) {
        return;
    }
    if what == 7 {
        return world::deschedule(cpu);
    }
    if walks(cpu) {
        return match what {
            8 => on_without_interrupts(cpu, || walk(play, space, true)),
            9..=12 if !in_nmi(cpu) => on_without_interrupts(cpu, || walk(play, space, false)),
            _ => end_last_walk_on(cpu),
        };
    }
    // If no CPU has interrupts off, every target answers, so a complete flush may run.
    let all_answer = (0..CPUS).all(|cpu| !world::is_masked(cpu));
    // A roll-over may be in progress, under its lock.
    let may_switch = play.engine.policy().tags != Tags::System || !world::is_masked(here());
    on(cpu, || match what {
        8..10 if play.off[cpu].get() => play.comes_on(),
        _ if play.off[cpu].get() => {}
        8..=9 if may_switch => play.enter(space),
        10 if may_switch => play.returns(),
        11 => play.leave(),
        12 => play.lazy(),
        13 => play.enter_kernel(),
        14 if random.one_in(2) => play.free(),
        14 => play.engine.tick(),
        15 if play.are_on() > 2 => play.goes_off(),
        16 | 17 => walk(play, space, random.one_in(4)),
        18 if random.one_in(2) => play.engine.tick_stops(),
        18 => play.engine.tick_resumes(),
        19 if all_answer && !random.one_in(3) => play.flush_something(space, random),
        19 => {
            // Occasionally more than the log can hold.
            let count = if random.one_in(8) { LOG_ENTRIES + 1 } else { 1 };
            // With an older mode it would have to wait.
            FRESH.set(true);
            (0..count)
                .filter(|_| can_dispatch(play, space))
                .for_each(|_| play.dispatch(space, random));
            FRESH.set(false);
        }
        _ => {}
    });
}

/// Whether a flush of this space can be dispatched without waiting.
fn can_dispatch(play: &Play, space: usize) -> bool {
    let policy = play.engine.policy();
    policy.requests == Requests::Log && policy.tags != Tags::System && play.space(space).system_tag().is_none()
}

/// Begins a walk on this CPU that does not end yet, in NMI context or not.
pub fn walk(play: &'static Play, space: usize, nmi: bool) {
    if play.engine.policy().walkers == Walkers::None {
        return;
    }
    let space = play.space(space);
    let walk = match nmi {
        true => play.engine.walk_from_nmi(space),
        false => play.engine.walk(space),
    };
    let link = (space.root().0, LINK);
    let version = caches::with(|caches| caches.found(here(), link));
    WALKS.with_borrow_mut(|walks| {
        walks.push(UnderWay {
            cpu: here(),
            link,
            version,
            nmi,
            walk: ManuallyDrop::new(walk),
        })
    });
}

/// Whether a walk is in progress on that CPU.
pub fn walks(cpu: usize) -> bool {
    WALKS.with_borrow(|walks| walks.iter().any(|walk| walk.cpu == cpu))
}

fn in_nmi(cpu: usize) -> bool {
    WALKS.with_borrow(|walks| walks.iter().any(|walk| walk.cpu == cpu && walk.nmi))
}

fn end_last_walk_on(cpu: usize) {
    let last = WALKS.with_borrow_mut(|walks| {
        let index = walks.iter().rposition(|walk| walk.cpu == cpu)?;
        Some(walks.remove(index))
    });
    on_without_interrupts(cpu, || drop(last.map(|last| ManuallyDrop::into_inner(last.walk))));
}

pub fn end_walks_on(cpu: usize) {
    while walks(cpu) {
        end_last_walk_on(cpu);
    }
}

pub fn end_walks() {
    (0..CPUS).for_each(end_walks_on);
}

/// A table is freed (C3): asserts that no walk read the link to it.
pub fn assert_no_walk(link: Name, unlinked: u64) {
    WALKS.with_borrow(|walks| {
        for walk in walks.iter().filter(|walk| walk.link == link) {
            assert!(
                walk.version >= unlinked,
                "a table is freed under a walk on CPU {} (C3)",
                walk.cpu
            );
        }
    });
}
