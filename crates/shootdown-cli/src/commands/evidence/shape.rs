//! The shape of the curves of `evidence`: statements about E1 and E2 beyond single rows, and whether the simulation
//! meets them.
//!
//! The statements are the specification's reading of the published tables. No number was fitted on them, but the second
//! was used to choose between hypotheses about what sets the ceiling of broadcast (docs/src/machines/priors.md).

use std::sync::Arc;

use shootdown_sim::run::{Parameters, RunSpec};

use super::VIRTUAL_MS;
use crate::failure::Failure;
use crate::print::number;
use crate::print::table::{Column, Grid, Tables};
use crate::runs::plan::Settings;
use crate::runs::queue::Outcome;
use crate::runs::target::{RELEASE, Target};

/// Thread counts at which the curves are checked.
const THREADS: [usize; 10] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 72];

/// The designs whose curves are checked.
const DESIGNS: [&str; 2] = ["ipi", "broadcast"];

/// The release of Linux that E1 and E2 were measured on: where they have a row, its run is this one's.
const KERNEL: &str = "6.13";

/// Threads of the two unmodified variants of E2.
const E2_THREADS: usize = 36;

/// A peak is near another when they are at most this factor apart.
const NEAR: f64 = 1.5;

/// A plateau counts as a peak wherever it is this close to the highest rate: medians of a few runs differ by as much.
const PLATEAU: f64 = 0.03;

/// The runs: both curves, then both unmodified variants.
pub fn specs(settings: &Settings) -> Result<Vec<RunSpec>, Failure> {
    let machine = Target::new("milan-72", None, &[format!("{RELEASE}={KERNEL}")])?.machine;
    let spec = |design: &str, threads, lru_drain| RunSpec {
        workload: "tlb_flush2".to_string(),
        machine: Arc::clone(&machine),
        design: design.to_string(),
        threads,
        seed: settings.seed,
        virtual_ms: settings.virtual_ms.or(Some(VIRTUAL_MS)),
        lru_drain,
        parameters: Parameters::default(),
    };
    let curves = DESIGNS
        .iter()
        .flat_map(|design| THREADS.map(|threads| spec(design, threads, false)));
    let unmodified = DESIGNS.map(|design| spec(design, E2_THREADS, true));
    Ok(curves.chain(unmodified).collect())
}

/// One statement about the curves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The simulated value.
    pub found: String,
    /// The expected value.
    pub expected: &'static str,
    /// Whether they agree.
    pub met: bool,
}

/// The threshold of a statement about a peak; the other statements name their bounds.
const TOLERANCE: &str =
    "met: a peak is near where it lies within a factor of 1.5, or where the curve is within 3 % of its peak";

/// How the statements are to be read.
pub const CAVEAT: &str = concat!(
    "one run each; no number was fitted on it, but the second line chose ",
    "between hypotheses: docs/src/machines/priors.md"
);

/// The simulated curves, given the outcomes of [`specs`] in order: design, then (threads, operations per second) of the
/// runs that did not fail.
pub fn curves(outcomes: &[Outcome]) -> Vec<(&'static str, Vec<(usize, f64)>)> {
    let of_design = |design| -> Vec<(usize, f64)> {
        let outcomes = outcomes.chunks(THREADS.len()).nth(design).unwrap_or_default();
        let rates = THREADS.iter().zip(outcomes);
        rates
            .filter_map(|(&threads, outcome)| Some((threads, outcome.as_ref().ok()?.ops_per_s)))
            .collect()
    };
    DESIGNS
        .iter()
        .enumerate()
        .map(|(index, design)| (*design, of_design(index)))
        .collect()
}

/// The shape of the curves as text, as [`statements`].
pub fn text(outcomes: &[Outcome]) -> Option<String> {
    let columns = vec![
        Column::words("simulated", "what the simulated curves are like"),
        Column::words("published", "what the specification says of the published curves"),
        Column::words("verdict", TOLERANCE),
    ];
    let rows = statements(outcomes)?
        .into_iter()
        .map(|Statement { found, expected, met }| {
            let verdict = if met { "met" } else { "MISSED" };
            vec![found, expected.to_string(), verdict.to_string()]
        });
    let grid = Grid::new(columns, vec![rows.collect()]).note(TOLERANCE);
    Some(format!(
        "Curve shape: simulated beside published ({CAVEAT})\n{}",
        Tables::new().draw(&grid)
    ))
}

