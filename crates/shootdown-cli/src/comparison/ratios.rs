//! Which design is ahead and by how much: ratios between designs, by rate or by time, of those that can be separated.

use schemars::JsonSchema;
use serde::Serialize;

use super::distinct::{self, FEW};
use super::interval::{self, Figure, Interval, Place};
use super::summary::{Comparison, Row, p99};
use crate::args::Metric;
use crate::catalog::{CONTROL_DESIGN, IDEAL_DESIGN};
use crate::print::number;

/// Most designs that are named one by one.
const NAMED: usize = 5;

/// A figure by which designs are compared.
struct Measure {
    /// The text before its ratios.
    name: &'static str,
    /// The figure of a row, where it is known.
    of: fn(&Row) -> Option<f64>,
    /// Whether larger is better.
    is_rate: bool,
    /// Whether it is CPU time of a recording, whose spread over runs is known.
    has_spread: bool,
    /// The 90 % interval of a ratio, if it has one.
    interval: fn(Place, Place) -> Option<Interval>,
}

const RATE: Measure = Measure {
    name: "",
    of: |row| Some(row.ops_per_s),
    is_rate: true,
    has_spread: false,
    interval: interval::of_ratio,
};
const TIME: Measure = Measure {
    name: "time per operation, ",
    of: |row| Some(1.0 / row.ops_per_s),
    is_rate: false,
    has_spread: false,
    interval: |own, other| interval::of_ratio(own, other).map(Interval::inverse),
};
const SHOOTDOWN_P99: Measure = Measure {
    name: "shootdown p99, ",
    of: |row| row.shootdown().map(p99),
    is_rate: false,
    has_spread: false,
    interval: |_, _| None,
};
/// For a recording: too few shootdowns give no ratio.
const CPU_TIME: Measure = Measure {
    name: "CPU time in invalidation, ",
    of: |row| {
        let enough = row.shootdown().is_some_and(|latency| latency.count >= FEW);
        enough.then(|| row.flush_cpu_ns_per_op())
    },
    is_rate: false,
    has_spread: true,
    interval: interval::of_flush_ratio,
};

/// The figures of the comparison: rate, or the times in the table.
fn measures(comparison: &Comparison) -> Vec<Measure> {
    if comparison.plan.shows(Metric::Rate) {
        vec![RATE]
    } else if comparison.plan.workload.recording.is_some() {
        vec![CPU_TIME, SHOOTDOWN_P99]
    } else {
        vec![TIME, SHOOTDOWN_P99]
    }
}

/// The meaning of the brackets after a ratio.
const BRACKETS: &str = "[low, high]: 90 % interval, from the machine's assumed ranges and the errors on published rows";

/// The real designs, and the one with which they are compared: `ipi`, else the first.
fn compared(comparison: &Comparison) -> Option<(Vec<&'static str>, &'static str)> {
    let real = comparison.plan.designs.iter().map(|design| design.name);
    let real: Vec<&str> = real
        .filter(|&name| name != CONTROL_DESIGN && name != IDEAL_DESIGN)
        .collect();
    let baseline = real
        .iter()
        .copied()
        .find(|&name| name == "ipi")
        .or(real.first().copied())?;
    Some((real, baseline))
}

/// Each real design against the baseline (`ipi`, else the first), and `adaptive` against the best of the others, a
/// sentence each.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    let Some((real, baseline)) = compared(comparison) else {
        return Vec::new();
    };
    let (mut sentences, mut bracketed) = (Vec::new(), false);
    for measure in measures(comparison) {
        for &design in real.iter().filter(|&&design| design != baseline) {
            let others: Vec<&str> = real.iter().copied().filter(|&other| other != design).collect();
            let (against, name) = if design == "adaptive" && others.len() > 1 {
                let names = match others.len() {
                    count if count > NAMED => format!("the {count} others"),
                    _ => others.join(", "),
                };
                (others, format!("the best of {names}"))
            } else {
                (vec![baseline], baseline.to_string())
            };
            let points = by_threads(comparison, design, &against, &measure);
            if !points.is_empty() {
                bracketed |= points.iter().any(|point| point.interval.is_some());
                let points: Vec<String> = points
                    .iter()
                    .enumerate()
                    .map(|(index, point)| point.words(index))
                    .collect();
                sentences.push(format!("{}{design} vs {name}: {}", measure.name, points.join(", ")));
            }
        }
    }
    sentences.extend(bracketed.then(|| BRACKETS.to_string()));
    sentences.extend(unfitted(comparison).filter(|_| bracketed));
    sentences.extend(unbounded(comparison).filter(|_| !sentences.is_empty()));
    sentences
}

