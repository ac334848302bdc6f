//! The result of a replay under one design, and the recording, in the same numbers.

use schemars::JsonSchema;
use serde::Serialize;
use shootdown_sim::replay::{BYSTANDERS, DISTURBANCE, Hit, Quantiles, ReplayResult};
use shootdown_trace::program::Recorded;

/// A tail of latencies, ns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Tail {
    /// Their number.
    pub count: u64,
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// The longest.
    pub max_ns: f64,
}

impl From<Quantiles> for Tail {
    fn from(of: Quantiles) -> Self {
        Tail {
            count: of.count,
            p50_ns: of.p50_ns,
            p99_ns: of.p99_ns,
            max_ns: of.max_ns,
        }
    }
}

/// Interrupts that hit one kind of CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Hits {
    /// Their number.
    pub interrupts: u64,
    /// CPU time that they took.
    pub time_ns: f64,
}

/// Interrupts by the activity that they hit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct HitBy {
    /// CPUs that ran the space concerned.
    pub concerned: Hits,
    /// CPUs that ran another space, or kernel code.
    pub bystanders: Hits,
    /// CPUs that waited for a request of their own: the time was already lost.
    pub waiters: Hits,
    /// Idle CPUs: no time is lost.
    pub idle: Hits,
}

impl HitBy {
    fn new(result: &ReplayResult) -> Self {
        let of = |kind: Hit| {
            let found = result.hits.iter().find(|(hit, _)| *hit == kind);
            let (interrupts, ns) = found.map_or((0, 0.0), |(_, hits)| (hits.count, hits.ns));
            Hits {
                interrupts,
                time_ns: ns,
            }
        };
        HitBy {
            concerned: of(Hit::Concerned),
            bystanders: of(Hit::Bystander),
            waiters: of(Hit::Waiter),
            idle: of(Hit::Idle),
        }
    }
}

/// One design.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// Name of the design.
    pub design: String,
    /// Flushes that threads requested.
    pub flushes: u64,
    /// Those that reached other CPUs, by interrupt or broadcast.
    pub shootdowns: u64,
    /// Requests to other CPUs, one per CPU.
    pub requests_queued: u64,
    /// Interrupts sent, one for each target.
    pub interrupts_sent: u64,
    /// Interrupts taken.
    pub interrupts_taken: u64,
    /// `interrupts_sent` against the recording, times the scale: -0.1 is a tenth fewer. Null when it had none.
    pub interrupts_change: Option<f64>,
    /// CPU time of requesters in invalidation, waiting included.
    pub requester_time_ns: f64,
    /// CPU time that interrupts took from the CPUs that they hit.
    pub victim_time_ns: f64,
    /// Both, as a share of the time of all CPUs that the program uses.
    pub lost_share: f64,
    /// From the call of a flush that reached other CPUs to its end. Null where none did.
    pub shootdown_latency: Option<Tail>,
    /// Which CPUs interrupts hit.
    pub hit: HitBy,
    /// Time that one interrupt takes from the interrupted code. Null without any.
    pub disturbance: Option<Tail>,
    /// The same of bystanders only.
    pub bystander_disturbance: Option<Tail>,
    /// Requests at bystanders: CPUs that ran another space, kernel code or nothing. For designs whose requests name no
    /// space (`adaptive`) only those in lazy TLB mode are known.
    pub bystanders_interrupted: u64,
    /// How much longer than recorded the program takes, as a share.
    pub slowdown: f64,
    /// Accesses through a translation that should have been gone.
    pub stale: u64,
    /// Accesses that the oracle has checked.
    pub accesses_checked: u64,
    /// Events that the recording lost: they are missing from every number here.
    pub lost_events: u64,
}

impl Row {
    /// For a program that was scaled by `times`.
    pub fn new(design: &str, result: &ReplayResult, recorded: &Recorded, times: u64, lost_events: u64) -> Self {
        let (counts, answers) = (&result.counts, &result.counts.answers);
        let all_ns = result.cpu_ns;
        let before = recorded.queued * times;
        let tail = |name: &str| {
            let found = result.latencies.iter().find(|latency| latency.name == name)?;
            Some(Tail {
                count: found.count,
                p50_ns: found.p50_ns,
                p99_ns: found.p99_ns,
                max_ns: found.max_ns,
            })
        };
        Row {
            design: design.to_string(),
            flushes: result.requests,
            shootdowns: counts.interrupting + counts.broadcast_requests,
            requests_queued: counts.queued,
            interrupts_sent: result.interrupts_sent,
            interrupts_taken: result.interrupts_taken,
            interrupts_change: (before > 0).then(|| result.interrupts_sent as f64 / before as f64 - 1.0),
            requester_time_ns: result.requester_ns,
            victim_time_ns: result.victim_ns,
            lost_share: if all_ns > 0.0 {
                (result.requester_ns + result.victim_ns) / all_ns
            } else {
                0.0
            },
            shootdown_latency: result.shootdowns.map(Tail::from),
            hit: HitBy::new(result),
            disturbance: tail(DISTURBANCE),
            bystander_disturbance: tail(BYSTANDERS),
            bystanders_interrupted: answers.elsewhere + answers.unloaded,
            slowdown: result.put_off_ns as f64 * 1e-9 / recorded.seconds().max(1e-9),
            stale: result.stale,
            accesses_checked: result.accesses_checked,
            lost_events,
        }
    }
}

/// One count that the replay predicts and the recording has.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Prediction {
    /// The count.
    pub what: &'static str,
    /// How many the recording has.
    pub recorded: u64,
    /// How many the replay makes.
    pub predicted: u64,
    /// (predicted - recorded) / recorded. Null when nothing was recorded.
    pub error: Option<f64>,
}

/// The facts withheld from a replay, beside its prediction: only where program and machine are as recorded. For a
/// recording of `one_program` these are the requests alone: answers and switches are logged for every task, and those
/// of others are left out.
pub fn predictions(result: &ReplayResult, recorded: &Recorded, one_program: bool) -> Vec<Prediction> {
    let answers = &result.counts.answers;
    let line = |what, recorded: u64, predicted: u64| Prediction {
        what,
        recorded,
        predicted,
        error: (recorded > 0).then(|| predicted as f64 / recorded as f64 - 1.0),
    };
    let queued = line("requests queued to other CPUs", recorded.queued, result.counts.queued);
    if one_program {
        return vec![queued];
    }
    vec![
        queued,
        line(
            "carried out there, the space being loaded",
            recorded.remote,
            answers.flushed + answers.current,
        ),
        line(
            "at a CPU that had left the space",
            recorded.elsewhere,
            answers.elsewhere,
        ),
        line(
            "at a CPU that had it loaded lazily (not noted)",
            recorded.queued.saturating_sub(recorded.remote + recorded.elsewhere),
            answers.unloaded,
        ),
        line(
            "root loads at switches",
            recorded.kept + recorded.flushed,
            result.kept + result.flushed + result.counts.roots_kernel,
        ),
        line("of these with a flush", recorded.flushed, result.flushed),
    ]
}
