//! The `explain` command: why the requests of one run used the methods that they did, in words and one plot.
//!
//! It shows the records of the engine and the simulated machine and computes only shares and rounding.

mod decisions;
mod json;
mod page;

pub use json::schema;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use shootdown::{CONFIRM_STREAK, Costs, EXPLORE_ONE_IN, Event, Reach, Tags, Way};
use shootdown_sim::os::{DecisionLog, Requests};
use shootdown_sim::run::{self, Explanation, RunResult, RunSpec};

use crate::args::{DECISIONS, ExplainArgs};
use crate::catalog;
use crate::comparison::interval;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::number;
use crate::print::output::{self, Destination, Kind};
use crate::print::table::{Column, Grid, Tables};
use crate::runs::one::one_run;
use crate::runs::target::Target;
use decisions::{Decision, decisions};

/// Columns of the longest bar on a terminal.
const BAR: f64 = 24.0;
/// Default number of threads.
const THREADS: usize = 16;

/// Runs the workload once and explains it.
///
/// # Errors
/// With the mistake on the command line, or the failure of the run.
pub fn command(args: &ExplainArgs, stop: &AtomicBool) -> Result<u8, Failure> {
    let target = Target::of(&args.place.machine)?;
    let inputs = [Path::new(&args.place.machine.on)];
    let destination = args
        .html
        .as_deref()
        .map(|path| Destination::apart_from("--html", path, Kind::Page, &inputs))
        .transpose()?;
    let spec = RunSpec {
        workload: args.place.workload.clone(),
        machine: target.machine.clone(),
        design: args.design.clone(),
        threads: target.threads(args.threads, THREADS),
        seed: args.run.seed,
        virtual_ms: args.run.virtual_ms,
        lru_drain: false,
        parameters: target.parameters.clone(),
    };
    run::validate(&spec).map_err(Failure::Input)?;
    let outcome = one_run(stop, "explained", |progress| run::explain(&spec, progress))?;
    let (result, explanation) = outcome.map_err(Failure::Input)?;
    let title = format!(
        "{} on {target}, {}, design {}",
        spec.workload,
        number::threads(spec.threads),
        spec.design
    );
    let most = usize::try_from(args.decisions).unwrap_or(usize::MAX);
    let mut paragraphs: Vec<String> = target.without_effect([spec.design.as_str()]);
    paragraphs.extend(words(&spec, &result, &explanation, most));
    let command = command_line(args, &spec, &target);
    let text = if args.json {
        json::render(&command, &spec, target.to_string(), &result, &explanation)
    } else {
        let paragraphs: String = paragraphs.iter().map(|paragraph| format!("{paragraph}\n")).collect();
        let table = Tables::new().draw(&requests_table(&explanation.decision_log));
        format!("{title}\n\n{table}\n{paragraphs}")
    };
    let page = || page::render(&title, &command, &explanation.decision_log, &paragraphs);
    let label = (!args.json).then_some("report");
    output::results(&text, destination.as_ref(), label, page, stop)?;
    let bad = result.stale > 0 && spec.design != catalog::CONTROL_DESIGN;
    Ok(if bad { BAD_RUN } else { SUCCESS })
}

/// Requests by method, with a bar for each share.
fn requests_table(decision_log: &DecisionLog) -> Grid {
    let all: u64 = decision_log.requests.iter().map(|requests| requests.count).sum();
    let columns = vec![
        Column::words(
            "method",
            "how requests reach other CPUs; local: no other CPU has to act",
        ),
        Column::words("", "").optional(3),
        Column::number("share", "of all requests of the measured window"),
        Column::number("requests", "in the measured window"),
        Column::number("mean", "time of the initiator, waiting included"),
        Column::number("p50", "the median of these times").optional(2),
        Column::number("p99", "99 % of these times are at most so long").optional(1),
    ];
    let row = |((_, name), requests): (&(Way, &str), &Requests)| {
        let share = share(requests.count as f64, all as f64);
        let [mean, p50, p99] = times(requests);
        let bar = "█".repeat((share * BAR).round() as usize);
        let count = number::count(requests.count);
        vec![name.to_string(), bar, number::percent(share), count, mean, p50, p99]
    };
    Grid::new(
        columns,
        vec![DecisionLog::WAYS.iter().zip(&decision_log.requests).map(row).collect()],
    )
}

/// The mean, the median and the 99th percentile of the requests' times; unknown without requests.
fn times(requests: &Requests) -> [String; 3] {
    let known = |ns: f64| if requests.count > 0 { ns } else { f64::NAN };
    [
        requests.mean_ns(),
        requests.quantile_ns(0.5),
        requests.quantile_ns(0.99),
    ]
    .map(|ns| number::time(known(ns)))
}

