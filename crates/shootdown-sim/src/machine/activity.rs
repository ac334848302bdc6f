//! Records what each CPU does around a shootdown.
//!
//! Owns the record. A run without recording pays a load and a branch at each possible event. A run with recording
//! charges nothing for it and reads only the clock, so its results are the same.

use super::current::{cpu as running_cpu, now_ticks};
use std::cell::{Cell, RefCell};

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
    Posts(usize),
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
    events: Vec<Activity>,
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
    let cpu = running_cpu();
    RECORD.with_borrow_mut(|record| {
        if LEVEL.get() != Level::Lazy {
            return record.add(cpu, now_ticks(), what);
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
    let (cpu, now) = (running_cpu(), now_ticks());
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
    let (cpu, now) = (running_cpu(), now_ticks());
    RECORD.with_borrow_mut(|record| {
        let (base, each, cpus) = record.state;
        let target = address.wrapping_sub(base).checked_div(each).unwrap_or(usize::MAX);
        if target < cpus && target != cpu && record.flushes(cpu) {
            record.add(cpu, now, What::Posts(target));
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
        let now = now_ticks();
        RECORD.with_borrow_mut(|record| {
            let lazy = std::mem::take(&mut record.lazy);
            record
                .events
                .extend(lazy.into_iter().map(|cpu| (cpu, now, What::LazyEnters)));
        });
    }
}

/// A CPU's event, and its time in ticks.
pub(crate) type Activity = (usize, u64, What);

/// A recording. Dropping it ends it, also after a failed run.
pub(crate) struct Recording(());

impl Recording {
    /// Records all events from the start of the run. One recording at a time.
    pub(crate) fn of_whole_run() -> Self {
        Self::begin(Level::All)
    }

    /// Records the measured window, from [`window_opens`] on, including requesters' events at each cache line. One
    /// recording at a time.
    pub(crate) fn of_window() -> Self {
        Self::begin(Level::Lazy)
    }

    fn begin(level: Level) -> Self {
        RECORD.take();
        LEVEL.set(level);
        Recording(())
    }

    /// Ends it and returns the record, each CPU's events in order of time.
    pub(crate) fn end(self) -> Vec<Activity> {
        RECORD.take().events
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        LEVEL.set(Level::Off);
        RECORD.take();
    }
}
