//! The activities of each CPU around a shootdown, for display: a record that the simulated kernel makes on request.
//!
//! Owns the choice of a shootdown from the record that `machine::activity` keeps.

use crate::machine::{self, activity};
use crate::model::Model;
use crate::run::{RunResult, RunSpec, run};

mod parts;

pub use crate::machine::activity::{MOST_EVENTS, What};
pub use parts::{Part, Piece, divide};

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

/// Carries out `run` and returns, with its result, the events of every CPU from the start, in order of time.
pub(crate) fn recorded<T>(model: &Model, run: impl FnOnce() -> T) -> (T, Vec<TimelineEvent>) {
    let recording = activity::Recording::of_whole_run();
    let result = run();
    (result, in_order(recording.end(), model))
}

/// The record of the first machine, in order of time: CPUs run ahead of each other by less than any CPU can observe.
fn in_order(mut events: Vec<activity::Activity>, model: &Model) -> Vec<TimelineEvent> {
    let cpus = model.topology.cpus();
    events.retain(|event| event.0 < cpus);
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
/// Of several virtual machines only the first is shown.
///
/// # Errors
/// As [`run`].
pub fn trace(spec: &RunSpec, progress: &mut dyn FnMut(f64) -> bool) -> Result<(RunResult, Vec<TimelineEvent>), String> {
    let recording = activity::Recording::of_window();
    let result = run(spec, progress)?;
    Ok((result, in_order(recording.end(), &spec.machine)))
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
    pub posted: Vec<(f64, usize)>,
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
                posted: Vec::new(),
                broadcasts: 0,
            }),
            (What::Sends(targets), Some(flush)) => flush.sent.push((event.ns, targets.clone())),
            (What::Posts(target), Some(flush)) if !flush.posted.iter().any(|(_, posted)| posted == target) => {
                flush.posted.push((event.ns, *target));
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
