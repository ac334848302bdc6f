//! The `evidence` command: published tables beside simulated results, and beside them the interpolation to beat.
//!
//! A row whose workload, design or machine this program does not have is listed as not run, with the reason, and counts
//! for nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use shootdown_sim::run::{RunResult, RunSpec};

use crate::args::EvidenceArgs;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::number::{self, UNKNOWN, median};
use crate::output::Destination;
use crate::plan::Settings;
use crate::published::{self, Metric, Published};
use crate::queue::{self, Outcome, Runner};
use crate::summary::relative_error;
use crate::table::Grid;
use crate::target::Target;
use crate::{evidence_page, interpolate, output, shape};

/// One published row beside its predictions, in the unit of its metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The row.
    pub published: Published,
    /// Median over the runs; none when all failed or nothing was run.
    pub simulated: Option<f64>,
    /// What plain interpolation says, where it says something.
    pub interpolated: Option<f64>,
}

/// The simulated number that stands beside a published one; `over` is the result that a ratio is over. None when the run
/// has no such number.
fn measured(row: &Published, result: &RunResult, over: Option<&RunResult>) -> Option<f64> {
    let number = match row.metric {
        Metric::OpsPerS => result.ops_per_s,
        Metric::NsPerOp => 1e9 / result.ops_per_s,
        Metric::InterruptsPerOp => result.interrupts_per_op,
        Metric::IdleShare => {
            let idle = |(name, _): &&(&str, f64)| *name == "idle";
            result.time_shares.iter().filter(idle).map(|(_, share)| share).sum()
        }
        Metric::Seconds => row.operations? / result.ops_per_s,
        Metric::TimeRatio => over?.ops_per_s / result.ops_per_s,
        Metric::RateRatio => result.ops_per_s / over?.ops_per_s,
        Metric::P99Ns => {
            let name = row.distribution.as_deref()?;
            result.latencies.iter().find(|latency| latency.name == name)?.p99_ns
        }
    };
    number.is_finite().then_some(number)
}

/// A number with the unit of its metric.
pub fn shown(metric: Metric, value: f64) -> String {
    match metric {
        Metric::OpsPerS => number::rate(value),
        Metric::NsPerOp => format!("{value:.0} ns"),
        Metric::InterruptsPerOp => format!("{} int.", number::per_operation(value)),
        Metric::IdleShare => format!("{} idle", number::percent(value)),
        Metric::Seconds => format!("{value:.3} s"),
        Metric::TimeRatio | Metric::RateRatio => format!("{value:.2}x"),
        Metric::P99Ns => format!("{:.2} ms", value / 1e6),
    }
}

/// Runs every row of the published tables and prints the errors.
///
/// # Errors
/// Bad input, Ctrl-C.
pub fn command(args: &EvidenceArgs, runner: &dyn Runner, stop: &AtomicBool) -> Result<u8, Failure> {
    let settings = Settings::new(&args.run, args.runs)?;
    let destination = args
        .html
        .as_deref()
        .map(|path| Destination::new("--html", path))
        .transpose()?;
    let rows = published::rows();
    let (rows, left): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.not_run().is_none());
    let beside = published::beside();
    let plan = Runs::new(rows.iter().chain(&beside), &settings)?;
    let of_rows = plan.specs.len();
    let mut specs = plan.specs.clone();
    specs.extend(shape::specs(&settings)?);
    for spec in &specs {
        shootdown_sim::run::validate(spec).map_err(Failure::Input)?;
    }
    let outcomes = queue::run_all(runner, &specs, settings.jobs, stop)?;
    let lines_beside = lines(&beside, &plan, &outcomes);
    let lines = lines(&rows, &plan, &outcomes);
    let mut report = text(&lines, &lines_beside, &left, settings.runs);
    report.extend(shape::text(&outcomes[of_rows..]));
    let mut verdict = String::new();

    let results = || outcomes.iter().filter_map(|outcome| outcome.as_ref().ok());
    let stale: u64 = results().map(|result| result.stale).sum();
    let checked = number::count(results().map(|result| result.accesses_checked).sum());
    verdict.push_str(&if stale > 0 {
        format!(
            "STALE TRANSLATIONS: {} in {checked} checked accesses; the rates above mean nothing\n",
            number::count(stale)
        )
    } else {
        format!("stale translations: 0 in {checked} checked accesses\n")
    });
    let mut failed = false;
    for (spec, outcome) in specs.iter().zip(&outcomes) {
        if let Err(reason) = outcome {
            failed = true;
            verdict.push_str(&format!(
                "FAILED: {} under {} at {} threads, seed {}: {}\n",
                spec.workload,
                spec.design,
                spec.threads,
                spec.seed,
                reason.lines().next().unwrap_or("no reason given")
            ));
        }
    }
    if let Some(destination) = &destination {
        let shape = &outcomes[of_rows..];
        let page = evidence_page::render(&evidence_page::Findings {
            lines: &lines,
            left: &left,
            settings: &settings,
            curves: shape::curves(shape),
            statements: shape::statements(shape),
            verdict: &verdict,
            sound: stale == 0 && !failed,
        });
        destination.write(page, stop)?;
        verdict.push_str(&format!("report: {}\n", destination.shown()));
    }
    report.push_str(&verdict);
    output::print(&report)?;
    Ok(if stale > 0 || failed { BAD_RUN } else { SUCCESS })
}

