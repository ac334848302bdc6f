//! The tables of a comparison: one row per thread count and design, grouped by thread count.

use shootdown_sim::run::Latency;

use super::interval::{self, Interval};
use super::summary::{Comparison, Row, p99};
use super::{fallback, ratios};
use crate::args::Metric;
use crate::print::number::{self, UNKNOWN};
use crate::print::table::{Column, Grid, Tables, mark};

/// A column, and its cells.
type Filled<'a> = (Column, Box<dyn Fn(&Row) -> String + 'a>);

/// The meaning of the columns of threads and designs, in every table.
pub fn threads() -> Column {
    Column::number(
        "threads",
        "simulated threads; each has a CPU of its own where there are enough",
    )
}

/// The column of designs.
pub fn design() -> Column {
    Column::words(
        "design",
        "how other CPUs are made to drop translations; `shootdown list` describes each",
    )
}

/// The table of a comparison.
pub fn comparison(comparison: &Comparison) -> Grid {
    let mut columns = rates(comparison);
    columns.extend(times(comparison));
    columns.extend(counts(comparison));
    let fallbacks = fallback::fallbacks(&comparison.plan);
    let marks = |design: &str| -> String {
        let own = fallbacks
            .iter()
            .enumerate()
            .filter(|(_, fallback)| fallback.designs.contains(&design));
        own.map(|(index, _)| mark(index)).collect()
    };
    let mut groups = Vec::new();
    for &threads in &comparison.plan.threads {
        let mut group = Vec::new();
        for row in comparison.rows.iter().filter(|row| row.threads == threads) {
            let first = if group.is_empty() {
                threads.to_string()
            } else {
                String::new()
            };
            let mut cells = vec![first, format!("{}{}", row.design, marks(row.design))];
            if row.failed as u64 >= comparison.plan.settings.runs {
                cells.push("failed".to_string());
                // Published rates are shown even so.
                let rest = columns
                    .iter()
                    .skip(1)
                    .map(|(column, cell)| match column.heading.as_str() {
                        PUBLISHED => cell(row),
                        _ => UNKNOWN.to_string(),
                    });
                cells.extend(rest);
            } else {
                cells.extend(columns.iter().map(|(_, cell)| cell(row)));
            }
            group.push(cells);
        }
        if !group.is_empty() {
            groups.push(group);
        }
    }
    let filled = columns.into_iter().map(|(column, _)| column);
    let mut grid = Grid::new([threads(), design()].into_iter().chain(filled).collect(), groups);
    for (index, fallback) in fallbacks.iter().enumerate() {
        grid = grid.note(format!("{} {}", mark(index), fallback.why));
    }
    grid
}

/// Heading of the published rates.
const PUBLISHED: &str = "published";

/// Operations per second, and their comparisons.
fn rates(comparison: &Comparison) -> Vec<Filled<'_>> {
    let operation = comparison.plan.workload.operation();
    let several = comparison.plan.settings.runs > 1;
    let any = |such: fn(&Row) -> bool| comparison.rows.iter().any(such);
    let mut columns: Vec<Filled> = Vec::new();
    if comparison.plan.shows(Metric::Rate) {
        columns.push((
            Column::number(
                format!("{operation}s/s"),
                format!("{operation}s per second, all threads together"),
            ),
            Box::new(|row| doubtful(row, number::rate(row.ops_per_s))),
        ));
        if comparison.plan.workload.recording.is_none() && comparison.plan.target.machine.vm.is_none() {
            columns.push((
                Column::number(
                    format!("likely {operation}s/s"),
                    "90 % interval on the real machine, from its assumed ranges and the errors on published rows",
                )
                .optional(6),
                Box::new(|row| {
                    let interval = interval::of_rate(ratios::place(comparison, row));
                    let sure = interval.filter(|_| row.caveat.is_none());
                    let ends = |interval: Interval| interval.around(row.ops_per_s).map(number::rate).join(" to ");
                    sure.map_or(UNKNOWN.to_string(), ends)
                }),
            ));
        }
        if any(|row| row.published.is_some()) {
            columns.push((
                Column::number(
                    PUBLISHED,
                    "the same, as measured on the real machine (evidence/published.toml)",
                )
                .optional(2),
                Box::new(|row| row.published.map_or(UNKNOWN.to_string(), number::rate)),
            ));
            columns.push((
                Column::number("error", "the simulated rate against the published one").optional(1),
                Box::new(|row| row.error().map_or(UNKNOWN.to_string(), number::signed_percent)),
            ));
        }
        if any(|row| row.of_ideal.is_some()) {
            columns.push((
                Column::number(
                    "of ideal",
                    "the rate over that of `ideal`, whose invalidation costs nothing",
                )
                .optional(4),
                Box::new(|row| row.of_ideal.map_or(UNKNOWN.to_string(), number::ratio)),
            ));
        }
    }
    // The rate of a recording is the same under every design.
    let of_recording = comparison.plan.workload.recording.is_some();
    if any(Row::is_uncertain) && !of_recording {
        columns.push((
            Column::number(
                "95 % interval",
                "half the width of the 95 % confidence interval of the rate, as a share of it",
            ),
            Box::new(|row| {
                row.half_width
                    .map_or(UNKNOWN.to_string(), |half| format!("±{:.0}%", half * 100.0))
            }),
        ));
    }
    if several && of_recording {
        let about = "highest less lowest share of CPU time in invalidation (flush CPU) of the runs";
        columns.push((
            Column::number("spread", about).optional(1),
            Box::new(|row| number::percent(row.flush_spread)),
        ));
    } else if several {
        let about = "highest less lowest rate of the runs, as a share of the median";
        columns.push((
            Column::number("spread", about).optional(1),
            Box::new(|row| number::percent(row.spread)),
        ));
    }
    columns
}

