//! Which design is ahead and by how much: ratios between designs, by rate or by time, of those that can be separated.

use super::distinct::{self, FEW};
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
}

const RATE: Measure = Measure {
    name: "",
    of: |row| Some(row.ops_per_s),
    is_rate: true,
    has_spread: false,
};
const TIME: Measure = Measure {
    name: "time per operation, ",
    of: |row| Some(1.0 / row.ops_per_s),
    is_rate: false,
    has_spread: false,
};
const SHOOTDOWN_P99: Measure = Measure {
    name: "shootdown p99, ",
    of: |row| row.shootdown().map(p99),
    is_rate: false,
    has_spread: false,
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

/// Each real design against the baseline (`ipi`, else the first), and `adaptive` against the best of the others, a
/// sentence each.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    let real = comparison.plan.designs.iter().map(|design| design.name);
    let real: Vec<&str> = real
        .filter(|&name| name != CONTROL_DESIGN && name != IDEAL_DESIGN)
        .collect();
    let Some(&baseline) = real.iter().find(|&&name| name == "ipi").or(real.first()) else {
        return Vec::new();
    };
    let mut sentences = Vec::new();
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
                sentences.push(format!("{}{design} vs {name}: {}", measure.name, points.join(", ")));
            }
        }
    }
    sentences
}

/// A figure of `design` over the best of `against`, at each thread count where both are known.
fn by_threads(comparison: &Comparison, design: &str, against: &[&str], measure: &Measure) -> Vec<String> {
    let points = comparison.plan.threads.iter().filter_map(|&threads| {
        let measured = |design| {
            let row = comparison.row(design, threads).filter(|row| row.doubt.is_none())?;
            Some((row, (measure.of)(row).filter(|figure| figure.is_finite())?))
        };
        let (row, own) = measured(design)?;
        let others = against.iter().filter_map(|other| measured(other));
        let (other, best) = others.reduce(|best, next| match (next.1 > best.1) == measure.is_rate {
            true => next,
            false => best,
        })?;
        let ratio = own / best;
        (ratio.is_finite() && ratio > 0.0).then_some((
            threads,
            ratio,
            !measure.has_spread || distinct::differ(row, other),
        ))
    });
    let points = points.enumerate().map(|(index, (threads, ratio, differ))| {
        let unit = match (index, threads) {
            (0, 1) => " thread",
            (0, _) => " threads",
            _ => "",
        };
        let within = if differ { "" } else { " (within the spread of runs)" };
        format!("{} at {threads}{unit}{within}", number::ratio(ratio))
    });
    points.collect()
}