/// The runs that rows need, each once: several rows may be numbers of one run, and ratios share what they are over.
#[derive(Default)]
struct Runs {
    specs: Vec<RunSpec>,
    /// Where the runs of a measurement begin in `specs`.
    first: HashMap<String, usize>,
    /// Runs of each, with seeds in a row.
    runs: usize,
}

impl Runs {
    fn new<'a>(rows: impl Iterator<Item = &'a Published>, settings: &Settings) -> Result<Self, Failure> {
        let mut plan = Runs {
            runs: settings.runs as usize,
            ..Runs::default()
        };
        for row in rows {
            plan.add(row, settings)?;
            if let Some(over) = of_reference(row) {
                plan.add(&over, settings)?;
            }
        }
        Ok(plan)
    }

    fn add(&mut self, row: &Published, settings: &Settings) -> Result<(), Failure> {
        let key = key(row);
        if self.first.contains_key(&key) {
            return Ok(());
        }
        self.first.insert(key, self.specs.len());
        let target = Target::new(&row.machine, None, &row.set)?;
        for run in 0..settings.runs {
            self.specs.push(RunSpec {
                workload: row.workload.clone(),
                machine: Arc::clone(&target.machine),
                design: row.design.clone(),
                threads: row.threads,
                seed: settings.seed.wrapping_add(run),
                virtual_ms: settings.virtual_ms.or(row.virtual_ms),
                lru_drain: row.lru_drain,
                parameters: target.parameters.clone(),
            });
        }
        Ok(())
    }

    /// The outcomes of the runs of `row`, by seed; none for a row that the plan was not made for.
    fn of<'a>(&self, row: &Published, outcomes: &'a [Outcome]) -> &'a [Outcome] {
        let range = |&first: &usize| outcomes.get(first..first + self.runs);
        self.first.get(&key(row)).and_then(range).unwrap_or_default()
    }
}

/// What tells the run of a row from those of others.
fn key(row: &Published) -> String {
    format!(
        "{} {} {:?} {} {} {} {:?}",
        row.workload, row.machine, row.set, row.design, row.threads, row.lru_drain, row.virtual_ms
    )
}

/// The measurement that a row's ratio is over, as a row.
fn of_reference(row: &Published) -> Option<Published> {
    row.over.as_ref().map(|over| Published {
        design: over.design.clone(),
        threads: over.threads,
        ..row.clone()
    })
}

fn lines(rows: &[Published], plan: &Runs, outcomes: &[Outcome]) -> Vec<Line> {
    rows.iter()
        .map(|row| {
            let reference = of_reference(row);
            let over = reference.as_ref().map_or(&[][..], |over| plan.of(over, outcomes));
            let results = plan.of(row, outcomes).iter().enumerate();
            let numbers: Vec<f64> = results
                .filter_map(|(run, outcome)| {
                    let over = over.get(run).and_then(|outcome| outcome.as_ref().ok());
                    measured(row, outcome.as_ref().ok()?, over)
                })
                .collect();
            Line {
                published: row.clone(),
                simulated: (!numbers.is_empty()).then(|| median(numbers)),
                interpolated: interpolate::predict(rows, row),
            }
        })
        .collect()
}