/// A note for a virtual machine, whose figures have no intervals.
fn unbounded(comparison: &Comparison) -> Option<String> {
    let machine = &comparison.plan.target.machine;
    machine.vm.map(|_| {
        "no 90 % intervals: on published virtual machines the model is off by more than they would say \
         (the book: Virtual machines)"
            .into()
    })
}

/// A note for a machine without a fitted row: the source of its rates.
fn unfitted(comparison: &Comparison) -> Option<String> {
    let machine = &comparison.plan.target.machine.name;
    (Figure::rate_on(machine) == Figure::OtherRate)
        .then(|| format!("no rate of {machine} was fitted: rates follow from published costs alone, so go by ratios"))
}

/// Ratios of the rates of each real design to those of the baseline.
pub fn of_rates(comparison: &Comparison) -> Vec<Point> {
    let Some((real, baseline)) = compared(comparison) else {
        return Vec::new();
    };
    if comparison.plan.workload.recording.is_some() {
        return Vec::new();
    }
    let designs = real.into_iter().filter(|&design| design != baseline);
    designs
        .flat_map(|design| by_threads(comparison, design, &[baseline], &RATE))
        .collect()
}

/// The ratio of a figure of two designs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// Name of the design.
    pub design: String,
    /// Name of the design in the denominator.
    pub over: String,
    /// Number of threads.
    pub threads: usize,
    /// The figure of the one divided by that of the other.
    pub ratio: f64,
    /// Ends of its 90 % interval. Null without one.
    #[serde(rename = "interval_90")]
    pub interval: Option<[f64; 2]>,
    /// Whether the difference exceeds the spread of runs.
    #[serde(skip)]
    differ: bool,
}

impl Point {
    /// The ratio of CPU time in invalidation: `own` under the design of one place and `best` under that of another.
    pub fn of_flushes((own, at): (f64, Place), (other, over): (f64, Place)) -> Option<Self> {
        let ratio = own / other;
        (ratio.is_finite() && ratio > 0.0).then(|| Point {
            design: at.design.to_string(),
            over: over.design.to_string(),
            threads: at.threads,
            ratio,
            interval: interval::of_flush_ratio(at, over).map(|interval| interval.around(ratio)),
            differ: true,
        })
    }

    /// The ratio and its interval, as in `1.83x [1.58, 2.11]`.
    pub fn shown(&self) -> String {
        let interval = self
            .interval
            .map_or(String::new(), |[low, high]| format!(" [{low:.2}, {high:.2}]"));
        format!("{}{interval}", number::ratio(self.ratio))
    }

    /// As a part of a sentence, at this index of a list.
    fn words(&self, index: usize) -> String {
        let unit = match (index, self.threads) {
            (0, 1) => " thread",
            (0, _) => " threads",
            _ => "",
        };
        let within = if self.differ {
            ""
        } else {
            " (within the spread of runs)"
        };
        format!("{} at {}{unit}{within}", self.shown(), self.threads)
    }
}

/// A figure of `design` over the best of `against`, at each thread count where both are known.
fn by_threads(comparison: &Comparison, design: &str, against: &[&str], measure: &Measure) -> Vec<Point> {
    let points = comparison.plan.threads.iter().filter_map(|&threads| {
        let measured = |design| {
            let row = comparison.row(design, threads).filter(|row| row.caveat.is_none())?;
            Some((row, (measure.of)(row).filter(|figure| figure.is_finite())?))
        };
        let (row, own) = measured(design)?;
        let others = against.iter().filter_map(|other| measured(other));
        let (other, best) = others.reduce(|best, next| match (next.1 > best.1) == measure.is_rate {
            true => next,
            false => best,
        })?;
        let ratio = own / best;
        let interval = (measure.interval)(place(comparison, row), place(comparison, other));
        (ratio.is_finite() && ratio > 0.0).then(|| Point {
            design: row.design.to_string(),
            over: other.design.to_string(),
            threads,
            ratio,
            interval: interval.map(|interval| interval.around(ratio)),
            differ: !measure.has_spread || distinct::differ(row, other),
        })
    });
    points.collect()
}

/// The place of a row in the table of intervals.
pub fn place<'a>(comparison: &'a Comparison, row: &'a Row) -> Place<'a> {
    let plan = &comparison.plan;
    let follower = plan.followers.iter().find(|(threads, _)| *threads == row.threads);
    Place {
        machine: follower.map_or(&plan.target.machine, |(_, target)| &target.machine),
        workload: &plan.workload.name,
        design: row.design,
        threads: row.threads,
        lru_drain: plan.lru_drain,
    }
}
