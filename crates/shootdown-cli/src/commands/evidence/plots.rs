//! Plots of the published tables: published points over simulated lines.

use super::findings::Findings;
use super::{Line, distinct};
use crate::catalog;
use crate::print::page::escape;
use crate::print::plot;
use crate::print::style;
use crate::published::Metric;

/// The table whose machine and workload the curves are of.
const CURVES_OF: &str = "E1";

/// A plot for every machine and metric of the table that has more than one thread count: published points over
/// simulated lines.
pub(crate) fn plots(findings: &Findings, table: &str) -> String {
    let mut html = String::new();
    for machine in distinct(findings.lines, |line| &line.published.machine) {
        for metric in Metric::ALL {
            // Other published numbers of the same runs belong on the same plot.
            let same = |line: &&Line| {
                let row = &line.published;
                row.machine == machine && row.metric == metric && !row.lru_drain && row.set.is_empty()
            };
            let own: Vec<&Line> = findings
                .lines
                .iter()
                .filter(|line| line.published.table == table)
                .filter(same)
                .collect();
            let mut threads: Vec<usize> = own.iter().map(|line| line.published.threads).collect();
            threads.sort_unstable();
            threads.dedup();
            if threads.len() < 2 {
                continue;
            }
            let workload = &own[0].published.workload;
            let all: Vec<&Line> = findings
                .lines
                .iter()
                .filter(|line| line.published.workload == *workload)
                .filter(same)
                .collect();
            let designs = distinct(&all, |line| &line.published.design);
            let drawn: Vec<plot::Line> = designs
                .iter()
                .map(|design| curve(findings, table, metric, design, &all))
                .collect();
            html.push_str(&format!(
                "<ul class=\"legend\">{}{}</ul>\n\
                 <figure>{}<figcaption>{} on {}; lines are simulated.</figcaption></figure>\n",
                designs
                    .iter()
                    .map(|design| crate::comparison::report::sample(style::design(design), design))
                    .collect::<String>(),
                crate::comparison::report::PUBLISHED_MARK,
                plot::lines((1100, 360), &unit(metric, catalog::operation(workload)), &drawn),
                escape(workload),
                escape(machine)
            ));
        }
    }
    html
}

fn curve(findings: &Findings, table: &str, metric: Metric, design: &str, all: &[&Line]) -> plot::Line {
    let of_design = || all.iter().filter(|line| line.published.design == design);
    let mut points: Vec<(usize, f64)> = of_design()
        .filter_map(|line| Some((line.published.threads, line.simulated?)))
        .collect();
    if table == CURVES_OF && metric == Metric::OpsPerS {
        let curves = findings.curves.iter().filter(|(name, _)| *name == design);
        for &(threads, value) in curves.flat_map(|(_, curve)| curve) {
            if points.iter().all(|point| point.0 != threads) {
                points.push((threads, value));
            }
        }
    }
    points.sort_by_key(|point| point.0);
    plot::Line {
        tone: style::design(design),
        points,
        hollow: of_design()
            .map(|line| (line.published.threads, line.published.value))
            .collect(),
        ranges: Vec::new(),
    }
}

fn unit(metric: Metric, operation: &str) -> String {
    match metric {
        Metric::OpsPerS => format!("{operation}s/s"),
        Metric::NsPerOp => format!("ns per {operation}"),
        Metric::InterruptsPerOp => format!("interrupts per {operation}"),
        Metric::IdleShare => "share idle".to_string(),
        Metric::FlushShare => "share in invalidation".to_string(),
        Metric::Seconds => "seconds".to_string(),
        Metric::TimeRatio => "time, as a ratio".to_string(),
        Metric::RateRatio => "rate, as a ratio".to_string(),
        Metric::P50Ns => "ns, median".to_string(),
        Metric::P99Ns => "ns, 99th percentile".to_string(),
    }
}