/// The different values of `of` over `items`, in order of appearance.
pub fn distinct<'a, T>(items: &'a [T], of: impl Fn(&'a T) -> &'a str) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for item in items {
        if !seen.contains(&of(item)) {
            seen.push(of(item));
        }
    }
    seen
}

fn text(lines: &[Line], beside: &[Line], left: &[Published], runs: u64) -> String {
    let mut text = String::new();
    let notes = published::notes();
    for table in distinct(lines, |line| &line.published.table) {
        let of_table: Vec<&Line> = lines.iter().filter(|line| line.published.table == table).collect();
        let machines: Vec<Line> = of_table.iter().map(|line| (*line).clone()).collect();
        text.push_str(&format!(
            "{table}. {} on {}{}{}\n",
            distinct(&machines, |line| &line.published.workload).join(", "),
            distinct(&machines, |line| &line.published.machine).join(" and "),
            if of_table.iter().any(|line| line.published.metric == Metric::OpsPerS) {
                ", loops per second, all threads together"
            } else {
                ""
            },
            if runs > 1 {
                format!("; simulated: medians of {runs} runs")
            } else {
                String::new()
            }
        ));
        text.push_str(&grid(&of_table).draw());
        for line in beside.iter().filter(|line| line.published.table == table) {
            let row = &line.published;
            let number = line
                .simulated
                .map_or("failed".to_string(), |number| shown(row.metric, number));
            text.push_str(&format!(
                "  not published: {} at {} threads, {}: {number}\n",
                row.workload, row.threads, row.design
            ));
        }
        for note in notes.iter().filter(|note| note.table == table) {
            text.push_str(&wrapped(&note.text));
        }
        text.push('\n');
    }
    for table in distinct(left, |row| &row.table) {
        let rows: Vec<&Published> = left.iter().filter(|row| row.table == table).collect();
        let mut reasons: Vec<String> = rows.iter().filter_map(|row| row.not_run()).collect();
        reasons.dedup();
        text.push_str(&format!(
            "{table}: {} rows not run: {}\n",
            rows.len(),
            reasons.join("; ")
        ));
    }
    for machine in distinct(lines, |line| &line.published.machine) {
        let of_machine = lines.iter().filter(|line| line.published.machine == machine);
        let (fitted, held_out): (Vec<&Line>, Vec<&Line>) = of_machine.partition(|line| line.published.fitted);
        text.push_str(&format!(
            "{machine}: {} rows were used for fitting; on the {} others, absolute error:\n",
            fitted.len(),
            held_out.len()
        ));
        text.push_str(&summary("model", held_out.iter().map(|line| line.simulated), &held_out));
        if held_out.iter().any(|line| line.interpolated.is_some()) {
            let interpolated = held_out.iter().map(|line| line.interpolated);
            text.push_str(&summary("interpolation", interpolated, &held_out));
        }
    }
    text.push_str(
        "interpolation: log(rate) linear in log(threads) through each design's fitted rows, constant through one\n",
    );
    text
}

