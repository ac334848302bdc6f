//! The `evidence` command: published tables beside simulated results and an interpolation baseline.
//!
//! A row whose workload, design or machine this program does not have is listed as not run, with the reason, and does
//! not count. A user's own rows replace the published ones. Every one of these must be runnable, and the shape of
//! curves, which concerns the published ones, is left out.

mod coverage;
mod findings;
mod floor;
mod interpolate;
mod json;
mod misses;
mod page;
mod plots;
mod runs;
mod shape;
mod text;

use crate::comparison::summary::relative_error;
pub use json::schema;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use self::runs::{Runs, lines};
use self::text::text;
use crate::args::EvidenceArgs;
use crate::comparison::interval::Interval;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::number;
use crate::print::output::{self, Destination, Kind};
use crate::published::{Metric, Published, Tables};
use crate::runs::plan::Settings;
use crate::runs::queue::{self, Outcome, Runner};
use crate::runs::target::quoted;
use shootdown_sim::run::RunSpec;

/// Virtual milliseconds of a run, if neither the user nor the row says. Fewer than usual: the command is to take less
/// than 15 s on two cores.
const VIRTUAL_MS: f64 = 15.0;

/// One published row beside its predictions, in the unit of its metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The row.
    pub published: Published,
    /// Median over the runs; none when all failed or nothing was run.
    pub simulated: Option<f64>,
    /// Its 90 % interval, as factors.
    pub interval: Option<Interval>,
    /// The interpolation's prediction, if there is one.
    pub interpolated: Option<f64>,
}

/// A number with the unit of its metric.
pub fn shown(metric: Metric, value: f64) -> String {
    match metric {
        Metric::OpsPerS => number::rate(value),
        Metric::NsPerOp => format!("{value:.0} ns"),
        Metric::InterruptsPerOp => format!("{} int.", number::per_operation(value)),
        Metric::IdleShare => format!("{} idle", number::percent(value)),
        Metric::FlushShare => format!("{} flush", number::percent(value)),
        Metric::Seconds => format!("{value:.3} s"),
        Metric::TimeRatio | Metric::RateRatio => format!("{value:.2}x"),
        Metric::P50Ns => format!("{} p50", number::time(value)),
        Metric::P99Ns => format!("{} p99", number::time(value)),
    }
}

