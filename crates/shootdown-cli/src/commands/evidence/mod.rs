//! The `evidence` command: published tables beside simulated results and an interpolation baseline.
//!
//! A row whose workload, design or machine this program does not have is listed as not run, with the reason, and does
//! not count. A user's own rows replace the published ones. Every one of these must be runnable, and the shape of
//! curves, which concerns the published ones, is left out.

mod findings;
mod floor;
mod interpolate;
mod json;
mod page;
mod plots;
mod runs;
mod shape;
mod text;

pub use json::schema;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use self::runs::{Runs, lines};
use self::text::text;
use crate::args::EvidenceArgs;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::number;
use crate::print::output::{self, Destination, Kind};
use crate::published::{Metric, Published, Tables};
use crate::runs::plan::Settings;
use crate::runs::queue::{self, Outcome, Runner};
use crate::runs::target::quoted;
use shootdown_sim::run::RunSpec;

/// One published row beside its predictions, in the unit of its metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The row.
    pub published: Published,
    /// Median over the runs; none when all failed or nothing was run.
    pub simulated: Option<f64>,
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
    let plan = Runs::new(rows.iter().chain(&beside).chain(&ideals), &settings)?;
    let of_rows = plan.specs.len();
    let mut specs = plan.specs.clone();
    if own.is_none() {
        specs.extend(shape::specs(&settings)?);
    }
    for spec in &specs {
        shootdown_sim::run::validate(spec).map_err(Failure::Input)?;
    }
    let ran = queue::run_all(runner, &specs, settings.jobs, stop)?;
    let missing = ran.missing();
    let failures = failures(&specs, &ran.outcomes);
    let ended = |line: &Line| plan.ended(&line.published, &ran.outcomes);
    let outcomes = ran.clone().filled();
    let complete = |rows: &[Published]| {
        let lines = lines(rows, &plan, &outcomes).into_iter();
        lines.filter(ended).collect::<Vec<_>>()
    };
    let (lines, lines_beside) = (complete(&rows), complete(&beside));
    let ideals = self::lines(&ideals, &plan, &outcomes);
    let below = floor::below(&rows, &ideals);
    if lines.is_empty() && missing > 0 {
        return Err(Failure::Interrupted);
    }
    let command = command_line(&settings, own);
    // Of a user's own rows there are none.
    let shape = &outcomes[of_rows..];
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
mod tests {
    use super::runs::measured;
    use super::*;
    use crate::args::RunArgs;
    use crate::published;
    use crate::runs::fake::{self, Fake};
    use crate::runs::queue::Outcome;
    use shootdown_sim::run::RunResult;

    fn outcome(rate: f64) -> Outcome {
        let specs = fake::plan(&["ipi"], &[1]).specs();
        Ok(RunResult {
            ops_per_s: rate,
            ..fake::result(&specs[0])
        })
    }

    /// The rates of milan-72.
    fn of_milan() -> Vec<Published> {
        let rows = published::rows().into_iter();
        rows.filter(|row| row.machine == "milan-72" && row.metric == Metric::OpsPerS)
            .collect()
    }

    /// Lines of a simulator that is `factor` off on every row.
    fn off_by(factor: f64) -> Vec<Line> {
        let rows = of_milan();
        let outcomes: Vec<Outcome> = rows.iter().map(|row| outcome(row.value * factor)).collect();
        lines(&rows, &plan(&rows, 1), &outcomes)
    }

    fn plan(rows: &[Published], runs: u64) -> Runs {
        let settings = Settings {
            seed: 5,
            runs,
            jobs: 1,
            virtual_ms: None,
        };
        Runs::new(rows.iter(), &settings).unwrap()
    }

    #[test]
    fn errors_are_taken_on_held_out_rows_only() {
        let mut lines = off_by(1.1);
        lines
            .iter_mut()
            .filter(|line| line.published.fitted)
            .for_each(|line| line.simulated = line.simulated.map(|rate| rate * 50.0));
        let text = text(&lines, &[], &[], &[], 1);
        assert!(
            text.contains("milan-72: used for fitting: 3 rows; on 9 others, absolute error:"),
            "{text}"
        );
        assert!(
            text.contains("  model          worst   10.0%, median   10.0%\n"),
            "{text}"
        );
    }

