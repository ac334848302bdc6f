//! `trace:FILE`: a recorded program as a workload of `compare`.
//!
//! Owns the meaning of threads and operations for a recording, and turns a run into a replay and its result back. As
//! many threads as the recording had CPUs are the program itself; `n` times as many are the program with each of its
//! threads `n` times in the same space (`--scale threads:n` of `replay`). One operation is a flush that a thread
//! requests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shootdown_sim::model::Model;
use shootdown_sim::replay::{self, ReplayResult, ReplaySpec, Scale};
use shootdown_sim::run::{RunResult, RunSpec};
use shootdown_trace::program::Step;

use super::{Recording, limits};
use crate::args::{CompareArgs, Metric};
use crate::failure::Failure;
use crate::print::number;
use crate::runs::queue::Runner;

/// The prefix of the file's name.
pub const PREFIX: &str = "trace:";

/// The file of a workload that is a recording.
pub fn file(workload: &str) -> Option<&Path> {
    workload.trim().strip_prefix(PREFIX).map(Path::new)
}

/// A recording as a workload.
#[derive(Debug)]
pub struct Recorded {
    recording: Recording,
    /// With as many CPUs as were recorded.
    models: Vec<Model>,
}

impl Recorded {
    /// Opens the recording and reads it through.
    ///
    /// # Errors
    /// One line: the file and its error; an option without meaning for a recording; Ctrl-C.
    pub fn open(file: &Path, args: &CompareArgs, stop: &AtomicBool) -> Result<Self, Failure> {
        let refuse = |what: &str| Err(Failure::Input(format!("{}: {what}", args.workload.trim())));
        if file.as_os_str().is_empty() {
            return refuse("name the recording, as in trace:build.parquet; `shootdown record` or `import` makes one");
        }
        if args.lru_drain {
            return refuse("--lru-drain: a recording says nothing of the LRU; leave it out");
        }
        if args.metric == Some(Metric::Rate) {
            return refuse("--metric rate: the rate of a recording is the same under every design; use --metric time");
        }
        let recording = Recording::open(file, || stop.load(Ordering::Relaxed))?;
        if recording.recorded.requests == 0 {
            return refuse("this recording has no flush requests: there is nothing to compare");
        }
        let models = limits::models_of(recording.cpus())?;
        Ok(Recorded { recording, models })
    }

    /// CPUs of the recording: the least number of threads, of which every other is a multiple.
    pub fn cpus(&self) -> usize {
        self.recording.cpus()
    }

    /// Its one-line description.
    pub fn description(&self) -> String {
        let command = self.recording.metadata.command.as_deref();
        format!(
            "a recorded program{}: {:.3} s on {} CPUs, \
             with n times as many threads each of its own n times (one op: a requested flush)",
            command.map(|command| format!(" ({command})")).unwrap_or_default(),
            self.recording.recorded.seconds(),
            self.cpus()
        )
    }

    /// What the recording can and cannot tell, line by line, as `replay` prints it.
    pub fn notes(&self) -> Vec<String> {
        let (recorded, metadata) = (&self.recording.recorded, &self.recording.metadata);
        let mut notes = vec![format!(
            "recorded: {:.3} s on {} CPUs, {} requested flushes; threads beyond {}: \
             each of its threads as many times more often",
            recorded.seconds(),
            self.cpus(),
            number::count(recorded.requests),
            self.cpus()
        )];
        notes.extend(limits::damage(metadata).lines().map(str::to_string));
        notes.extend(limits::lines(&self.recording, &self.models));
        notes.push("rates: the recording's own under every design; CPU time and latencies are compared".to_string());
        notes
    }

    /// Events that the recording lost: they are missing from every result.
    pub fn lost_events(&self) -> u64 {
        self.recording.metadata.lost_events
    }

