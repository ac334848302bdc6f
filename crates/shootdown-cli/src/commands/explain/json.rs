//! Why requests went the way they did as JSON, for programs: a contract, explained in `docs/src/tools/json.md`.

use serde::Serialize;
use shootdown::{Costs, Reach};
use shootdown_sim::os::Diary;
use shootdown_sim::run::{Explanation, RunResult, RunSpec};

use super::{Decision, calibrated, share, timed};

#[derive(Serialize)]
struct Document<'a> {
    command: &'a str,
    run: crate::print::json::Run<'a>,
    adaptive: bool,
    requests: Vec<Requests>,
    costs: Vec<Believed>,
    counts: Counts,
    decisions: Vec<Decided>,
    decisions_dropped: u64,
    timed: Vec<Timed>,
}

/// The requests of the measured window that went one way.
#[derive(Serialize)]
struct Requests {
    way: &'static str,
    count: u64,
    share: f64,
    /// Null where there were none, as the next two.
    mean_ns: Option<f64>,
    p50_ns: Option<f64>,
    p99_ns: Option<f64>,
}

/// What the engine took the ways to cost; null what the machine does not have.
#[derive(Serialize)]
struct Believed {
    when: &'static str,
    interrupt_ns: u64,
    interrupt_more_ns: u64,
    disturbed_ns: u64,
    broadcast_ns: Option<u64>,
    page_ns: u64,
    tag_ns: u64,
    /// Null also where interrupts are cheaper for any number of CPUs.
    broadcast_from: Option<u64>,
}

/// From the start.
#[derive(Serialize)]
struct Counts {
    local_only: u64,
    interrupting: u64,
    broadcast_requests: u64,
    any_tag: u64,
    caught_up_partly: u64,
    caught_up_whole: u64,
}

#[derive(Serialize)]
struct Decided {
    at_ns: u64,
    kind: &'static str,
    active: Option<u32>,
    without_tag_ns: Option<u64>,
    with_tag_ns: Option<u64>,
    what: String,
}

#[derive(Serialize)]
struct Timed {
    way: &'static str,
    count: usize,
    expected_ns: f64,
    took_ns: f64,
    targets: f64,
}

pub(super) fn render(
    command: &str,
    spec: &RunSpec,
    target: String,
    result: &RunResult,
    explanation: &Explanation,
) -> String {
    let Explanation { diary, counts, .. } = explanation;
    let adaptive = explanation.design.policy.reach == Reach::Adaptive;
    let all: u64 = diary.requests.iter().map(|requests| requests.count).sum();
    let requests = Diary::WAYS
        .iter()
        .zip(&diary.requests)
        .map(|((_, way), requests)| Requests {
            way,
            count: requests.count,
            share: share(requests.count as f64, all as f64),
            mean_ns: (requests.count > 0).then(|| requests.mean_ns()),
            p50_ns: (requests.count > 0).then(|| requests.quantile_ns(0.5)),
            p99_ns: (requests.count > 0).then(|| requests.quantile_ns(0.99)),
        });
    let at_start = calibrated(diary).map(|costs| ("calibrated", costs));
    let costs = at_start.into_iter().chain([("end", explanation.costs)]);
    let decisions = diary.notes.iter().filter_map(Decision::of).map(|decision| Decided {
        at_ns: decision.at_ns,
        kind: decision.kind,
        active: decision.active,
        without_tag_ns: decision.costs.map(|(without, _)| without),
        with_tag_ns: decision.costs.map(|(_, with)| with),
        what: decision.what,
    });
    let timed = timed(diary).into_iter().map(|timed| Timed {
        way: timed.name,
        count: timed.requests,
        expected_ns: timed.expected_ns,
        took_ns: timed.took_ns,
        targets: timed.targets,
    });
    crate::print::json::pretty(&Document {
        command,
        run: crate::print::json::Run::of(spec, target, None, Ok(result)),
        adaptive,
        requests: requests.collect(),
        costs: costs
            .filter(|_| adaptive)
            .map(|(when, costs)| believed(when, &costs, explanation.broadcast))
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
        decisions_dropped: diary.decisions_dropped,
        timed: timed.collect(),
    })
}

fn believed(when: &'static str, costs: &Costs, broadcast: bool) -> Believed {
    Believed {
        when,
        interrupt_ns: costs.interrupt_ns,
        interrupt_more_ns: costs.interrupt_more_ns,
        disturbed_ns: costs.disturbed_ns,
        broadcast_ns: broadcast.then_some(costs.broadcast_ns),
        page_ns: costs.page_ns,
        tag_ns: costs.tag_ns,
        broadcast_from: Some(costs.broadcast_from).filter(|&from| broadcast && from != u64::MAX),
    }
}