    #[test]
    fn the_interpolation_stands_beside_with_its_own_errors() {
        let text = text(&off_by(1.0), &[], &[], &[], 1);
        // broadcast at 1 thread: constant 1368 against 304.
        assert!(text.contains("interpolation  worst  350.0%"), "{text}");
        assert!(
            text.contains("E1. tlb_flush2 on milan-72") && text.contains("E2. tlb_flush2 on milan-72"),
            "{text}"
        );
        let names_a_design = |line: &&str| {
            ["ipi ", "broadcast "]
                .iter()
                .any(|name| line.trim_start().starts_with(name))
        };
        let fitted = text
            .lines()
            .filter(names_a_design)
            .filter(|line| line.contains(" fitted"));
        assert_eq!(fitted.count(), 3, "{text}");
    }

    #[test]
    fn with_several_seeds_the_median_counts() {
        let rows = &published::rows()[..1];
        let lines = lines(rows, &plan(rows, 3), &[1.0, 9.0, 2.0].map(outcome));
        assert_eq!(lines[0].simulated, Some(2.0));
    }

    #[test]
    fn a_failed_row_is_shown_and_left_out_of_the_errors() {
        let rows = &published::rows()[..2];
        let lines = lines(rows, &plan(rows, 1), &[Err("hangs".to_string()), outcome(1.0)]);
        assert_eq!((lines[0].simulated, lines[1].simulated), (None, Some(1.0)));
        assert!(
            text(&lines, &[], &[], &[], 1).contains(" failed "),
            "{}",
            text(&lines, &[], &[], &[], 1)
        );
    }

    #[test]
    fn a_failed_run_sets_the_exit_status() {
        // A rate that ideal reaches in the fake runs: a floor would be a separate failure.
        let row = "[[row]]\ntable = \"lab\"\nworkload = \"tlb_flush2\"\nmachine = \"milan-72\"\ndesign = \"ipi\"\nthreads = 16\n\
                   ns_per_op = 90000000\nsource = \"a loop\"\n";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows.toml");
        std::fs::write(&file, row).unwrap();
        let args = EvidenceArgs {
            rows: Some(file),
            runs: 1,
            json: false,
            html: None,
            run: RunArgs {
                seed: 1,
                jobs: Some(1),
                virtual_ms: None,
            },
        };
        let status = |fail_at| {
            let runner = Fake {
                fail_at,
                ..Fake::default()
            };
            command(&args, &runner, &AtomicBool::new(false))
        };
        assert_eq!((status(None), status(Some(16))), (Ok(SUCCESS), Ok(BAD_RUN)));
    }

    #[test]
    fn every_row_that_this_program_knows_can_be_run() {
        let rows: Vec<_> = published::rows()
            .into_iter()
            .filter(|row| row.not_run().is_none())
            .collect();
        let plan = plan(&rows, 2);
        for spec in &plan.specs {
            shootdown_sim::run::validate(spec).unwrap();
        }
        assert_eq!((plan.specs[0].seed, plan.specs[1].seed), (5, 6));
    }

    #[test]
    fn numbers_of_one_run_share_it_and_a_ratio_brings_what_it_is_over() {
        let rate = of_milan()[0].clone();
        let idle = Published {
            metric: Metric::IdleShare,
            ..rate.clone()
        };
        let ratio = Published {
            metric: Metric::RateRatio,
            over: Some(published::Reference {
                design: rate.design.clone(),
                threads: 2,
                set: None,
            }),
            ..rate.clone()
        };
        let rows = [rate, idle, ratio];
        let plan = plan(&rows, 1);
        let threads: Vec<usize> = plan.specs.iter().map(|spec| spec.threads).collect();
        assert_eq!(threads, [1, 2]);
        let lines = lines(&rows, &plan, &[outcome(30.0), outcome(20.0)]);
        let simulated: Vec<_> = lines.iter().map(|line| line.simulated).collect();
        assert_eq!(simulated, [Some(30.0), Some(0.1), Some(1.5)]);
    }

    #[test]
    fn rows_that_cannot_be_run_say_why_and_are_in_no_table() {
        let unknown = Published {
            table: "E99".to_string(),
            workload: "nothing".to_string(),
            ..of_milan()[0].clone()
        };
        let text = text(&off_by(1.0), &[], &[unknown.clone(), unknown], &[], 1);
        assert!(
            text.contains("E99: 2 rows not run: there is no workload `nothing`\n"),
            "{text}"
        );
        assert_eq!(text.matches("E99").count(), 1, "{text}");
    }

