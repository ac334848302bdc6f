//! What each CPU did around a shootdown, for people to look at: a record that the simulated kernel makes when it is
//! asked to.
//!
//! Owns the record and the choice of a shootdown from it. A run that records nothing pays a load and a branch at each
//! place that could; one that does charges nothing for it and reads nothing but the clock, so its results are the same.

use crate::machine;
use crate::model::Model;
use crate::run::{RunResult, RunSpec, run};
use std::cell::{Cell, RefCell};

mod parts;

pub use parts::{Part, Piece, divide};

/// Most events kept, so that a long window does not fill the memory.
pub const MOST_EVENTS: usize = 2_000_000;

/// Something that a CPU did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Enters the engine to flush; the entries are cleared already.
    FlushBegins,
    /// Is told that no CPU uses the old translations any more.
    FlushEnds,
    /// Sends an interrupt to these CPUs.
    Sends(Vec<usize>),
    /// Has sent them; they arrive later.
    SendsEnd,
    /// Posts a request at that CPU.
    Asks(usize),
    /// Begins its bookkeeping for the CPUs it asked.
    Prepares,
    /// Has done its bookkeeping for the CPUs it asked; from here on it waits for them.
    Prepared,
    /// In a flush of its own: waits for a cache line from here on.
    LineWaitBegins,
    /// The line is there.
    LineWaitEnds,
    /// Begins work that is no part of the flush, while others answer.
    MeanwhileBegins,
    /// Goes on with the flush.
    MeanwhileEnds,
    /// Takes an interrupt; the cost of entry follows.
    HandlerEnters,
    /// Is back where the interrupt came.
    HandlerLeaves,
    /// Begins to invalidate its own translations, or a whole tag of them.
    InvalidateBegins,
    /// Has invalidated.
    InvalidateEnds,
    /// Issues an invalidation to all CPUs by hardware.
    Broadcasts,
    /// Begins to wait for its broadcasts to be carried out.
    SyncBegins,
    /// Its broadcasts have been carried out.
    SyncEnds,
    /// The hypervisor takes the processor away.
    OutBegins,
    /// It runs again.
    OutEnds,
    /// Runs kernel code only from here on, on the space it had.
    LazyEnters,
    /// May touch user addresses again, having caught up.
    LazyLeaves,
    /// Loads a root, with a tag's translations kept or flushed.
    LoadsRoot {
        /// Whether the tag's translations are kept.
        keep: bool,
    },
}

/// An event of the record.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineEvent {
    /// The CPU.
    pub cpu: usize,
    /// Virtual nanoseconds since the run began.
    pub ns: f64,
    /// What it did.
    pub what: What,
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Off,
    /// Warm-up: only which CPUs are lazy.
    Lazy,
    /// All but what requesters do at each line.
    All,
    /// All.
    Lines,
}

#[derive(Default)]
struct Record {
    events: Vec<(usize, u64, What)>,
    lazy: Vec<usize>,
    /// Flushes that are open on each CPU.
    flushing: Vec<u32>,
    /// Where the engine's per-CPU state lies: address, bytes of each CPU, CPUs.
    state: (usize, usize, usize),
}

impl Record {
    fn add(&mut self, cpu: usize, ticks: u64, what: What) {
        if self.flushing.len() <= cpu {
            self.flushing.resize(cpu + 1, 0);
        }
        match what {
            What::FlushBegins => self.flushing[cpu] += 1,
            What::FlushEnds => self.flushing[cpu] = self.flushing[cpu].saturating_sub(1),
            _ => {}
        }
        if self.events.len() < MOST_EVENTS {
            self.events.push((cpu, ticks, what));
        }
    }

    fn flushes(&self, cpu: usize) -> bool {
        self.flushing.get(cpu).is_some_and(|&open| open > 0)
    }
}

thread_local! {
    // A run is one host thread, so runs on others are not recorded.
    static LEVEL: Cell<Level> = const { Cell::new(Level::Off) };
    static RECORD: RefCell<Record> = RefCell::default();
}

/// Notes what the running CPU does now. Free of charge in virtual time.
#[inline]
pub(crate) fn note(what: impl FnOnce() -> What) {
    if LEVEL.get() != Level::Off {
        keep(what());
    }
}

#[cold]
fn keep(what: What) {
    let cpu = machine::cpu();
    RECORD.with_borrow_mut(|record| {
        if LEVEL.get() != Level::Lazy {
            return record.add(cpu, machine::now_ticks(), what);
        }
        match what {
            What::LazyEnters => record.lazy.push(cpu),
            What::LazyLeaves => record.lazy.retain(|&lazy| lazy != cpu),
            _ => {}
        }
    });
}

/// The running CPU has waited for a cache line since `since`, ticks.
#[inline]
pub(crate) fn waited_for_line(since: u64) {
    if LEVEL.get() == Level::Lines {
        keep_wait(since);
    }
}

#[cold]
fn keep_wait(since: u64) {
    let (cpu, now) = (machine::cpu(), machine::now_ticks());
    RECORD.with_borrow_mut(|record| {
        if now > since && record.flushes(cpu) {
            record.add(cpu, since, What::LineWaitBegins);
            record.add(cpu, now, What::LineWaitEnds);
        }
    });
}