/// The times of an operation and a shootdown.
fn times(comparison: &Comparison) -> Vec<Filled<'_>> {
    let operation = comparison.plan.workload.operation();
    let mut columns: Vec<Filled> = Vec::new();
    if !comparison.plan.shows(Metric::Time) {
        return columns;
    }
    if comparison.plan.workload.recording.is_some() {
        let about = format!("CPU time of all CPUs in invalidation, requesters and interrupted CPUs, per {operation}");
        columns.push((
            Column::number(format!("CPU time per {operation}"), about),
            Box::new(|row| number::time(row.flush_cpu_ns_per_op())),
        ));
    } else {
        let about = format!("time that one {operation} takes its thread, waiting included: threads / rate");
        columns.push((
            Column::number(format!("time per {operation}"), about),
            Box::new(|row| doubtful(row, number::time(row.cpu_ns_per_op()))),
        ));
    }
    let tail = |of: fn(&Latency) -> f64| {
        move |row: &Row| {
            row.shootdown()
                .map_or(UNKNOWN.to_string(), |latency| number::time(of(latency)))
        }
    };
    columns.push((
        Column::number(
            "flush p50",
            "median time from the call of a flush that reaches other CPUs (a shootdown) until all have invalidated",
        ),
        Box::new(tail(|latency| latency.p50_ns)),
    ));
    columns.push((
        Column::number("flush p99", "99th percentile of the same"),
        Box::new(tail(p99)),
    ));
    columns
}

/// Interrupts, time in invalidation, and the oracle's finding.
fn counts(comparison: &Comparison) -> Vec<Filled<'_>> {
    let operation = comparison.plan.workload.operation();
    let mut columns: Vec<Filled> = vec![
        (
            Column::number(
                format!("IPIs per {operation}"),
                "shootdown interrupts sent, one for each target CPU",
            ),
            Box::new(|row| number::per_operation(row.ipis_per_op)),
        ),
        (
            Column::number(
                format!("taken per {operation}"),
                "interrupts taken, of any kind; several requests can share one",
            )
            .optional(5),
            Box::new(|row| number::per_operation(row.interrupts_per_op)),
        ),
        (
            Column::number(
                "flush CPU",
                "share of CPU time in invalidation, requesters and interrupted CPUs",
            )
            .optional(3),
            Box::new(|row| number::percent(row.flush_share)),
        ),
    ];
    if comparison.rows.iter().any(|row| row.stale > 0) {
        columns.push((
            Column::number(
                "stale",
                "accesses through a translation that should have been invalidated",
            ),
            Box::new(|row| number::count(row.stale)),
        ));
    }
    columns
}

/// A figure as printed: in parentheses if it has too few samples.
fn doubtful(row: &Row, figure: String) -> String {
    match row.caveat {
        Some(_) => format!("({figure})"),
        None => figure,
    }
}