/// A paragraph in lines of at most 100 characters, indented.
fn wrapped(paragraph: &str) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if line.len() + 1 + word.len() > 98 {
            text.push_str(&format!("  {line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&format!("  {line}\n"));
    text
}

fn grid(lines: &[&Line]) -> Grid {
    let header = [
        "machine",
        "design",
        "threads",
        "LRU drain",
        "published",
        "simulated",
        "error",
        "fitted",
        "interpolated",
        "error",
    ];
    let mut groups: Vec<Vec<Vec<String>>> = Vec::new();
    let mut group = None;
    for line in lines {
        let row = &line.published;
        if group != Some((&row.machine, &row.design)) {
            group = Some((&row.machine, &row.design));
            groups.push(Vec::new());
        }
        let error_of = |number: Option<f64>| {
            number.map_or(UNKNOWN.to_string(), |number| {
                number::signed_percent(relative_error(number, row.value))
            })
        };
        let set = row.set.iter().map(|set| format!(" {set}"));
        let over = match &row.over {
            None => String::new(),
            Some(over) if over.design == row.design => format!(" over {} threads", over.threads),
            Some(over) => format!(" over {}", over.design),
        };
        let cells = vec![
            row.machine.clone(),
            format!("{}{over}{}", row.design, set.collect::<String>()),
            row.threads.to_string(),
            if row.lru_drain { "yes" } else { "no" }.to_string(),
            shown(row.metric, row.value),
            line.simulated
                .map_or("failed".to_string(), |number| shown(row.metric, number)),
            error_of(line.simulated),
            if row.fitted { "fitted" } else { "" }.to_string(),
            line.interpolated
                .map_or(UNKNOWN.to_string(), |number| shown(row.metric, number)),
            error_of(line.interpolated),
        ];
        groups.last_mut().expect("a group was just pushed").push(cells);
    }
    Grid {
        header: header.map(str::to_string).to_vec(),
        groups,
        words: 2,
    }
}

/// Absolute relative errors of predictions, in order; rows without a prediction are left out.
pub fn errors(predictions: impl Iterator<Item = Option<f64>>, held_out: &[&Line]) -> Vec<f64> {
    predictions
        .zip(held_out)
        .filter_map(|(prediction, line)| prediction.map(|number| relative_error(number, line.published.value).abs()))
        .collect()
}

/// Worst and median absolute error of predictions on held-out rows.
fn summary(name: &str, predictions: impl Iterator<Item = Option<f64>>, held_out: &[&Line]) -> String {
    let errors = errors(predictions, held_out);
    let worst = errors.iter().copied().fold(0.0, f64::max);
    let missing = match held_out.len() - errors.len() {
        0 => String::new(),
        missing => format!(" ({missing} rows without a prediction)"),
    };
    format!(
        "  {name:<14} worst {:>7}, median {:>7}{missing}\n",
        number::percent(worst),
        number::percent(median(errors))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::RunArgs;
    use crate::fake::{self, Fake};
    use shootdown_sim::run::RunResult;

    fn outcome(rate: f64) -> Outcome {
        let specs = fake::plan(&["ipi"], &[1]).specs();
        Ok(RunResult {
            ops_per_s: rate,
            ..fake::result(&specs[0])
        })
    }

    fn of_milan() -> Vec<Published> {
        let rows = published::rows().into_iter();
        rows.filter(|row| row.machine == "milan-72").collect()
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
        let text = text(&lines, &[], &[], 1);
        assert!(
            text.contains("milan-72: 4 rows were used for fitting; on the 8 others, absolute error:"),
            "{text}"
        );
        assert!(
            text.contains("  model          worst   10.0%, median   10.0%\n"),
            "{text}"
        );
    }

    #[test]
    fn the_interpolation_stands_beside_with_its_own_errors() {
        let text = text(&off_by(1.0), &[], &[], 1);
        // broadcast at 1 thread: constant 1368 against 304.
        assert!(text.contains("interpolation  worst  350.0%"), "{text}");
        assert!(
            text.contains("E1. tlb_flush2 on milan-72") && text.contains("E2. tlb_flush2 on milan-72"),
            "{text}"
        );
        assert_eq!(
            text.matches("  fitted  ").count(),
            2 + 4,
            "two headers, four rows:\n{text}"
        );
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
            text(&lines, &[], &[], 1).contains(" failed "),
            "{}",
            text(&lines, &[], &[], 1)
        );
    }

    #[test]
    fn a_failed_run_sets_the_exit_status() {
        let args = EvidenceArgs {
            runs: 1,
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
        let text = text(&off_by(1.0), &[], &[unknown.clone(), unknown], 1);
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
        assert_eq!(numbers, [2e6, 500.0, 3.0, 0.125, 0.5, 0.5, 2.0, 3000.0]);
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
    fn notes_are_wrapped() {
        let text = wrapped(&"word ".repeat(60));
        assert!(
            text.lines().count() > 2 && text.lines().all(|line| line.len() <= 100),
            "{text}"
        );
        assert_eq!(text.matches("word").count(), 60);
    }
}