/// The running CPU writes, or is about to write, to the word at `address`: a request, if that is in the state of
/// another CPU.
#[inline]
pub(crate) fn writes_to(address: usize) {
    if LEVEL.get() == Level::Lines {
        keep_request(address);
    }
}

#[cold]
fn keep_request(address: usize) {
    let (cpu, now) = (machine::cpu(), machine::now_ticks());
    RECORD.with_borrow_mut(|record| {
        let (base, each, cpus) = record.state;
        let target = address.wrapping_sub(base).checked_div(each).unwrap_or(usize::MAX);
        if target < cpus && target != cpu && record.flushes(cpu) {
            record.add(cpu, now, What::Asks(target));
        }
    });
}

/// Says where the engine's state of `cpus` CPUs lies, `each` bytes of each from `address` on.
pub(crate) fn engine_state(address: usize, each: usize, cpus: usize) {
    if LEVEL.get() != Level::Off {
        RECORD.with_borrow_mut(|record| record.state = (address, each, cpus));
    }
}

/// The warm-up is over: from here on all is kept.
pub(crate) fn window_opens() {
    if LEVEL.get() == Level::Lazy {
        LEVEL.set(Level::Lines);
        let now = machine::now_ticks();
        RECORD.with_borrow_mut(|record| {
            let lazy = std::mem::take(&mut record.lazy);
            record
                .events
                .extend(lazy.into_iter().map(|cpu| (cpu, now, What::LazyEnters)));
        });
    }
}

/// Ends recording, however the run ended.
struct Recording;

impl Drop for Recording {
    fn drop(&mut self) {
        LEVEL.set(Level::Off);
        RECORD.take();
    }
}

/// Carries out `run` and returns, with its result, what every CPU did from the start, in order of time.
pub(crate) fn recorded<T>(model: &Model, run: impl FnOnce() -> T) -> (T, Vec<TimelineEvent>) {
    let recording = Recording;
    RECORD.take();
    LEVEL.set(Level::All);
    let result = run();
    let events = RECORD.take().events;
    drop(recording);
    (result, in_order(events, model))
}

/// The record, in order of time: CPUs run ahead of each other by less than what either can see.
fn in_order(mut events: Vec<(usize, u64, What)>, model: &Model) -> Vec<TimelineEvent> {
    events.sort_by_key(|event| event.1);
    let ns = |ticks: u64| model.ns(ticks as f64 / machine::TICKS_PER_CYCLE as f64);
    let event = |(cpu, ticks, what)| TimelineEvent {
        cpu,
        ns: ns(ticks),
        what,
    };
    events.into_iter().map(event).collect()
}

/// Carries out `spec` and returns, with its result, what every CPU did in the measured window, in order of time.
///
/// # Errors
/// As [`run`].
pub fn trace(spec: &RunSpec, progress: &mut dyn FnMut(f64) -> bool) -> Result<(RunResult, Vec<TimelineEvent>), String> {
    let recording = Recording;
    RECORD.take();
    LEVEL.set(Level::Lazy);
    let result = run(spec, progress)?;
    let events = RECORD.take().events;
    drop(recording);
    Ok((result, in_order(events, &spec.machine)))
}

/// One flush, from the requester's side.
#[derive(Debug, Clone, PartialEq)]
pub struct Shootdown {
    /// The CPU that flushes.
    pub sender: usize,
    /// When it entered the engine, virtual ns.
    pub begin: f64,
    /// When it was told that the flush is complete, virtual ns.
    pub end: f64,
    /// Interrupts it sent: when, and the target CPU.
    pub sent: Vec<(f64, Vec<usize>)>,
    /// CPUs that it posted requests at, in the order in which it did, and when. Those to which an interrupt was under
    /// way already are not among those it sent one.
    pub asked: Vec<(f64, usize)>,
    /// Broadcasts that it issued.
    pub broadcasts: usize,
}

impl Shootdown {
    /// CPUs that were interrupted, rising, each once.
    pub fn targets(&self) -> Vec<usize> {
        let mut targets: Vec<usize> = self.sent.iter().flat_map(|(_, targets)| targets.clone()).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }
}

/// Every flush that began and ended in the record, in order of its beginning.
pub fn shootdowns(events: &[TimelineEvent]) -> Vec<Shootdown> {
    let mut open: Vec<Shootdown> = Vec::new();
    let mut complete = Vec::new();
    for event in events {
        let mine = open.iter_mut().rev().find(|flush| flush.sender == event.cpu);
        match (&event.what, mine) {
            (What::FlushBegins, _) => open.push(Shootdown {
                sender: event.cpu,
                begin: event.ns,
                end: event.ns,
                sent: Vec::new(),
                asked: Vec::new(),
                broadcasts: 0,
            }),
            (What::Sends(targets), Some(flush)) => flush.sent.push((event.ns, targets.clone())),
            (What::Asks(target), Some(flush)) if !flush.asked.iter().any(|(_, asked)| asked == target) => {
                flush.asked.push((event.ns, *target));
            }
            (What::Broadcasts, Some(flush)) => flush.broadcasts += 1,
            (What::FlushEnds, Some(_)) => {
                if let Some(index) = open.iter().rposition(|flush| flush.sender == event.cpu) {
                    let mut flush = open.remove(index);
                    flush.end = event.ns;
                    complete.push(flush);
                }
            }
            _ => {}
        }
    }
    complete.sort_by(|a, b| a.begin.total_cmp(&b.begin));
    complete
}