/// Whole nanoseconds as a time.
fn ns(ns: u64) -> String {
    number::time(ns as f64)
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The explanation, a paragraph per line.
fn words(spec: &RunSpec, result: &RunResult, explanation: &Explanation, decisions_shown: usize) -> Vec<String> {
    let Explanation {
        decision_log, counts, ..
    } = explanation;
    let operation = catalog::operation(&spec.workload);
    let likely = interval::of_run(spec, result).map_or(String::new(), |ends| {
        let [low, high] = ends.map(number::rate);
        format!(" [{low}, {high}: 90 % interval]")
    });
    let mut lines = vec![format!(
        "{} {operation}s/s{likely}; {} interrupts per {operation}; \
         {} of CPU time in invalidation; {} stale translations in {} checked accesses.",
        number::rate(result.ops_per_s),
        number::per_operation(result.ipis_per_op),
        number::percent(result.flush_share),
        result.stale,
        number::count(result.accesses_checked),
    )];
    if explanation.design.policy.reach != Reach::Adaptive {
        lines.push(format!("`{}` fixes the method: nothing was measured.", spec.design));
    } else {
        lines.extend(costs(explanation, spec.machine.topology.cpus() as u64));
    }
    let mut ways = format!(
        "From the start: {} needed no other CPU, {} sent interrupts",
        number::counted(counts.local_only, "request"),
        number::count(counts.interrupting)
    );
    if counts.broadcast_requests > 0 {
        ways.push_str(&format!(
            ", {} were broadcast",
            number::count(counts.broadcast_requests)
        ));
    }
    if counts.any_tag > 0 {
        ways.push_str(&format!(
            ", {} of these under every tag, for spaces without a system-wide tag",
            number::count(counts.any_tag)
        ));
    }
    lines.push(ways + ".");
    lines.push(format!(
        "CPUs caught up from the flush log {}, by flushing a whole tag {}.",
        number::times(counts.caught_up_partly),
        number::times(counts.caught_up_whole)
    ));
    lines.extend(decisions(decision_log, decisions_shown));
    lines.extend(measurements(decision_log));
    lines
}

/// The measurements at start, if any.
fn calibrated(decision_log: &DecisionLog) -> Option<Costs> {
    decision_log.notes.iter().find_map(|note| match note.event {
        Event::Calibrated(costs) => Some(costs),
        _ => None,
    })
}

fn costs(explanation: &Explanation, cpus: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(start) = calibrated(&explanation.decision_log) {
        lines.push(format!("Measured at start: {}.", cost_text(&start, explanation)));
    }
    lines.push(format!(
        "Estimated at the end: {}.",
        cost_text(&explanation.costs, explanation)
    ));
    let policy = &explanation.design.policy;
    if explanation.broadcast && matches!(policy.tags, Tags::HybridByCost { .. }) {
        lines.push(format!(
            "System-wide tags: a space gets one, or gives it back, \
             where that lowers the cost of its requests by more than the margin of an eighth. \
             A space that has changed for its costs before changes after {} timed requests in a row.",
            policy.demote_after
        ));
    }
    lines.push(if !explanation.broadcast {
        "This machine cannot broadcast: a request that needs other CPUs is sent by interrupts.".to_string()
    } else if explanation.aimed {
        "Remote actions name one tag: a request is broadcast, \
         to the CPUs that may hold it, if its space has a system-wide tag."
            .to_string()
    } else {
        threshold(explanation, cpus)
    });
    lines
}

/// The number of other CPUs from which requests are broadcast: both costs there, and the rule that keeps it there.
fn threshold(explanation: &Explanation, cpus: u64) -> String {
    let costs = &explanation.costs;
    let rule = format!(
        "It moves after {CONFIRM_STREAK} timed requests in a row by which the other method is cheaper by more than a \
         quarter. At most one timed request in {EXPLORE_ONE_IN} takes the other method, to keep its estimate fresh. \
         A space with a system-wide tag is always broadcast."
    );
    let not_yet = format!("by more than a quarter, but not for {CONFIRM_STREAK} timed requests in a row");
    let exceeds = |a: u64, b: u64| a > b.saturating_add(b / 4);
    if costs.broadcast_from == u64::MAX {
        let most = cpus.saturating_sub(1);
        let (by_interrupts, broadcast) = (costs.disturbance_ns(most), broadcast_ns(costs, explanation));
        let kept = if by_interrupts <= broadcast {
            "interrupts cost less".to_string()
        } else if exceeds(by_interrupts, broadcast) {
            format!("a broadcast costs less {not_yet}")
        } else {
            "a broadcast costs less, but not by more than a quarter".to_string()
        };
        return format!(
            "Threshold: none. Requests of a space without a system-wide \
             tag are sent by interrupts to any number of CPUs. To {most}: broadcast {}, interrupts {}; {kept}. {rule}",
            ns(broadcast),
            ns(by_interrupts)
        );
    }
    let from = costs.broadcast_from;
    let (by_interrupts, broadcast) = (costs.disturbance_ns(from), broadcast_ns(costs, explanation));
    let fewer = costs.disturbance_ns(from - 1);
    let kept = if exceeds(broadcast, by_interrupts) {
        format!("interrupts cost less {not_yet}")
    } else if exceeds(fewer, broadcast) {
        format!(
            "a broadcast costs less, and also for {} ({} by interrupts) {not_yet}",
            from - 1,
            ns(fewer)
        )
    } else if broadcast <= by_interrupts {
        "a broadcast costs less".to_string()
    } else {
        "interrupts cost less, but not by more than a quarter".to_string()
    };
    let others = match broadcast - costs.broadcast_ns {
        0 => String::new(),
        others => format!(" ({} of it on other CPUs)", ns(others)),
    };
    format!(
        "Threshold: a request of a space without a system-wide tag \
         is broadcast if it needs {from} other CPU{} or more, and sent by interrupts if it needs fewer. \
         To {from}: broadcast {}{others}, interrupts {} ({} of it on the targets); {kept}. {rule}",
        if from == 1 { "" } else { "s" },
        ns(broadcast),
        ns(by_interrupts),
        ns(by_interrupts - costs.interrupts_ns(from)),
    )
}

/// What a broadcast costs the machine: the initiator's time, and that of each CPU whose firmware is interrupted.
fn broadcast_ns(costs: &Costs, explanation: &Explanation) -> u64 {
    costs.broadcast_ns + costs.disturbed_ns * explanation.broadcast_interrupts
}

/// The engine's estimates. Without broadcasts, their cost is an assumption and is left out.
fn cost_text(costs: &Costs, explanation: &Explanation) -> String {
    let disturbed = broadcast_ns(costs, explanation) - costs.broadcast_ns;
    let broadcast = match (explanation.broadcast, disturbed) {
        (false, _) => String::new(),
        (true, 0) => format!(" a broadcast {},", ns(costs.broadcast_ns)),
        (true, _) => format!(
            " a broadcast {} and {} on the other CPUs, which its firmware interrupts,",
            ns(costs.broadcast_ns),
            ns(disturbed)
        ),
    };
    format!(
        "interrupting one CPU {} and {} for each further CPU,{broadcast} a page on the own CPU {}, a whole tag {}",
        ns(costs.interrupt_ns),
        ns(costs.interrupt_more_ns),
        ns(costs.page_ns),
        ns(costs.tag_ns)
    )
}

/// The timed requests that used one method; means.
struct Timed {
    way: Way,
    name: &'static str,
    requests: usize,
    expected_ns: f64,
    took_ns: f64,
    targets: f64,
}

/// Expected beside measured costs, for each timed method that reaches other CPUs.
fn timed(decision_log: &DecisionLog) -> Vec<Timed> {
    let mut all = Vec::new();
    for (way, name) in DecisionLog::WAYS {
        let samples: Vec<(u64, u64, u32)> = decision_log
            .notes
            .iter()
            .filter_map(|note| match note.event {
                Event::Measured {
                    way: of,
                    targets,
                    expected_ns,
                    took_ns,
                } if of == way => Some((expected_ns, took_ns, targets)),
                _ => None,
            })
            .collect();
        if samples.is_empty() || way == Way::Local {
            continue;
        }
        let mean = |of: &dyn Fn(&(u64, u64, u32)) -> u64| {
            samples.iter().map(|sample| of(sample) as f64).sum::<f64>() / samples.len() as f64
        };
        all.push(Timed {
            way,
            name,
            requests: samples.len(),
            expected_ns: mean(&|sample| sample.0),
            took_ns: mean(&|sample| sample.1),
            targets: mean(&|sample| u64::from(sample.2)),
        });
    }
    all
}

fn measurements(decision_log: &DecisionLog) -> impl Iterator<Item = String> {
    timed(decision_log).into_iter().map(|timed| {
        format!(
            "Timed requests by {}: {}, expected {} on average, took {}{}.",
            timed.name,
            number::count(timed.requests as u64),
            number::time(timed.expected_ns),
            number::time(timed.took_ns),
            match timed.way {
                Way::Interrupts => format!(", to {:.1} CPUs each", timed.targets),
                _ => String::new(),
            }
        )
    })
}

/// The command that repeats this.
fn command_line(args: &ExplainArgs, spec: &RunSpec, target: &Target) -> String {
    let window = spec
        .virtual_ms
        .map(|ms| format!(" --virtual-ms {}", number::written(ms)));
    let decisions = (args.decisions != DECISIONS).then(|| format!(" --decisions {}", args.decisions));
    format!(
        "shootdown explain {} --on {} --design {} --threads {} --seed {}{}{}",
        spec.workload,
        target.options(),
        spec.design,
        spec.threads,
        spec.seed,
        window.unwrap_or_default(),
        decisions.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests;