    /// Checks a run of it.
    ///
    /// # Errors
    /// One line with the error and the remedy.
    pub fn validate(&self, spec: &RunSpec) -> Result<(), String> {
        if spec.parameters.of_workload() {
            return Err("--set workload...: a recording has no parameters; leave it out".into());
        }
        if spec.virtual_ms.is_some_and(|ms| !(ms > 0.0 && ms <= 1e9)) {
            return Err(
                "--virtual-ms: expected milliseconds above 0; without it the whole recording is replayed".into(),
            );
        }
        let (cpus, most) = (self.cpus(), spec.machine.topology.cpus());
        if spec.threads == 0 || !spec.threads.is_multiple_of(cpus) {
            return Err(format!(
                "--threads {}: recorded on {cpus} CPUs, so it has to be a multiple of {cpus}; give {cpus}, {}, ..",
                spec.threads,
                2 * cpus
            ));
        }
        if spec.threads > most {
            return Err(format!(
                "--threads {}: {} has {most} CPUs; give at most {}, or scale the machine with --cpus {}",
                spec.threads,
                spec.machine.name,
                most / cpus * cpus,
                spec.threads
            ));
        }
        replay::validate(&self.replay_of(spec))
    }

    fn replay_of(&self, spec: &RunSpec) -> ReplaySpec {
        ReplaySpec {
            machine: Arc::clone(&spec.machine),
            design: spec.design.clone(),
            settings: spec.parameters.design().clone(),
            seed: spec.seed,
            scale: Scale::Threads((spec.threads / self.cpus()) as u32),
            recorded_cpus: self.cpus(),
        }
    }

    /// Replays runs of this recording; `other` does the rest.
    pub fn runner<'a>(&'a self, other: &'a dyn Runner) -> Replaying<'a> {
        Replaying { recorded: self, other }
    }

    fn run(&self, spec: &RunSpec, progress: &mut dyn FnMut(f64) -> bool) -> Result<RunResult, String> {
        let read = Arc::new(AtomicU64::new(0));
        // Relaxed: a number for people.
        let count = Arc::clone(&read);
        let steps = self.recording.steps(move |events| {
            count.fetch_add(events, Ordering::Relaxed);
        });
        let all = self.recording.recorded.events.max(1) as f64;
        let mut go_on = || progress((read.load(Ordering::Relaxed) as f64 / all).min(1.0));
        let result = replay::replay(&self.replay_of(spec), first(steps, spec.virtual_ms), &mut go_on)?;
        Ok(as_run(result))
    }
}

/// The steps of the first `ms` milliseconds; all of them by default.
fn first(steps: impl Iterator<Item = Step> + 'static, ms: Option<f64>) -> impl Iterator<Item = Step> + 'static {
    let mut begun = None;
    steps.take_while(move |step| {
        let begun = *begun.get_or_insert(step.time_ns);
        ms.is_none_or(|ms| step.time_ns.saturating_sub(begun) as f64 <= ms * 1e6)
    })
}

/// A replay as the result of a run.
fn as_run(result: ReplayResult) -> RunResult {
    let per_op = |count: u64| count as f64 / result.requests.max(1) as f64;
    let invalidation = result.requester_ns + result.victim_ns;
    let all_ns = result.cpu_ns;
    RunResult {
        ops: result.requests,
        virtual_ns: result.virtual_ns,
        ops_per_s: result.requests as f64 / (result.virtual_ns * 1e-9),
        half_width: None,
        warm: true,
        ipis_per_op: per_op(result.interrupts_sent),
        interrupts_per_op: per_op(result.interrupts_taken),
        flush_share: if all_ns > 0.0 { invalidation / all_ns } else { 0.0 },
        stale: result.stale,
        accesses_checked: result.accesses_checked,
        caught_after: None,
        diagnosis: result.diagnosis,
        tables_freed_per_s: 0.0,
        events: result.events,
        time_shares: result.time_shares,
        latencies: result.latencies,
        host_seconds: result.host_seconds,
    }
}

/// Runs recordings by replaying them.
pub struct Replaying<'a> {
    recorded: &'a Recorded,
    other: &'a dyn Runner,
}

impl Runner for Replaying<'_> {
    fn run(&self, spec: &RunSpec, progress: &mut dyn FnMut(f64) -> bool) -> Result<RunResult, String> {
        match file(&spec.workload) {
            Some(_) => self.recorded.run(spec, progress),
            None => self.other.run(spec, progress),
        }
    }
}
