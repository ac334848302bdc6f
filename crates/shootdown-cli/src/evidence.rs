//! The `evidence` command: published tables beside simulated results, and beside them the interpolation to beat.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use shootdown_sim::run::{Parameters, RunSpec};

use crate::args::EvidenceArgs;
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::number::{self, UNKNOWN, median};
use crate::plan::Settings;
use crate::published::{self, Published};
use crate::queue::{self, Outcome, Runner};
use crate::summary::relative_error;
use crate::table::Grid;
use crate::target::Target;
use crate::{interpolate, output, shape};

/// One published row beside its predictions, in operations per second.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    published: Published,
    /// Median over the runs; none when all failed.
    simulated: Option<f64>,
    interpolated: Option<f64>,
}

/// Runs every row of the published tables and prints the errors.
///
/// # Errors
/// Bad input, Ctrl-C.
pub fn command(args: &EvidenceArgs, runner: &dyn Runner, stop: &AtomicBool) -> Result<u8, Failure> {
    let settings = Settings::new(&args.run, args.runs)?;
    let rows = published::rows();
    let mut specs = specs(&rows, &settings)?;
    let of_rows = specs.len();
    specs.extend(shape::specs(&settings)?);
    for spec in &specs {
        shootdown_sim::run::validate(spec).map_err(Failure::Input)?;
    }
    let outcomes = queue::run_all(runner, &specs, settings.jobs, stop)?;
    let mut report = text(
        &lines(&rows, &outcomes[..of_rows], settings.runs as usize),
        settings.runs,
    );
    report.extend(shape::text(&outcomes[of_rows..]));

    let results = || outcomes.iter().filter_map(|outcome| outcome.as_ref().ok());
    let stale: u64 = results().map(|result| result.stale).sum();
    let checked = number::count(results().map(|result| result.accesses_checked).sum());
    report.push_str(&if stale > 0 {
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
            report.push_str(&format!(
                "FAILED: {} under {} at {} threads, seed {}: {}\n",
                spec.workload,
                spec.design,
                spec.threads,
                spec.seed,
                reason.lines().next().unwrap_or("no reason given")
            ));
        }
    }
    output::print(&report)?;
    Ok(if stale > 0 || failed { BAD_RUN } else { SUCCESS })
}

/// The runs of every row, row by row.
fn specs(rows: &[Published], settings: &Settings) -> Result<Vec<RunSpec>, Failure> {
    let mut specs = Vec::new();
    for row in rows {
        let machine = Target::new(&row.machine, None, &[])?.machine;
        for run in 0..settings.runs {
            specs.push(RunSpec {
                workload: row.workload.clone(),
                machine: Arc::clone(&machine),
                design: row.design.clone(),
                threads: row.threads,
                seed: settings.seed.wrapping_add(run),
                virtual_ms: settings.virtual_ms,
                lru_drain: row.lru_drain,
                parameters: Parameters::default(),
            });
        }
    }
    Ok(specs)
}

fn lines(rows: &[Published], outcomes: &[Outcome], runs: usize) -> Vec<Line> {
    rows.iter()
        .zip(outcomes.chunks(runs.max(1)))
        .map(|(row, outcomes)| {
            let rates: Vec<f64> = outcomes.iter().flatten().map(|result| result.ops_per_s).collect();
            Line {
                published: row.clone(),
                simulated: (!rates.is_empty()).then(|| median(rates)),
                interpolated: interpolate::predict(rows, row),
            }
        })
        .collect()
}

fn text(lines: &[Line], runs: u64) -> String {
    let mut tables: Vec<&str> = Vec::new();
    for line in lines {
        if !tables.contains(&line.published.table.as_str()) {
            tables.push(&line.published.table);
        }
    }
    let mut text = String::new();
    for table in tables {
        let of_table: Vec<&Line> = lines.iter().filter(|line| line.published.table == table).collect();
        let first = &of_table[0].published;
        text.push_str(&format!(
            "{table}. {} on {}, loops per second, all threads together{}\n",
            first.workload,
            first.machine,
            if runs > 1 {
                format!("; simulated: medians of {runs} runs")
            } else {
                String::new()
            }
        ));
        text.push_str(&grid(&of_table).draw());
        text.push('\n');
    }
    let held_out: Vec<&Line> = lines.iter().filter(|line| !line.published.fitted).collect();
    let fitted = lines.len() - held_out.len();
    text.push_str(&format!(
        "{fitted} rows were used for fitting; on the {} others, absolute error:\n",
        held_out.len()
    ));
    text.push_str(&summary("model", held_out.iter().map(|line| line.simulated), &held_out));
    text.push_str(&summary(
        "interpolation",
        held_out.iter().map(|line| line.interpolated),
        &held_out,
    ));
    text.push_str(
        "interpolation: log(rate) linear in log(threads) through each design's fitted rows, constant through one\n",
    );
    text
}

