//! The rows of a table: one for each run, grouped by the number of threads.

use super::reading::Row;
use crate::print::number::UNKNOWN;
use crate::print::table::{Column, Grid};

/// A failed row says so, and has no figures.
pub(super) fn grid(own: Vec<Column>, rows: &[Row], cells: impl Fn(&Row) -> Option<Vec<String>>) -> Grid {
    let mut groups: Vec<Vec<Vec<String>>> = Vec::new();
    let mut last = None;
    for row in rows {
        let first = last.replace(row.threads) != Some(row.threads);
        if first {
            groups.push(Vec::new());
        }
        let threads = if first { row.threads.to_string() } else { String::new() };
        let mut all = vec![threads, row.design.clone()];
        all.extend(cells(row).unwrap_or_else(|| {
            let mut failed = vec!["failed".to_owned()];
            failed.resize(own.len(), UNKNOWN.to_owned());
            failed
        }));
        groups.last_mut().expect("begun above").push(all);
    }
    let columns = [
        Column::number("threads", "threads of the workload, each on a CPU of its own"),
        Column::words(
            "design",
            "how other CPUs are made to drop translations; `shootdown list` describes each",
        ),
    ];
    Grid::new(columns.into_iter().chain(own).collect(), groups)
}
