//! The prediction that a model must beat: plain interpolation through the rows it was fitted on.
//!
//! For each design and LRU-drain setting, the logarithm of the throughput is linear in the logarithm of the thread
//! count, through that design's fitted rows (least squares, if there are more than two). Through a single fitted row
//! it is constant. A drain setting without a fitted row of its own design takes the fitted drain rows of any design:
//! with the drain the LRU lock was fitted, not the design. Without any of these there is no prediction.
//!
//! A simulator must do better than this on the held-out rows.

use crate::published::{Metric, Published};

/// Predicts the operations per second of `at` from the fitted rows among `rows`; `None` for numbers other than rates.
pub fn predict(rows: &[Published], at: &Published) -> Option<f64> {
    if at.metric != Metric::OpsPerS {
        return None;
    }
    let fitted = |same_design: bool| -> Vec<(f64, f64)> {
        rows.iter()
            .filter(|row| {
                let a_rate = row.fitted && row.metric == Metric::OpsPerS;
                let same = row.workload == at.workload && row.machine == at.machine && row.set == at.set;
                a_rate && same && row.lru_drain == at.lru_drain
            })
            .filter(|row| !same_design || row.design == at.design)
            .map(|row| ((row.threads as f64).ln(), row.value.ln()))
            .collect()
    };
    let mut points = fitted(true);
    if points.is_empty() && at.lru_drain {
        points = fitted(false);
    }
    line(&points, (at.threads as f64).ln()).map(f64::exp)
}

/// The least-squares line through `points`, evaluated at `x`; constant when all points share one abscissa.
fn line(points: &[(f64, f64)], x: f64) -> Option<f64> {
    if points.is_empty() {
        return None;
    }
    let n = points.len() as f64;
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / n;
    let variance = points.iter().map(|point| (point.0 - mean_x).powi(2)).sum::<f64>();
    let covariance = points
        .iter()
        .map(|point| (point.0 - mean_x) * (point.1 - mean_y))
        .sum::<f64>();
    let slope = if variance > 0.0 { covariance / variance } else { 0.0 };
    Some(mean_y + slope * (x - mean_x))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published rows, with `ipi` fitted at 16 threads too, because a line needs two points.
    fn rows() -> Vec<Published> {
        let mut rows = crate::published::rows();
        let of_two = rows
            .iter_mut()
            .filter(|row| (&*row.table, &*row.design, row.threads) == ("E1", "ipi", 16));
        of_two.for_each(|row| row.fitted = true);
        rows
    }

    fn at(design: &str, threads: usize, lru_drain: bool) -> f64 {
        let rows = rows();
        let at = Published {
            design: design.to_string(),
            threads,
            lru_drain,
            ..rows[0].clone()
        };
        predict(&rows, &at).unwrap() / 1000.0
    }

    #[test]
    fn interpolation_meets_fitted_rows_exactly() {
        let rows = rows();
        for row in rows.iter().filter(|row| row.fitted && row.machine == "milan-72") {
            assert!((predict(&rows, row).unwrap() / row.value - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn halfway_in_log_threads_is_the_geometric_mean() {
        // 4 is halfway between 1 and 16 in log(threads).
        assert!((at("ipi", 4, false) - (315.0f64 * 737.0).sqrt()).abs() < 1e-6);
    }

    #[test]
    fn interpolation_extrapolates_beyond_the_fitted_rows() {
        let slope = (737.0f64 / 315.0).ln() / 16.0f64.ln();
        assert!((at("ipi", 72, false) - 315.0 * 72.0f64.powf(slope)).abs() < 1e-6);
    }

    #[test]
    fn a_single_fitted_row_predicts_a_constant() {
        for threads in [1, 4, 72] {
            assert!((at("broadcast", threads, false) - 1368.0).abs() < 1e-9);
        }
    }

    #[test]
    fn drain_without_its_own_row_uses_the_fitted_drain_row() {
        assert!((at("broadcast", 36, true) - 527.0).abs() < 1e-9);
        assert!((at("ipi", 36, true) - 527.0).abs() < 1e-9);
    }

    #[test]
    fn interpolation_does_not_cross_machines_or_workloads() {
        let rows = rows();
        let changed = Published {
            set: vec!["costs.invlpg=200".to_string()],
            ..rows[0].clone()
        };
        assert_eq!(predict(&rows, &changed), None);
    }

    #[test]
    fn interpolation_ignores_held_out_rows() {
        let mut rows = rows();
        let at = rows[1].clone();
        let before = predict(&rows, &at);
        rows.iter_mut()
            .filter(|row| !row.fitted)
            .for_each(|row| row.value *= 10.0);
        assert_eq!(predict(&rows, &at), before);
    }

    #[test]
    fn a_design_without_fitted_rows_has_no_prediction() {
        let rows = rows();
        let at = Published {
            design: "adaptive".to_string(),
            ..rows[0].clone()
        };
        assert_eq!(predict(&rows, &at), None);
    }
}