fn grid(lines: &[&Line]) -> Grid {
    let header = [
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
    let mut design = None;
    for line in lines {
        let row = &line.published;
        if design != Some(&row.design) {
            design = Some(&row.design);
            groups.push(Vec::new());
        }
        let error_of = |rate: Option<f64>| {
            rate.map_or(UNKNOWN.to_string(), |rate| {
                number::signed_percent(relative_error(rate, row.ops_per_s()))
            })
        };
        let cells = vec![
            row.design.clone(),
            row.threads.to_string(),
            if row.lru_drain { "yes" } else { "no" }.to_string(),
            number::rate(row.ops_per_s()),
            line.simulated.map_or("failed".to_string(), number::rate),
            error_of(line.simulated),
            if row.fitted { "fitted" } else { "" }.to_string(),
            line.interpolated.map_or(UNKNOWN.to_string(), number::rate),
            error_of(line.interpolated),
        ];
        groups.last_mut().expect("a group was just pushed").push(cells);
    }
    Grid {
        header: header.map(str::to_string).to_vec(),
        groups,
        words: 1,
    }
}

/// Worst and median absolute error of predictions on held-out rows.
fn summary(name: &str, predictions: impl Iterator<Item = Option<f64>>, held_out: &[&Line]) -> String {
    let errors: Vec<f64> = predictions
        .zip(held_out)
        .filter_map(|(prediction, line)| prediction.map(|rate| relative_error(rate, line.published.ops_per_s()).abs()))
        .collect();
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

    /// Lines of a simulator that is `factor` off on every row.
    fn off_by(factor: f64) -> Vec<Line> {
        let rows = published::rows();
        let outcomes: Vec<Outcome> = rows.iter().map(|row| outcome(row.ops_per_s() * factor)).collect();
        lines(&rows, &outcomes, 1)
    }

    #[test]
    fn errors_are_taken_on_held_out_rows_only() {
        let mut lines = off_by(1.1);
        lines
            .iter_mut()
            .filter(|line| line.published.fitted)
            .for_each(|line| line.simulated = line.simulated.map(|rate| rate * 50.0));
        let text = text(&lines, 1);
        assert!(
            text.contains("4 rows were used for fitting; on the 8 others, absolute error:"),
            "{text}"
        );
        assert!(
            text.contains("  model          worst   10.0%, median   10.0%\n"),
            "{text}"
        );
    }

    #[test]
    fn the_interpolation_stands_beside_with_its_own_errors() {
        let text = text(&off_by(1.0), 1);
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
        let lines = lines(rows, &[1.0, 9.0, 2.0].map(outcome), 3);
        assert_eq!(lines[0].simulated, Some(2.0));
    }

    #[test]
    fn a_failed_row_is_shown_and_left_out_of_the_errors() {
        let rows = &published::rows()[..2];
        let lines = lines(rows, &[Err("hangs".to_string()), outcome(1.0)], 1);
        assert_eq!((lines[0].simulated, lines[1].simulated), (None, Some(1.0)));
        assert!(text(&lines, 1).contains(" failed "), "{}", text(&lines, 1));
    }

    #[test]
    fn a_failed_run_sets_the_exit_status() {
        let args = EvidenceArgs {
            runs: 1,
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
    fn every_row_can_be_run() {
        let settings = Settings {
            seed: 5,
            runs: 2,
            jobs: 1,
            virtual_ms: None,
        };
        let specs = specs(&published::rows(), &settings).unwrap();
        assert_eq!(specs.len(), 24);
        assert!(specs.iter().all(|spec| spec.threads <= spec.machine.topology.cpus()));
        assert_eq!((specs[0].seed, specs[1].seed), (5, 6));
    }
}
