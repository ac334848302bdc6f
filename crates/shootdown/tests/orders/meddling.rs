//! What other CPUs do in the middle of what one does: before each operation on a word, now and then, one of them does
//! something whole that waits for nobody, or takes an interrupt. Walks last until another such moment. Or one thing of
//! a test's choice happens, at an operation of its choice (`chosen.rs`).

use crate::caches::{self, LINK, Name};
use crate::play::{Play, Random};
use crate::world::{self, CPUS, Minding, deliver, here, on, on_without_interrupts};
use shootdown::{LOG_ENTRIES, Requests, Tags, Walk, Walkers};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Operations on words between two moments, on average.
const RARELY: u64 = 12;

/// One load in so many finds what was there before, if it may.
const OLD: u64 = 3;

struct UnderWay {
    cpu: usize,
    /// Whose link to a table was read, and which.
    link: Name,
    version: u64,
    nmi: bool,
    /// Not dropped with its thread, of which by then not enough is left.
    walk: ManuallyDrop<Walk<'static, 'static, &'static Minding, 1>>,
}

std::thread_local! {
    static PLAY: Cell<Option<(&'static Play, &'static Random)>> = const { Cell::new(None) };
    static RARE: Cell<u64> = const { Cell::new(RARELY) };
    static BUSY: Cell<bool> = const { Cell::new(false) };
    /// Loads find the latest.
    static FRESH: Cell<bool> = const { Cell::new(false) };
    /// What happens at an operation of the test's choice, and how many operations come before that.
    static CHOSEN: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// By which loads find what was there before, where nothing happens at random.
    static LATE: RefCell<Option<Random>> = const { RefCell::new(None) };
    /// Only those of whoever is come in on.
    static LATE_OUTSIDE: Cell<bool> = const { Cell::new(false) };
    static WALKS: RefCell<Vec<UnderWay>> = const { RefCell::new(Vec::new()) };
}

/// From now on, in this run; or in none.
pub fn begin(play: Option<&'static Play>, seed: u64) {
    WALKS.take();
    CHOSEN.take();
    LATE.take();
    BUSY.set(false);
    RARE.set(RARELY);
    PLAY.set(play.map(|play| (play, &*Box::leak(Box::new(Random::new(seed + 77))))));
}

/// Nothing comes in any more, and no walk is under way.
pub fn end_all() {
    PLAY.set(None);
    end_walks();
}

/// The same, with this many operations between two moments.
pub fn begin_often(play: &'static Play, seed: u64, rarely: u64) {
    begin(Some(play), seed);
    RARE.set(rarely);
}

/// How what was to come in has come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    In,
    /// Not at all: there were no so many operations.
    Never,
    /// It waited for whom it came in on, which this world cannot play: all was left as it was.
    Waits,
}

/// What unwinds from a wait for whoever was come in on.
struct Waits;

/// Does `one`; and `other`, once, before the operation on a word that comes after so many. Meanwhile some loads find
/// what was there before, if they may, which of them by `seed`; of `other`, where that is odd; none without.
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

/// What was chosen happens now, if so. Whether there was anything.
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

/// What came in by choice, if it did, waits for ever, and ends here.
pub fn gives_up() {
    if BUSY.get() && LATE.with_borrow(Option::is_some) && !std::thread::panicking() {
        resume_unwind(Box::new(Waits));
    }
}

/// Whether what happens now has come in.
pub fn meddles() -> bool {
    BUSY.get()
}

/// Something may happen elsewhere now.
pub fn moment() {
    if BUSY.get() || chosen() {
        return;
    }
    let Some((play, random)) = PLAY.get().filter(|_| !BUSY.get() && !std::thread::panicking()) else {
        return;
    };
    if random.one_in(RARE.get()) {
        BUSY.set(true);
        meddle(play, random);
        BUSY.set(false);
    }
}

/// Whether a load finds what was there before, if it may.
pub fn reads_late() -> bool {
    if std::thread::panicking() {
        return false;
    }
    let at_random = || PLAY.get().is_some_and(|(_, random)| !FRESH.get() && random.one_in(OLD));
    let by_choice = |random: &Random| !(BUSY.get() && LATE_OUTSIDE.get()) && random.one_in(2);
    LATE.with_borrow(|late| late.as_ref().map_or_else(at_random, by_choice))
}

fn meddle(play: &'static Play, random: &Random) {
    let cpu = random.below(CPUS as u64) as usize;
    let space = play.some_space(random);
    // Where it happens often, flushes are what comes in most.
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
    // Where nobody has interrupts off, whoever is asked answers: then a whole flush may come in.
    let all_answer = (0..CPUS).all(|cpu| !world::is_masked(cpu));
    // A roll-over may be under way, under its lock.
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
            // Now and then as many as the log has room for.
            let count = if random.one_in(8) { LOG_ENTRIES + 1 } else { 1 };
            // A mode of before is one in which it would have to wait.
            FRESH.set(true);
            (0..count)
                .filter(|_| can_dispatch(play, space))
                .for_each(|_| play.dispatch(space, random));
            FRESH.set(false);
        }
        _ => {}
    });
}

/// Whether a flush of this space waits for nobody before it is to be waited for.
fn can_dispatch(play: &Play, space: usize) -> bool {
    let policy = play.engine.policy();
    policy.requests == Requests::Log && policy.tags != Tags::System && play.space(space).system_tag().is_none()
}

/// A walk begins on this CPU, and lasts; from NMI context or not.
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

/// Whether a walk is under way on that CPU.
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

/// A table is freed (C3): no walk read the link to it.
pub fn nobody_walks(link: Name, unlinked: u64) {
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
