//! The explanation of a run's requests as JSON, for programs: a contract, explained in `docs/src/tools/json.md`.

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use shootdown::{Costs, Reach};
use shootdown_sim::os::DecisionLog;
use shootdown_sim::run::{Explanation, RunResult, RunSpec};

use super::decisions::Kind;
use super::{Decision, calibrated, share, timed};
use crate::print::schema;

/// Why the requests of one run used the method that they did. Times are virtual.
#[derive(Serialize, JsonSchema)]
struct Document<'a> {
    /// The command line that repeats the run.
    command: &'a str,
    /// The run.
    run: crate::comparison::json::Run<'a>,
    /// Whether the design chooses between IPIs and broadcasts by cost.
    adaptive: bool,
    /// Requests of the measured window, one element for each method.
    requests: Vec<Requests>,
    /// The engine's cost estimate for each method. None when the design does not choose.
    costs: Vec<Believed>,
    /// Counts from the start of the machine.
    counts: Counts,
    /// Decisions about tags and thresholds, in order.
    decisions: Vec<Decided>,
    /// Number of later decisions that were not kept.
    decisions_dropped: u64,
    /// Of the requests that were timed, one element for each method.
    timed: Vec<Timed>,
}

/// The requests of the measured window that used one method.
#[derive(Serialize, JsonSchema)]
struct Requests {
    /// `local`, `interrupts` or `broadcast`.
    way: &'static str,
    /// Requests that used this method.
    count: u64,
    /// Share of all requests.
    share: f64,
    /// Mean time of the requester, waiting included. Null without requests, as are the next two.
    mean_ns: Option<f64>,
    /// Median of the same.
    p50_ns: Option<f64>,
    /// 99th percentile of the same.
    p99_ns: Option<f64>,
}

/// The engine's cost estimates; null for features that the machine lacks.
#[derive(Serialize, JsonSchema)]
struct Believed {
    /// `calibrated` (measured at start, if anything was) or `end`.
    when: &'static str,
    /// An interrupt to one CPU.
    interrupt_ns: u64,
    /// Each further CPU.
    interrupt_more_ns: u64,
    /// Time that an interrupt takes from its target.
    disturbed_ns: u64,
    /// A broadcast. Null where the machine has none.
    broadcast_ns: Option<u64>,
    /// Time that a broadcast takes from other CPUs, where firmware interrupts them for it.
    broadcast_disturbed_ns: Option<u64>,
    /// One page on this CPU.
    page_ns: u64,
    /// A whole tag on this CPU.
    tag_ns: u64,
    /// Number of other CPUs from which a request is broadcast. Null also where interrupts are cheaper for any number of
    /// CPUs.
    broadcast_from: Option<u64>,
}

/// Requests and catch-ups from the start of the machine.
#[derive(Serialize, JsonSchema)]
struct Counts {
    /// Requests that concerned no other CPU.
    local_only: u64,
    /// Requests that interrupted.
    interrupting: u64,
    /// Requests that were broadcast.
    broadcast_requests: u64,
    /// Of the broadcast ones, those under every tag.
    any_tag: u64,
    /// How often a CPU caught up page by page.
    caught_up_partly: u64,
    /// How often a CPU caught up by a whole tag.
    caught_up_whole: u64,
}

/// A decision about tags or thresholds.
#[derive(Serialize, JsonSchema)]
struct Decided {
    /// Time since the machine started.
    at_ns: u64,
    /// The decision.
    kind: Kind,
    /// CPUs that the space is active on.
    active: Option<u32>,
    /// Expected cost of its requests without a system-wide tag. Null where that was not the reason.
    without_tag_ns: Option<u64>,
    /// Expected cost with one. Null where that was not the reason.
    with_tag_ns: Option<u64>,
    /// The decision in words.
    what: String,
}

/// Requests that the engine timed; means.
#[derive(Serialize, JsonSchema)]
struct Timed {
    /// `interrupts` or `broadcast`.
    way: &'static str,
    /// How many were timed.
    count: usize,
    /// Expected cost.
    expected_ns: f64,
    /// Measured time.
    took_ns: f64,
    /// CPUs that they reached.
    targets: f64,
}

pub(super) fn render(
    command: &str,
    spec: &RunSpec,
    target: String,
    result: &RunResult,
    explanation: &Explanation,
) -> String {
    let Explanation {
        decision_log, counts, ..
    } = explanation;
    let adaptive = explanation.design.policy.reach == Reach::Adaptive;
    let all: u64 = decision_log.requests.iter().map(|requests| requests.count).sum();
    let requests = DecisionLog::WAYS
        .iter()
        .zip(&decision_log.requests)
        .map(|((_, way), requests)| Requests {
            way,
            count: requests.count,
            share: share(requests.count as f64, all as f64),
            mean_ns: (requests.count > 0).then(|| requests.mean_ns()),
            p50_ns: (requests.count > 0).then(|| requests.quantile_ns(0.5)),
            p99_ns: (requests.count > 0).then(|| requests.quantile_ns(0.99)),
        });
    let at_start = calibrated(decision_log).map(|costs| ("calibrated", costs));
    let costs = at_start.into_iter().chain([("end", explanation.costs)]);
    let decisions = decision_log
        .notes
        .iter()
        .filter_map(Decision::of)
        .map(|decision| Decided {
            at_ns: decision.at_ns,
            kind: decision.kind,
            active: decision.active,
            without_tag_ns: decision.costs.map(|(without, _)| without),
            with_tag_ns: decision.costs.map(|(_, with)| with),
            what: decision.what,
        });
    let timed = timed(decision_log).into_iter().map(|timed| Timed {
        way: timed.name,
        count: timed.requests,
        expected_ns: timed.expected_ns,
        took_ns: timed.took_ns,
        targets: timed.targets,
    });
    crate::print::json::pretty(&Document {
        command,
        run: crate::comparison::json::Run::of(spec, target, None, Ok(result)),
        adaptive,
        requests: requests.collect(),
        costs: costs
            .filter(|_| adaptive)
            .map(|(when, costs)| believed(when, &costs, explanation))
            .collect(),
        counts: Counts {
            local_only: counts.local_only,
            interrupting: counts.interrupting,
            broadcast_requests: counts.broadcast_requests,
            any_tag: counts.any_tag,
            caught_up_partly: counts.caught_up_partly,
            caught_up_whole: counts.caught_up_whole,
        },
        decisions: decisions.collect(),
        decisions_dropped: decision_log.decisions_dropped,
        timed: timed.collect(),
    })
}

fn believed(when: &'static str, costs: &Costs, explanation: &Explanation) -> Believed {
    let broadcast = explanation.broadcast;
    Believed {
        when,
        interrupt_ns: costs.interrupt_ns,
        interrupt_more_ns: costs.interrupt_more_ns,
        disturbed_ns: costs.disturbed_ns,
        broadcast_ns: broadcast.then_some(costs.broadcast_ns),
        broadcast_disturbed_ns: broadcast.then(|| costs.disturbed_ns * explanation.broadcast_interrupts),
        page_ns: costs.page_ns,
        tag_ns: costs.tag_ns,
        broadcast_from: Some(costs.broadcast_from).filter(|&from| broadcast && from != u64::MAX),
    }
}

/// What `explain --json` prints.
pub fn schema() -> Schema {
    schema::of::<Document>("explain")
}