    #[test]
    fn each_metric_is_taken_from_its_own_number() {
        let spec = &fake::plan(&["ipi"], &[1]).specs()[0];
        let result = RunResult {
            ops_per_s: 2e6,
            interrupts_per_op: 3.0,
            flush_share: 0.25,
            time_shares: vec![("user", 0.5), ("address-space lock", 0.25), ("idle", 0.125)],
            ..fake::result(spec)
        };
        let half = RunResult {
            ops_per_s: 1e6,
            ..result.clone()
        };
        let row = Published {
            operations: Some(1e6),
            distribution: Some("flush".to_string()),
            ..of_milan()[0].clone()
        };
        let number = |metric| measured(&Published { metric, ..row.clone() }, &result, Some(&half));
        let numbers = Metric::ALL.map(|metric| number(metric).unwrap());
        assert_eq!(numbers, [2e6, 500.0, 3.0, 0.125, 0.25, 0.5, 0.5, 2.0, 1500.0, 3000.0]);
    }

    #[test]
    fn a_number_that_the_run_does_not_have_is_none() {
        let spec = &fake::plan(&["ipi"], &[1]).specs()[0];
        let row = Published {
            metric: Metric::P99Ns,
            distribution: Some("nothing".to_string()),
            ..of_milan()[0].clone()
        };
        assert_eq!(measured(&row, &fake::result(spec), None), None);
    }

    #[test]
    fn json_has_every_row_the_errors_that_the_text_has_and_nulls_for_what_failed() {
        let mut lines = off_by(1.1);
        let failed = lines.iter().position(|line| !line.published.fitted).unwrap();
        lines[failed].simulated = None;
        let unknown = Published {
            workload: "nothing".to_string(),
            ..of_milan()[0].clone()
        };
        let json = json::render(json::Findings {
            command: "shootdown evidence --runs 3 --seed 5",
            lines: &lines,
            left: &[unknown],
            statements: None,
            floor: &[],
            stale: 0,
            accesses_checked: 7,
            failures: &["it hangs".to_string()],
            missing: 0,
        });
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["command"], "shootdown evidence --runs 3 --seed 5");
        let rows = value["rows"].as_array().unwrap();
        assert_eq!(rows.len(), lines.len() + 1);
        assert!(rows[failed]["simulated"].is_null() && rows[failed]["relative_error"].is_null());
        assert!(rows[failed]["not_run"].is_null());
        assert_eq!(rows[lines.len()]["not_run"], "there is no workload `nothing`");
        let first = rows
            .iter()
            .find(|row| row["fitted"] == false && !row["simulated"].is_null());
        assert!((first.unwrap()["relative_error"].as_f64().unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(rows[0]["metric"], "ops_per_s");
        let milan = &value["machines"][0];
        assert_eq!((&milan["fitted_rows"], &milan["held_out_rows"]), (&3.into(), &9.into()));
        assert_eq!(milan["model"]["rows"], 8);
        assert!((milan["model"]["worst"].as_f64().unwrap() - 0.1).abs() < 1e-9);
        assert!((milan["interpolation"]["worst"].as_f64().unwrap() - 3.5).abs() < 1e-9);
        assert!(value["shape"].is_null() && value["failures"][0] == "it hangs");
        crate::print::json::assert_explained(&json);
    }

    #[test]
    fn tables_fit_a_terminal_and_what_was_set_stands_below_them() {
        let rows: Vec<_> = published::rows()
            .into_iter()
            .filter(|row| row.not_run().is_none())
            .collect();
        let outcomes: Vec<Outcome> = plan(&rows, 1).specs.iter().map(|_| outcome(1e6)).collect();
        let notes = Tables::embedded().notes;
        let text = text(&lines(&rows, &plan(&rows, 1), &outcomes), &[], &[], &notes, 3);
        let is_of_table = |line: &&str| line.starts_with('─');
        let widest = text.lines().filter(is_of_table).map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
        assert!(
            text.contains("  [1]: topology.sockets=32 topology.cores_per_cluster=2\n"),
            "{text}"
        );
        assert!(
            text.contains(" preemptible over ") && text.contains(" ipi-per-cpu [3]\n"),
            "{text}"
        );
        let of_e5 = text
            .split("\nE5. ")
            .nth(1)
            .and_then(|rest| rest.lines().nth(1))
            .unwrap_or_default();
        assert!(!of_e5.contains("machine") && !of_e5.contains("interpolated"), "{of_e5}");
    }
}
