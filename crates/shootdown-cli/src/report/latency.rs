//! Latencies in the report: a section for each kind that was recorded.

use shootdown_sim::run::Latency;

use super::legend::design_legend;
use super::{line, over_threads};
use crate::number;
use crate::page::escape;
use crate::plot::{self, Line};
use crate::style::{self, Tone};
use crate::summary::{Comparison, Row};

/// One section per kind of latency that was recorded; nothing when none was.
pub(super) fn latencies(comparison: &Comparison) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for latency in comparison.rows.iter().flat_map(|row| &row.latencies) {
        if !kinds.contains(&latency.name) {
            kinds.push(latency.name);
        }
    }
    kinds.iter().map(|kind| latency(comparison, kind)).collect()
}

/// A distribution is drawn from so many samples on.
const FEWEST: u64 = 20;

fn latency(comparison: &Comparison, kind: &str) -> String {
    fn of<'a>(row: &'a Row, kind: &str) -> Option<&'a Latency> {
        row.latencies.iter().find(|latency| latency.name == kind)
    }
    let designs = || comparison.plan.designs.iter().map(|design| design.name);
    let tail: Vec<Line> = designs()
        .map(|design| {
            let value = |row: &Row| of(row, kind).map_or(f64::NAN, |latency| latency.p99_ns);
            line(comparison, design, value)
        })
        .collect();
    // The distribution where it is widest: at the most threads.
    let most = comparison.plan.threads.iter().copied().max().unwrap_or(1);
    let curves: Vec<(Tone, Vec<(f64, f64)>)> = designs()
        .filter_map(|design| Some((design, of(comparison.row(design, most)?, kind)?)))
        .map(|(design, latency)| (style::design(design), above(latency)))
        .collect();
    let counts = designs().filter_map(|design| Some(of(comparison.row(design, most)?, kind)?.count));
    let distribution = match counts.max().unwrap_or(0) {
        count if count >= FEWEST => plot::tails((540, 280), &curves),
        count => format!("<p class=\"soft\">Too few samples for a distribution: {count}.</p>"),
    };
    let mut rows = String::new();
    for &threads in &comparison.plan.threads {
        let found = designs().filter_map(|design| Some((design, of(comparison.row(design, threads)?, kind)?)));
        let cells: String = found
            .enumerate()
            .map(|(index, (design, latency))| {
                format!(
                    "<tr><td>{}</td><td class=\"word\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                    if index == 0 { threads.to_string() } else { String::new() },
                    escape(design),
                    number::count(latency.count),
                    number::time(latency.p50_ns),
                    number::time(latency.p99_ns),
                    number::time(latency.max_ns)
                )
            })
            .collect();
        if !cells.is_empty() {
            rows.push_str(&format!("<tbody>{cells}</tbody>\n"));
        }
    }
    format!(
        "<h2>Latency: {}</h2>\n{}<div class=\"pair\">\n<figure><h3>99th percentile</h3>{}</figure>\n<figure><h3>How many are longer, at {most} threads</h3>{distribution}</figure>\n</div>\n<details><summary>Median, 99th percentile and longest</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>threads</th><th class=\"word\">design</th><th>count</th><th>median</th><th>99%</th><th>longest</th></tr></thead>\n{rows}</table></div></details>\n",
        escape(kind),
        design_legend(comparison, false),
        over_threads(comparison, (540, 280), &tail, number::time, plot::times),
    )
}

/// The share of a distribution above each bucket's upper edge; the last is where its longest lies.
fn above(latency: &Latency) -> Vec<(f64, f64)> {
    let all = latency.buckets.iter().map(|bucket| bucket.1).sum::<u64>().max(1) as f64;
    let mut left = all;
    // Each edge is the square root of two times the one before (see the simulator's distributions).
    let first = latency
        .buckets
        .first()
        .filter(|bucket| bucket.0.is_finite() && bucket.0 > 0.0);
    let mut curve: Vec<(f64, f64)> = first.map(|bucket| (bucket.0 / 2_f64.sqrt(), 1.0)).into_iter().collect();
    for &(edge, count) in &latency.buckets {
        left -= count as f64;
        if left > 0.0 && edge.is_finite() {
            curve.push((edge, left / all));
        }
    }
    if latency.max_ns > 0.0 {
        let last = curve.last().map_or(1.0, |point: &(f64, f64)| point.1);
        curve.push((latency.max_ns, last.min(1.0 / all)));
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_above_falls_to_the_longest() {
        let latency = Latency {
            name: "flush",
            count: 100,
            p50_ns: 10.0,
            p99_ns: 40.0,
            max_ns: 70.0,
            buckets: vec![(10.0, 60), (20.0, 30), (40.0, 9), (80.0, 1)],
        };
        let expected = [
            (10.0 / 2_f64.sqrt(), 1.0),
            (10.0, 0.4),
            (20.0, 0.1),
            (40.0, 0.01),
            (70.0, 0.01),
        ];
        assert_eq!(above(&latency), expected);
    }
}