/// Runs every row of the published tables, or of a user's own, and prints the errors.
///
/// # Errors
/// Bad input, Ctrl-C.
pub fn command(args: &EvidenceArgs, runner: &dyn Runner, stop: &AtomicBool) -> Result<u8, Failure> {
    let settings = Settings::new(&args.run, args.runs)?;
    let destination = args
        .html
        .as_deref()
        .map(|path| Destination::new("--html", path, Kind::Page))
        .transpose()?;
    let own = args.rows.as_deref();
    let Tables { rows, beside, notes } = own.map_or_else(|| Ok(Tables::embedded()), Tables::read)?;
    let (rows, left): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.not_run().is_none());
    let ideals = floor::rows(&rows);
    let mut plan = Runs::new(rows.iter().chain(&beside).chain(&ideals), &settings)?;
    // A user's own rows have no curves.
    let of_shape = match own {
        None => plan.places(shape::specs(&settings)?),
        Some(_) => Vec::new(),
    };
    let (plan, specs) = (&plan, &plan.specs);
    for spec in specs {
        shootdown_sim::run::validate(spec).map_err(Failure::Input)?;
    }
    let ran = queue::run_all(runner, specs, settings.jobs, stop)?;
    let missing = ran.missing();
    let failures = failures(specs, &ran.outcomes);
    let ended = |line: &Line| plan.ended(&line.published, &ran.outcomes);
    let outcomes = ran.clone().filled();
    let complete = |rows: &[Published]| {
        let lines = lines(rows, plan, &outcomes).into_iter();
        lines.filter(ended).collect::<Vec<_>>()
    };
    let (lines, lines_beside) = (complete(&rows), complete(&beside));
    let ideals = self::lines(&ideals, plan, &outcomes);
    let below = floor::below(&rows, &ideals);
    if lines.is_empty() && missing > 0 {
        return Err(Failure::Interrupted);
    }
    let command = command_line(&settings, own);
    let shape: &Vec<_> = &of_shape.iter().map(|&place| outcomes[place].clone()).collect();
    let mut verdict = String::new();

    let results = || outcomes.iter().filter_map(|outcome| outcome.as_ref().ok());
    let stale: u64 = results().map(|result| result.stale).sum();
    let accesses_checked = results().map(|result| result.accesses_checked).sum();
    let checked = number::count(accesses_checked);
    verdict.push_str(&if stale > 0 {
        format!(
            "STALE TRANSLATIONS: {} in {checked} checked accesses; the rates above mean nothing\n",
            number::count(stale)
        )
    } else {
        format!("stale translations: 0 in {checked} checked accesses\n")
    });
    verdict.push_str(&floor::verdict(&below, floor::checked(&ideals)));
    verdict.extend(failures.iter().map(|failure| format!("FAILED: {failure}\n")));
    let failed = !failures.is_empty();
    let page = || {
        page::render(&findings::Findings {
            lines: &lines,
            beside: &lines_beside,
            notes: &notes,
            left: &left,
            settings: &settings,
            command: &command,
            curves: shape::curves(shape),
            statements: own.is_none().then(|| shape::statements(shape)),
            verdict: &verdict,
            sound: stale == 0 && !failed && below.is_empty(),
        })
    };
    let printed = if args.json {
        json::render(json::Findings {
            command: &command,
            lines: &lines,
            left: &left,
            statements: shape::statements(shape),
            floor: &below,
            stale,
            accesses_checked,
            failures: &failures,
            missing,
        })
    } else {
        let mut report = text(&lines, &lines_beside, &left, &notes, settings.runs);
        report.extend(shape::text(shape));
        report + &verdict
    };
    if missing > 0 {
        return Err(output::partial(args.json, &printed, missing, specs.len(), "runs"));
    }
    let label = (!args.json).then_some("report");
    output::results(&printed, destination.as_ref(), label, page, stop)?;
    let sound = stale == 0 && !failed && below.is_empty();
    Ok(if sound { SUCCESS } else { BAD_RUN })
}

/// The failed runs, with the reason.
fn failures(specs: &[RunSpec], outcomes: &[Option<Outcome>]) -> Vec<String> {
    let failure = |(spec, outcome): (&RunSpec, &Option<Outcome>)| {
        let reason = outcome.as_ref()?.as_ref().err()?;
        Some(format!(
            "{} under {} at {}, seed {}: {}",
            spec.workload,
            spec.design,
            number::threads(spec.threads),
            spec.seed,
            reason.lines().next().unwrap_or("no reason given")
        ))
    };
    specs.iter().zip(outcomes).filter_map(failure).collect()
}

/// The command that repeats this.
fn command_line(settings: &Settings, rows: Option<&Path>) -> String {
    let rows = rows.map(|path| format!(" --rows {}", quoted(&path.display().to_string())));
    let window = settings
        .virtual_ms
        .map(|ms| format!(" --virtual-ms {}", number::written(ms)));
    format!(
        "shootdown evidence{} --runs {} --seed {}{}",
        rows.unwrap_or_default(),
        settings.runs,
        settings.seed,
        window.unwrap_or_default()
    )
}

/// Absolute relative errors of predictions, in order; rows without a prediction are left out.
pub(super) fn errors(predictions: impl Iterator<Item = Option<f64>>, held_out: &[&Line]) -> Vec<f64> {
    predictions
        .zip(held_out)
        .filter_map(|(prediction, line)| prediction.map(|number| relative_error(number, line.published.value).abs()))
        .collect()
}

/// The largest of these absolute errors; 0 without any.
fn worst(errors: &[f64]) -> f64 {
    errors.iter().copied().fold(0.0, f64::max)
}

/// The distinct values of `of` over `items`, in order of appearance.
pub fn distinct<'a, T>(items: &'a [T], of: impl Fn(&'a T) -> &'a str) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for item in items {
        if !seen.contains(&of(item)) {
            seen.push(of(item));
        }
    }
    seen
}

#[cfg(test)]
mod tests;
