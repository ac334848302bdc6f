//! The uncertainty of a simulated figure: 90 % intervals from the table `evidence/intervals.toml`.
//!
//! An interval has two sources. The numbers of a machine model are known only within ranges. The table says how far
//! figures move with them, for the same samples in every cell, so common effects cancel in a ratio. And a model has
//! errors beyond its numbers: [`OFF`] is the distance of held-out published rows. Both are assumed to be independent.
//! Owns the choice of the cell for a run; simulates nothing.

use std::collections::HashSet;
use std::sync::OnceLock;

use serde::Deserialize;
use shootdown::{Design, Reach};

use crate::catalog::{self, FLAGSHIP_WORKLOAD, IDEAL_DESIGN};
use crate::published;
use shootdown_sim::model::Model;
use shootdown_sim::run::{RunResult, RunSpec};

/// The table, as in the file.
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

/// The kind of a figure, on which its interval depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// A rate or a time on a machine with a fitted one.
    FittedRate,
    /// A rate or a time on another machine.
    OtherRate,
    /// A ratio of the rates of two designs.
    Ratio,
    /// Interrupts per operation.
    Interrupts,
    /// A share of time, a latency.
    Share,
}

/// The distance of held-out rows from the model: the standard deviation of the logarithm of simulated over published,
/// of the nearest nine in ten rows of `evidence/published.toml` and `evidence/blind.toml` together, rounded. Those of
/// rates are larger: they are from before `kernel.call_target` of Intel's machines and of Turin was chosen with these
/// rows in view. A test holds that they are not smaller than found, by more than the 0.015 of a build with debug
/// assertions. `shootdown evidence` prints those of the file that it runs.
pub(crate) const OFF: [(Figure, f64); 5] = [
    (Figure::FittedRate, 0.125),
    (Figure::OtherRate, 0.18),
    (Figure::Ratio, 0.07),
    (Figure::Interrupts, 0.105),
    (Figure::Share, 0.67),
];

impl Figure {
    /// The error beyond the ranges of the model's numbers, as a standard deviation of a logarithm.
    pub fn off(self) -> f64 {
        let found = OFF.iter().find(|(figure, _)| *figure == self);
        found.map_or(f64::NAN, |(_, off)| *off)
    }

    /// The kind of a rate on a machine.
    pub fn rate_on(machine: &str) -> Figure {
        static FITTED: OnceLock<HashSet<String>> = OnceLock::new();
        let fitted = FITTED.get_or_init(|| {
            let rows = published::rows()
                .into_iter()
                .filter(|row| row.fitted && row.metric.is_rate());
            rows.map(|row| row.machine).collect()
        });
        match fitted.contains(machine) {
            true => Figure::FittedRate,
            false => Figure::OtherRate,
        }
    }
}

/// The properties of a run on which its interval depends.
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

    /// The same, had `off` been taken for figures of that kind.
    pub fn with_off(self, kind: Figure, off: f64) -> Interval {
        let widened = |end: f64| {
            let samples = (end.ln().powi(2) - (NINETY * kind.off()).powi(2)).max(0.0);
            samples.sqrt().hypot(NINETY * off)
        };
        Interval {
            low: (-widened(self.low)).exp(),
            high: widened(self.high).exp(),
        }
    }

    /// The interval of the inverse: of a time, given that of a rate.
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

impl Place<'_> {
    /// Whether figures have intervals here. Those of virtual machines have none: nothing was fitted on the published
    /// ones, which are off by more than the errors of the others (`evidence/virtual-machines.toml`).
    pub fn has_intervals(&self) -> bool {
        self.machine.vm.is_none()
    }
}

/// The interval of a rate, if it has one.
pub fn of_rate(place: Place) -> Option<Interval> {
    place.has_intervals().then(|| {
        let (machine, cell) = cell(place);
        interval(&cell.log_rates, &machine.weights, Figure::rate_on(&place.machine.name))
    })
}

/// The interval of a run's rate; `None` for a recording, whose rate is given, and for a virtual machine.
pub fn of_spec(spec: &RunSpec) -> Option<Interval> {
    catalog::workload(&spec.workload)?;
    of_rate(Place {
        machine: &spec.machine,
        workload: &spec.workload,
        design: &spec.design,
        threads: spec.threads,
        lru_drain: spec.lru_drain,
    })
}

/// The ends of the interval of a run's rate; `None` if the rate is not a measurement.
pub fn of_run(spec: &RunSpec, result: &RunResult) -> Option<[f64; 2]> {
    let interval = of_spec(spec).filter(|_| result.caveat().is_none());
    interval.map(|interval| interval.around(result.ops_per_s))
}

/// The interval of the ratio of the rates of `one` and `other`, if it has one.
pub fn of_ratio(one: Place, other: Place) -> Option<Interval> {
    of_two(one, other, |cell| &cell.log_rates)
}

/// The interval of the ratio of the CPU time in invalidation per operation of `one` and `other`, if it has one.
pub fn of_flush_ratio(one: Place, other: Place) -> Option<Interval> {
    of_two(one, other, |cell| &cell.log_flushes)
}

/// The interval of a number of that kind which the samples do not give: interrupts, shares, latencies.
pub fn of_kind(figure: Figure) -> Interval {
    interval(&[], &[], figure)
}

fn of_two(one: Place, other: Place, logs: fn(&Cell) -> &Vec<f64>) -> Option<Interval> {
    if !one.has_intervals() || !other.has_intervals() {
        return None;
    }
    let ((machine, one), (of_other, other)) = (cell(one), cell(other));
    let apart: Vec<f64> = match machine.name == of_other.name {
        true => (logs(one).iter().zip(logs(other)).map(|(one, other)| one - other)).collect(),
        false => Vec::new(),
    };
    Some(interval(&apart, &machine.weights, Figure::Ratio))
}

/// The weighted 5 % and 95 % points of samples, widened by the model's error beyond them.
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

/// The cell for a run: of the machine that does, or does not, broadcast as this one. Then of the same workload, or else
/// of `tlb_flush2`; of the same design, or of one with the same mechanism; and of the nearest number of threads.
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

/// The design of the table with the same mechanism as `design`.
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
