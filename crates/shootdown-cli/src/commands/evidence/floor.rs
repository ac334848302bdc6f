//! The floor: how much of a published rate invalidation costs can explain.
//!
//! The design `ideal` invalidates at once and for free. Where its rate is below a published one, a cost other than
//! invalidation is too high in the model, and no cost of an interrupt can repair the row.

use schemars::JsonSchema;
use serde::Serialize;
use shootdown_sim::run::DESIGN_PREFIX;

use super::Line;
use crate::catalog::IDEAL_DESIGN;
use crate::print::number;
use crate::published::{Metric, Published};

/// Tolerance of `ideal` below a published rate, as a share of it: published medians of a few runs and single simulated
/// runs vary by as much.
const TOLERANCE: f64 = 0.02;

/// A row whose published rate `ideal` does not reach.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct Below<'a> {
    /// The published table.
    table: &'a str,
    /// Name of the workload.
    workload: &'a str,
    /// The machine model.
    machine: &'a str,
    /// The design whose rate was published.
    design: &'a str,
    /// Number of threads.
    threads: usize,
    /// Whether each `madvise` drains the LRU batch under the LRU lock.
    lru_drain: bool,
    /// Operations per second under `ideal`.
    ideal_ops_per_s: f64,
    /// Operations per second that were published.
    published_ops_per_s: f64,
    /// Whether the published rate lies within the 90 % interval of `ideal`.
    #[serde(skip)]
    #[schemars(skip)]
    within: bool,
}

/// The published rate of a row in operations per second, all threads together; none where no rate was published.
fn rate(row: &Published) -> Option<f64> {
    match row.metric {
        Metric::OpsPerS => Some(row.value),
        Metric::NsPerOp => Some(1e9 / row.value),
        Metric::Seconds => Some(row.operations? / row.value),
        _ => None,
    }
}

/// The rows with a published rate, each run under `ideal`.
pub(super) fn rows(rows: &[Published]) -> Vec<Published> {
    let under_ideal = |row: &Published| {
        let set = row.set.iter().filter(|set| !set.starts_with(DESIGN_PREFIX));
        Some(Published {
            design: IDEAL_DESIGN.to_string(),
            metric: Metric::OpsPerS,
            value: rate(row)?,
            operations: None,
            set: set.cloned().collect(),
            ..row.clone()
        })
    };
    rows.iter().filter_map(under_ideal).collect()
}

/// The rows whose published rate `ideal` does not reach. `ideals` are the lines of [`rows`] of `published`.
pub(super) fn below<'a>(published: &'a [Published], ideals: &[Line]) -> Vec<Below<'a>> {
    let with_rate = published.iter().filter(|row| rate(row).is_some());
    with_rate
        .zip(ideals)
        .filter_map(|(row, ideal)| {
            let (simulated, value) = (ideal.simulated?, ideal.published.value);
            (simulated < value * (1.0 - TOLERANCE)).then_some(Below {
                table: &row.table,
                workload: &row.workload,
                machine: &row.machine,
                design: &row.design,
                threads: row.threads,
                lru_drain: row.lru_drain,
                ideal_ops_per_s: simulated,
                published_ops_per_s: value,
                within: ideal.is_within().unwrap_or(false),
            })
        })
        .collect()
}

/// How many of the lines of [`rows`] were simulated.
pub(super) fn checked(ideals: &[Line]) -> usize {
    ideals.iter().filter(|ideal| ideal.simulated.is_some()).count()
}

/// The verdict, a line for each row that fails it; of `checked` rows.
pub(super) fn verdict(below: &[Below], checked: usize) -> String {
    if checked == 0 {
        return String::new();
    }
    if below.is_empty() {
        return format!("floor: ideal reaches the published rate of each of {checked} rows\n");
    }
    let mut text = format!(
        "FLOOR: ideal, which invalidates for free, is below the published rate of {} of {}; \
         the model is too slow there in something other than invalidation\n",
        below.len(),
        number::counted(checked, "row")
    );
    for row in below {
        text.push_str(&format!(
            "FLOOR: {} {} on {}, {} at {}{}: ideal {}, published {}{}\n",
            row.table,
            row.workload,
            row.machine,
            row.design,
            number::threads(row.threads),
            if row.lru_drain { ", LRU drain" } else { "" },
            number::rate(row.ideal_ops_per_s),
            number::rate(row.published_ops_per_s),
            if row.within { ", within the 90 % interval" } else { "" }
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::interval::Interval;
    use crate::published;

    /// Two rates and a share.
    fn published() -> Vec<Published> {
        let rate = published::rows().remove(0);
        let per_op = Published {
            metric: Metric::NsPerOp,
            value: 2000.0,
            design: "broadcast".to_string(),
            set: vec!["design.ceiling=8".to_string(), "kernel.slice=2e6".to_string()],
            ..rate.clone()
        };
        let share = Published {
            metric: Metric::FlushShare,
            value: 0.5,
            ..rate.clone()
        };
        vec![rate, share, per_op]
    }

    fn lines(simulated: [f64; 2]) -> Vec<Line> {
        let rows = rows(&published());
        let line = |(published, simulated)| Line {
            published,
            simulated: Some(simulated),
            interval: None,
            interpolated: None,
        };
        rows.into_iter().zip(simulated).map(line).collect()
    }

    #[test]
    fn each_published_rate_is_run_under_ideal_in_operations_per_second() {
        let rows = rows(&published());
        let rates: Vec<(&str, f64)> = rows.iter().map(|row| (&*row.design, row.value)).collect();
        assert_eq!(rates, [("ideal", 315e3), ("ideal", 500e3)]);
        assert_eq!(rows[1].set, ["kernel.slice=2e6"]);
    }

    #[test]
    fn published_rate_above_ideal_fails_by_name() {
        let rows = published();
        assert!(below(&rows, &lines([400e3, 495e3])).is_empty());
        let lines = lines([400e3, 450e3]);
        let below = below(&rows, &lines);
        let text = verdict(&below, 2);
        assert!(text.contains("published rate of 1 of 2 rows"), "{text}");
        assert!(
            text.contains("FLOOR: E1 tlb_flush2 on milan-72, broadcast at 1 thread: ideal 450"),
            "{text}"
        );
        assert!(text.ends_with("published 500k\n"), "{text}");
    }

    #[test]
    fn a_published_rate_within_the_interval_of_ideal_is_said_to_be() {
        let rows = published();
        let mut lines = lines([400e3, 450e3]);
        lines[1].interval = Some(Interval { low: 0.8, high: 1.2 });
        let text = verdict(&below(&rows, &lines), 2);
        assert!(text.contains(", within the 90 % interval"), "{text}");
    }

    #[test]
    fn floor_verdict_ignores_rows_without_a_rate() {
        assert_eq!(verdict(&[], 0), "");
        assert_eq!(
            verdict(&[], 3),
            "floor: ideal reaches the published rate of each of 3 rows\n"
        );
    }
}
