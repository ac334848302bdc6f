//! How wrong a simulated figure may be: 90 % intervals from the table `evidence/intervals.toml`.
//!
//! Two things make an interval. The numbers of a machine model are known only within ranges: the table holds how far
//! figures move with them, for the same samples in every cell, so that a ratio keeps what its two rates have in common.
//! And a model is wrong by more than its numbers: [`OFF`] is how far published rows lie from it that it was not fitted
//! on. Both are taken to be independent. Owns which cell stands for which run; simulates nothing.

use std::collections::HashSet;
use std::sync::OnceLock;

use serde::Deserialize;
use shootdown::{Design, Reach};

use crate::catalog::{self, FLAGSHIP_WORKLOAD, IDEAL_DESIGN};
use crate::published;
use shootdown_sim::model::Model;
use shootdown_sim::run::{RunResult, RunSpec};

/// The table as the file has it.
#[derive(Debug, Deserialize)]
struct File {
    machine: Vec<Machine>,
}

#[derive(Debug, Deserialize)]
struct Machine {
    name: String,
    weights: Vec<f64>,
    cell: Vec<Cell>,
}

#[derive(Debug, Deserialize)]
struct Cell {
    workload: String,
    design: String,
    threads: usize,
    lru_drain: bool,
    log_rates: Vec<f64>,
    log_flushes: Vec<f64>,
}

/// What a figure is, as far as its interval depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// A rate or a time on a machine with a fitted row.
    FittedRate,
    /// A rate or a time on another machine.
    OtherRate,
    /// A ratio of the rates of two designs.
    Ratio,
    /// Interrupts per operation, a share of time, a latency.
    Count,
}

/// How far rows of E1 to E10 lie from the model that were not fitted: the standard deviation of the logarithm of
/// simulated over published, of the nine in ten that are nearest. `shootdown evidence` prints what they are now. Of rates
/// on machines without a fitted row there is one, and ratios are nearly all of one table: half again as much is assumed
/// as on fitted machines, and as was found.
const OFF: [(Figure, f64); 4] = [
    (Figure::FittedRate, 0.14),
    (Figure::OtherRate, 0.21),
    (Figure::Ratio, 0.09),
    (Figure::Count, 0.27),
];

impl Figure {
    /// How far it may be off beyond what the numbers of the model explain, as a standard deviation of a logarithm.
    pub fn off(self) -> f64 {
        let found = OFF.iter().find(|(figure, _)| *figure == self);
        found.map_or(f64::NAN, |(_, off)| *off)
    }

    /// That of a rate on a machine.
    pub fn rate_on(machine: &str) -> Figure {
        static FITTED: OnceLock<HashSet<String>> = OnceLock::new();
        let fitted = FITTED.get_or_init(|| {
            let rows = published::rows().into_iter().filter(|row| row.fitted);
            rows.map(|row| row.machine).collect()
        });
        match fitted.contains(machine) {
            true => Figure::FittedRate,
            false => Figure::OtherRate,
        }
    }
}

/// A run, as far as its interval depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The machine.
    pub machine: &'a Model,
    /// The workload.
    pub workload: &'a str,
    /// The design.
    pub design: &'a str,
    /// Threads.
    pub threads: usize,
    /// Whether each `madvise` drains the LRU batch.
    pub lru_drain: bool,
}

/// An interval, as factors on the simulated number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end, at most 1.
    pub low: f64,
    /// Upper end, at least 1.
    pub high: f64,
}

impl Interval {
    /// The ends around `number`.
    pub fn around(self, number: f64) -> [f64; 2] {
        [number * self.low, number * self.high]
    }

    /// Half its width, as a share of the number.
    pub fn half_width(self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// That of the inverse: of a time, given that of a rate.
    pub fn inverse(self) -> Interval {
        Interval {
            low: 1.0 / self.high,
            high: 1.0 / self.low,
        }
    }
}

/// Standard deviations from the middle of a normal distribution to the ends of its middle 90 %.
const NINETY: f64 = 1.645;

fn table() -> &'static File {
    static TABLE: OnceLock<File> = OnceLock::new();
    TABLE.get_or_init(|| toml::from_str(include_str!("../../../../evidence/intervals.toml")).expect("embedded table"))
}