/// One table for each kind of latency that was recorded, under its name; nothing when none was.
pub fn latencies(comparison: &Comparison, tables: &mut Tables) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for latency in comparison.rows.iter().flat_map(|row| &row.latencies) {
        if !kinds.contains(&latency.name) {
            kinds.push(latency.name);
        }
    }
    let mut text = String::new();
    for kind in kinds {
        let mut groups: Vec<Vec<Vec<String>>> = Vec::new();
        for &threads in &comparison.plan.threads {
            let rows = comparison.rows.iter().filter(|row| row.threads == threads);
            let found = rows.filter_map(|row| Some((row, row.latencies.iter().find(|latency| latency.name == kind)?)));
            let group: Vec<Vec<String>> = found
                .map(|(row, latency)| {
                    vec![
                        threads.to_string(),
                        row.design.to_string(),
                        number::count(latency.count),
                        number::time(latency.p50_ns),
                        number::time(p99(latency)),
                        number::time(latency.max_ns),
                    ]
                })
                .collect();
            if !group.is_empty() {
                groups.push(group);
            }
        }
        let columns = vec![
            threads(),
            design(),
            Column::number("samples", "how many were measured"),
            Column::number("median", "half of the samples are not above it"),
            Column::number("p99", "99 of 100 samples are not above it; not known of fewer than 20"),
            Column::number("longest", "the longest sample"),
        ];
        text.push_str(&format!(
            "\nlatency: {kind}\n{}",
            tables.draw(&Grid::new(columns, groups))
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::terminal::{Legend, Terminal, width};
    use crate::runs::fake;

    fn fits(text: &str, columns: usize) -> bool {
        text.lines().all(|line| width(line) <= columns)
    }

    #[test]
    fn widest_table_fits_every_terminal() {
        for runs in [1, 3] {
            let mut plan = fake::plan(&["ideal", "ipi", "broadcast", "adaptive", "none"], &[1, 4, 16, 72]);
            plan.settings.runs = runs;
            for columns in [40, 60, 80, 120] {
                let text = comparison(&fake::comparison(plan.clone())).draw(columns);
                assert!(fits(&text, columns), "{columns} columns:\n{text}");
            }
        }
    }

    #[test]
    fn each_thread_count_is_one_group_between_rules() {
        let text = comparison(&fake::comparison(fake::plan(&["ipi", "broadcast"], &[1, 16]))).draw(200);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2 + 2 + 1 + 2 + 1, "{text}");
        for heading in [
            "loops/s",
            "published",
            "error",
            "time per loop",
            "flush p50",
            "flush p99",
            "flush CPU",
        ] {
            assert!(lines[0].contains(heading), "{heading}: {text}");
        }
        assert!(lines[2].contains("ipi") && lines[2].contains("315k"));
        assert!(lines[4].starts_with("──"), "{text}");
        assert!(lines[6].contains("broadcast") && lines[6].contains("1368k"), "{text}");
    }

    #[test]
    fn cell_without_results_says_failed() {
        let mut comparison = fake::comparison(fake::plan(&["ideal", "ipi"], &[4]));
        let outcomes = vec![comparison.runs.remove(0).1, Err("hangs".to_string())];
        let grid = super::comparison(&Comparison::new(comparison.plan, outcomes, None, 1.0));
        assert_eq!(
            grid.groups[0][1],
            ["", "ipi", "failed", "–", "644k", "–", "–", "–", "–", "–", "–", "–", "–"]
        );
    }

    #[test]
    fn metric_option_selects_columns() {
        let headings = |metric| {
            let mut plan = fake::plan(&["ipi"], &[2]);
            plan.metric = metric;
            let grid = comparison(&fake::comparison(plan));
            grid.columns
                .into_iter()
                .map(|column| column.heading)
                .collect::<Vec<_>>()
                .join(" | ")
        };
        let (rate, time) = ("loops/s | likely loops/s", "time per loop | flush p50 | flush p99");
        let counts = "IPIs per loop | taken per loop | flush CPU";
        assert_eq!(headings(None), format!("threads | design | {rate} | {time} | {counts}"));
        assert_eq!(
            headings(Some(Metric::Rate)),
            format!("threads | design | {rate} | {counts}")
        );
        assert_eq!(
            headings(Some(Metric::Time)),
            format!("threads | design | {time} | {counts}")
        );
    }

    #[test]
    fn every_column_is_explained() {
        let mut plan = fake::plan(&["ideal", "ipi", "none"], &[4]);
        plan.settings.runs = 2;
        for column in comparison(&fake::comparison(plan)).columns {
            assert!(!column.about.is_empty(), "{}", column.heading);
        }
    }

    #[test]
    fn stale_column_appears_only_with_stale_translations() {
        let heading = |designs: &[&str]| {
            let grid = comparison(&fake::comparison(fake::plan(designs, &[4])));
            grid.columns.iter().any(|column| column.heading == "stale")
        };
        assert!(heading(&["ipi", "none"]) && !heading(&["ipi", "broadcast"]));
    }

    #[test]
    fn each_latency_kind_has_a_table() {
        let mut comparison = fake::comparison(fake::plan(&["ipi", "broadcast"], &[1, 16]));
        let mut tables = Tables::on(Terminal {
            columns: 60,
            legend: Legend::Always,
        });
        let text = latencies(&comparison, &mut tables);
        assert_eq!(text.matches("latency: ").count(), 3, "{text}");
        assert!(
            text.contains("latency: interrupt disturbance") && fits(&text, 60),
            "{text}"
        );
        assert_eq!(text.matches("broadcast\u{20}").count(), 3 * 2, "{text}");
        assert_eq!(text.matches("the longest sample").count(), 1, "{text}");
        comparison.rows.iter_mut().for_each(|row| row.latencies.clear());
        assert_eq!(latencies(&comparison, &mut tables), "");
    }
}