/// The shape of the curves, given the outcomes of [`specs`] in order; `None` when a run failed.
pub fn statements(outcomes: &[Outcome]) -> Option<Vec<Statement>> {
    let rates: Vec<f64> = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().ok().map(|result| result.ops_per_s))
        .collect::<Option<_>>()?;
    let (curves, unmodified) = rates.split_at_checked(2 * THREADS.len())?;
    let (ipi, broadcast) = curves.split_at(THREADS.len());
    let highest = |curve: &[f64]| (0..THREADS.len()).max_by(|&a, &b| curve[a].total_cmp(&curve[b]));
    // Met when the highest point is near, or when the curve is as good as flat from there to the expected count and
    // falls off on both sides.
    let peak = |name: &str, curve: &[f64], expected: usize| {
        let top = highest(curve)?;
        let at = THREADS.iter().position(|&threads| threads == expected)?;
        let below = 1.0 - curve[at] / curve[top];
        let apart = THREADS[top] as f64 / expected as f64;
        let falls_off = |to: f64| to < curve[top] * (1.0 - 2.0 * PLATEAU);
        let plateau = below <= PLATEAU && falls_off(curve[0]) && falls_off(curve[THREADS.len() - 1]);
        let what = format!(
            "{name} is highest at {}; at {expected}, {} below",
            number::threads(THREADS[top]),
            number::percent(below)
        );
        Some((what, (1.0 / NEAR..=NEAR).contains(&apart) || plateau))
    };
    let (ipi_peak, broadcast_peak) = (peak("ipi", ipi, 32)?, peak("broadcast", broadcast, 16)?);
    let (least, at) = (0..THREADS.len())
        .filter(|&at| THREADS[at] >= 4)
        .map(|at| (broadcast[at] / ipi[at], THREADS[at]))
        .min_by(|a, b| a.0.total_cmp(&b.0))?;
    let apart = unmodified.get(1)? / unmodified.first()? - 1.0;
    let statement = |found: String, expected: &'static str, met: bool| Statement { found, expected, met };
    Some(vec![
        statement(ipi_peak.0, "near 32", ipi_peak.1),
        statement(broadcast_peak.0, "near 16", broadcast_peak.1),
        statement(
            format!("broadcast is at least {least:.2}x ipi from 4 threads up (at {at})"),
            "at least 1.4x",
            least >= 1.4,
        ),
        statement(
            format!(
                "E2 unmodified, broadcast against ipi: {}",
                number::signed_percent(apart)
            ),
            "within 10 %",
            apart.abs() <= 0.1,
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::fake;
    use shootdown_sim::run::RunResult;

    fn outcome(rate: f64) -> Outcome {
        let specs = fake::plan(&["ipi"], &[1]).specs();
        Ok(RunResult {
            ops_per_s: rate,
            ..fake::result(&specs[0])
        })
    }

    fn shape_of(ipi: [f64; 10], broadcast: [f64; 10], unmodified: [f64; 2]) -> String {
        let outcomes: Vec<_> = ipi
            .into_iter()
            .chain(broadcast)
            .chain(unmodified)
            .map(outcome)
            .collect();
        text(&outcomes).expect("no run failed")
    }

    #[test]
    fn published_shape_meets_all_criteria_and_a_flat_curve_does_not() {
        let ipi = [3.0, 4.0, 5.0, 6.0, 7.0, 7.4, 7.5, 7.0, 6.5, 6.0];
        let broadcast = [3.0, 4.0, 10.0, 12.0, 14.0, 13.0, 12.0, 11.0, 10.5, 10.0];
        let good = shape_of(ipi, broadcast, [5.0, 5.2]);
        assert_eq!(
            (good.matches(" met").count(), good.matches("MISSED").count()),
            (4, 0),
            "{good}"
        );
        let mut early = broadcast;
        early[3] = 14.3;
        assert_eq!(
            shape_of(ipi, early, [5.0, 5.2]).matches("MISSED").count(),
            0,
            "a plateau"
        );
        early[3] = 15.0;
        assert_eq!(shape_of(ipi, early, [5.0, 5.2]).matches("MISSED").count(), 1);
        let flat = shape_of([1.0; 10], [1.0; 10], [1.0, 2.0]);
        assert!(flat.matches("MISSED").count() >= 3, "{flat}");
    }

    #[test]
    fn curves_omit_failed_runs() {
        let mut outcomes: Vec<Outcome> = (0..22).map(|at| outcome(f64::from(at))).collect();
        outcomes[1] = Err("hangs".to_string());
        let curves = curves(&outcomes);
        assert_eq!((curves[0].0, curves[1].0), ("ipi", "broadcast"));
        assert_eq!((curves[0].1.len(), curves[1].1.len()), (9, 10));
        assert_eq!((curves[0].1[1], curves[1].1[0]), ((4, 2.0), (1, 10.0)));
    }

    #[test]
    fn failed_run_gives_no_curve_shape() {
        assert_eq!(text(&[Err("hangs".to_string())]), None);
    }
}
