//! The `evidence` command: published tables beside simulated results, and beside them the interpolation to beat.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use shootdown_sim::run::RunSpec;

use crate::args::EvidenceArgs;
use crate::failure::{Failure, STALE, SUCCESS};
use crate::number::{self, UNKNOWN, median};
use crate::plan::Settings;
use crate::published::{self, Published};
use crate::queue::{self, Runner};
use crate::summary::relative_error;
use crate::table::Grid;
use crate::{catalog, interpolate, output};

/// One published row beside its predictions, in operations per second.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    published: Published,
    simulated: f64,
    interpolated: Option<f64>,
}

/// Runs every row of the published tables and prints the errors.
///
/// # Errors
/// Bad input, a failed run, Ctrl-C.
pub fn command(args: &EvidenceArgs, runner: &dyn Runner, stop: &AtomicBool) -> Result<u8, Failure> {
    let settings = Settings::new(&args.run)?;
    let rows = published::rows();
    let specs = specs(&rows, &settings)?;
    for spec in &specs {
        shootdown_sim::run::validate(spec).map_err(Failure::Input)?;
    }
    let results = queue::run_all(runner, &specs, settings.jobs, stop)?;
    let rates: Vec<f64> = results.iter().map(|result| result.ops_per_s).collect();
    output::print(&text(&lines(&rows, &rates, settings.runs as usize)))?;

    let stale: u64 = results.iter().map(|result| result.stale).sum();
    if stale > 0 {
        output::print(&format!(
            "STALE TRANSLATIONS: {}; the rates above mean nothing\n",
            number::count(stale)
        ))?;
        return Ok(STALE);
    }
    Ok(SUCCESS)
}

/// The runs of every row, row by row.
fn specs(rows: &[Published], settings: &Settings) -> Result<Vec<RunSpec>, Failure> {
    let mut specs = Vec::new();
    for row in rows {
        let machine = Arc::new(catalog::find_machine(&row.machine)?);
        for run in 0..settings.runs {
            specs.push(RunSpec {
                workload: row.workload.clone(),
                machine: Arc::clone(&machine),
                design: row.design.clone(),
                threads: row.threads,
                seed: settings.seed.wrapping_add(run),
                virtual_ms: settings.virtual_ms,
                lru_drain: row.lru_drain,
            });
        }
    }
    Ok(specs)
}

fn lines(rows: &[Published], rates: &[f64], runs: usize) -> Vec<Line> {
    rows.iter()
        .zip(rates.chunks(runs.max(1)))
        .map(|(row, rates)| Line {
            published: row.clone(),
            simulated: median(rates.iter().copied()),
            interpolated: interpolate::predict(rows, row),
        })
        .collect()
}

fn text(lines: &[Line]) -> String {
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
            "{table}. {} on {}, loops per second, all threads together\n",
            first.workload, first.machine
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
    text.push_str(&summary(
        "model",
        held_out.iter().map(|line| Some(line.simulated)),
        &held_out,
    ));
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
        let cells = vec![
            row.design.clone(),
            row.threads.to_string(),
            if row.lru_drain { "yes" } else { "no" }.to_string(),
            number::rate(row.ops_per_s()),
            number::rate(line.simulated),
            number::signed_percent(relative_error(line.simulated, row.ops_per_s())),
            if row.fitted { "fitted" } else { "" }.to_string(),
            line.interpolated.map_or(UNKNOWN.to_string(), number::rate),
            line.interpolated.map_or(UNKNOWN.to_string(), |rate| {
                number::signed_percent(relative_error(rate, row.ops_per_s()))
            }),
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

    /// Lines of a simulator that is `factor` off on every row.
    fn off_by(factor: f64) -> Vec<Line> {
        let rows = published::rows();
        let rates: Vec<f64> = rows.iter().map(|row| row.ops_per_s() * factor).collect();
        lines(&rows, &rates, 1)
    }

    #[test]
    fn errors_are_taken_on_held_out_rows_only() {
        let mut lines = off_by(1.1);
        lines
            .iter_mut()
            .filter(|line| line.published.fitted)
            .for_each(|line| line.simulated *= 50.0);
        let text = text(&lines);
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
        let text = text(&off_by(1.0));
        // broadcast at 1 thread: constant 1368 against 304.
        assert!(text.contains("interpolation  worst  350.0%"), "{text}");
        assert!(
            text.contains("E1. tlb_flush2 on milan-72") && text.contains("E2. tlb_flush2 on milan-72"),
            "{text}"
        );
        assert_eq!(
            text.matches("┆ fitted ┆").count(),
            2 + 4,
            "two headers, four rows:\n{text}"
        );
    }

    #[test]
    fn with_several_seeds_the_median_counts() {
        let rows = &published::rows()[..1];
        let lines = lines(rows, &[1.0, 9.0, 2.0], 3);
        assert_eq!(lines[0].simulated, 2.0);
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
