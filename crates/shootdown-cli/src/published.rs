//! The published measurements, embedded from `evidence/published.toml`.

use serde::Deserialize;

/// One published measurement.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The table it belongs to (`E1`).
    pub table: String,
    /// The workload, as this program calls it.
    pub workload: String,
    /// The machine model that stands for the measured machine.
    pub machine: String,
    /// The design preset that stands for the measured kernel.
    pub design: String,
    /// Threads.
    pub threads: usize,
    /// Whether each madvise drained the LRU batch under the LRU lock.
    pub lru_drain: bool,
    /// Thousands of loops per second, all threads together.
    pub kloops_per_s: f64,
    /// Whether machine-model parameters were fitted on this row.
    pub fitted: bool,
    /// What was measured, in words.
    pub source: String,
}

impl Published {
    /// Loops per second, all threads together.
    pub fn ops_per_s(&self) -> f64 {
        self.kloops_per_s * 1000.0
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    row: Vec<Published>,
}

/// Every published row, in the order of the file.
pub fn rows() -> Vec<Published> {
    // The file is part of the program and a test parses it, so a mistake cannot reach a user.
    toml::from_str::<File>(include_str!("../../../evidence/published.toml"))
        .expect("embedded evidence/published.toml")
        .row
}

/// The published rate of a design at a thread count among `rows`, in operations per second, if there is one.
pub fn lookup(rows: &[Published], design: &str, threads: usize) -> Option<f64> {
    rows.iter()
        .find(|row| row.design == design && row.threads == threads)
        .map(Published::ops_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_four_rows_are_fitted() {
        let rows = rows();
        assert_eq!(rows.len(), 12);
        let fitted: Vec<_> = rows
            .iter()
            .filter(|row| row.fitted)
            .map(|row| (&*row.design, row.threads, row.lru_drain))
            .collect();
        assert_eq!(
            fitted,
            [
                ("ipi", 1, false),
                ("ipi", 16, false),
                ("broadcast", 16, false),
                ("ipi", 36, true)
            ]
        );
    }

    #[test]
    fn no_two_rows_describe_the_same_run() {
        let rows = rows();
        for (index, row) in rows.iter().enumerate() {
            let same = |other: &Published| {
                (&other.workload, &other.machine, &other.design) == (&row.workload, &row.machine, &row.design)
                    && (other.threads, other.lru_drain) == (row.threads, row.lru_drain)
            };
            assert!(
                !rows[..index].iter().any(same),
                "row {index} is hidden by an earlier one"
            );
        }
    }

    #[test]
    fn rows_name_known_workloads_designs_and_positive_rates() {
        for row in rows() {
            assert!(crate::catalog::workload(&row.workload).is_some());
            assert!(crate::catalog::design(&row.design).is_some());
            assert!(row.kloops_per_s > 0.0 && row.threads > 0);
        }
    }
}