/// Of a rate.
pub fn of_rate(place: Place) -> Interval {
    let (machine, cell) = cell(place);
    interval(&cell.log_rates, &machine.weights, Figure::rate_on(&place.machine.name))
}

/// Of the rate of a run; none of a recording, whose rate is its own.
pub fn of_spec(spec: &RunSpec) -> Option<Interval> {
    let simulated = catalog::workload(&spec.workload).is_some();
    simulated.then(|| {
        of_rate(Place {
            machine: &spec.machine,
            workload: &spec.workload,
            design: &spec.design,
            threads: spec.threads,
            lru_drain: spec.lru_drain,
        })
    })
}

/// The ends of that of a run's rate; none where the rate is no measurement.
pub fn of_run(spec: &RunSpec, result: &RunResult) -> Option<[f64; 2]> {
    let interval = of_spec(spec).filter(|_| result.doubt().is_none());
    interval.map(|interval| interval.around(result.ops_per_s))
}

/// Of the rate of `one` over that of `other`.
pub fn of_ratio(one: Place, other: Place) -> Interval {
    of_two(one, other, |cell| &cell.log_rates)
}

/// Of the CPU time in invalidation per operation of `one` over that of `other`.
pub fn of_flush_ratio(one: Place, other: Place) -> Interval {
    of_two(one, other, |cell| &cell.log_flushes)
}

/// Of a number that is neither: interrupts per operation, a share of time, a latency.
pub fn of_count() -> Interval {
    interval(&[], &[], Figure::Count)
}

fn of_two(one: Place, other: Place, logs: fn(&Cell) -> &Vec<f64>) -> Interval {
    let ((machine, one), (of_other, other)) = (cell(one), cell(other));
    let apart: Vec<f64> = match machine.name == of_other.name {
        true => (logs(one).iter().zip(logs(other)).map(|(one, other)| one - other)).collect(),
        false => Vec::new(),
    };
    interval(&apart, &machine.weights, Figure::Ratio)
}

/// The weighted 5 % and 95 % points of samples, widened by how far the model is off beyond them.
fn interval(logs: &[f64], weights: &[f64], figure: Figure) -> Interval {
    let mut sorted: Vec<(f64, f64)> = logs.iter().copied().zip(weights.iter().copied()).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let point = |share: f64| {
        let mut below = 0.0;
        let found = sorted.iter().find(|(_, weight)| {
            below += weight;
            below >= share * all
        });
        found.map_or(0.0, |(log, _)| *log)
    };
    let widened = |end: f64| end.hypot(NINETY * figure.off());
    Interval {
        low: (-widened(point(0.05).min(0.0))).exp(),
        high: widened(point(0.95).max(0.0)).exp(),
    }
}

/// The cell that stands for a run: of the machine that broadcasts or of the one that does not; of the same workload, or
/// else of the flagship's; of the same design, or of one that reaches other CPUs in the same way; then of the nearest
/// number of threads.
fn cell(place: Place) -> (&'static Machine, &'static Cell) {
    let machines = &table().machine;
    let machine = &machines[usize::from(!place.machine.broadcasts())];
    let has = |workload: &str| machine.cell.iter().any(|cell| cell.workload == workload);
    let workload = match has(place.workload) {
        true => place.workload,
        false => FLAGSHIP_WORKLOAD,
    };
    let kind = kind(place.design);
    let rank = |cell: &&Cell| {
        let by_design = match cell.design == place.design {
            true => 0,
            false => 1 + u64::from(cell.design != kind),
        };
        let apart = (cell.threads as f64 / place.threads as f64).ln().abs();
        (by_design, cell.lru_drain != place.lru_drain, (apart * 1e6) as u64)
    };
    let cells = machine.cell.iter().filter(|cell| cell.workload == workload);
    (
        machine,
        cells.min_by_key(rank).expect("each workload of the table has cells"),
    )
}

/// The design of the table that reaches other CPUs as `design` does.
fn kind(design: &str) -> &'static str {
    match Design::preset(design).map(|design| design.policy.reach) {
        Some(Reach::Adaptive) => "adaptive",
        Some(Reach::Broadcast | Reach::LocalFirst) => "broadcast",
        _ if design == IDEAL_DESIGN => IDEAL_DESIGN,
        _ => "ipi",
    }
}

#[cfg(test)]
mod tests;
