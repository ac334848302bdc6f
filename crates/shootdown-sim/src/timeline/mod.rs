//! The activities of each CPU around a shootdown, for display: a record that the simulated kernel makes on request.
//!
//! Owns the record and the choice of a shootdown from it. A run without recording pays a load and a branch at each
//! possible event. A run with recording charges nothing for it and reads only the clock, so its results are the same.

use crate::machine;
use crate::model::Model;
use crate::run::{RunResult, RunSpec, run};
use std::cell::{Cell, RefCell};

mod parts;

pub use parts::{Part, Piece, divide};

/// Most events kept, to bound memory in a long window.
pub const MOST_EVENTS: usize = 2_000_000;

/// An event on a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Enters the engine to flush; the entries are already cleared.
    FlushBegins,
    /// Learns that no CPU uses the old translations.
    FlushEnds,
    /// Sends an interrupt to these CPUs.
    Sends(Vec<usize>),
    /// Has sent them; they arrive later.
    SendsEnd,
    /// Posts a request at that CPU.
    Asks(usize),
    /// Begins its bookkeeping for its targets.
    Prepares,
    /// Has done its bookkeeping for its targets; from here on it waits for them.
    Prepared,
    /// In its own flush: waits for a cache line from here on.
    LineWaitBegins,
    /// The line has arrived.
    LineWaitEnds,
    /// Begins work that is no part of the flush, while its targets answer.
    MeanwhileBegins,
    /// Continues the flush.
    MeanwhileEnds,
    /// Takes an interrupt; the cost of entry follows.
    HandlerEnters,
    /// Returns to the interrupted code.
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
    /// The hypervisor deschedules the CPU.
    OutBegins,
    /// It runs again.
    OutEnds,
    /// Runs kernel code only from here on, in lazy TLB mode.
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
    /// The event.
    pub what: What,
}

/// Which events are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Off,
    /// Warm-up: only which CPUs are in lazy TLB mode.
    Lazy,
    /// All except what requesters do at each line.
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
    /// Location of the engine's per-CPU state: address, bytes of each CPU, CPUs.
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

/// Records an event of the running CPU. Free of charge in virtual time.
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

/// The running CPU writes, or is about to write, to the word at `address`: a request, if that word is in the state of
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

/// Sets the location of the engine's state of `cpus` CPUs, `each` bytes of each from `address` on.
pub(crate) fn engine_state(address: usize, each: usize, cpus: usize) {
    if LEVEL.get() != Level::Off {
        RECORD.with_borrow_mut(|record| record.state = (address, each, cpus));
    }
}

/// The warm-up is over: from here on all events are kept.
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

/// Ends recording, also after a failed run.
struct Recording;

impl Drop for Recording {
    fn drop(&mut self) {
        LEVEL.set(Level::Off);
        RECORD.take();
    }
}

/// Carries out `run` and returns, with its result, the events of every CPU from the start, in order of time.
pub(crate) fn recorded<T>(model: &Model, run: impl FnOnce() -> T) -> (T, Vec<TimelineEvent>) {
    let recording = Recording;
    RECORD.take();
    LEVEL.set(Level::All);
    let result = run();
    let events = RECORD.take().events;
    drop(recording);
    (result, in_order(events, model))
}

/// The record, in order of time: CPUs run ahead of each other by less than any CPU can observe.
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

/// Carries out `spec` and returns, with its result, the events of every CPU in the measured window, in order of time.
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
    /// When it learned that the flush is complete, virtual ns.
    pub end: f64,
    /// Interrupts it sent: time and target CPU.
    pub sent: Vec<(f64, Vec<usize>)>,
    /// CPUs at which it posted requests, in order, and when. A CPU that already had a pending interrupt is not sent
    /// one.
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
