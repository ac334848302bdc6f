//! Latencies in the report: a section for each kind that was recorded.

use shootdown_sim::run::Latency;

use super::legend::design_legend;
use super::{line, over_threads};
use crate::comparison::summary::{Comparison, FEWEST, Row, p99};
use crate::print::number;
use crate::print::page::escape;
use crate::print::plot::{self, Line};
use crate::print::style::{self, Tone};

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

fn latency(comparison: &Comparison, kind: &str) -> String {
    fn of<'a>(row: &'a Row, kind: &str) -> Option<&'a Latency> {
        row.latencies.iter().find(|latency| latency.name == kind)
    }
    let designs = || comparison.plan.designs.iter().map(|design| design.name);
    let all = || comparison.rows.iter().filter_map(|row| of(row, kind));
    let zeros = all().any(|latency| latency.count > 0 && (latency.p50_ns <= 0.0 || latency.max_ns <= 0.0));
    // If no row has enough samples for a percentile, the longest is used.
    let enough = all().any(|latency| latency.count >= FEWEST);
    let title = if enough { "99th percentile" } else { "Longest" };
    let tail: Vec<Line> = designs()
        .map(|design| {
            let value = |row: &Row| match of(row, kind) {
                Some(latency) if enough => p99(latency),
                Some(latency) if latency.count > 0 => latency.max_ns,
                _ => f64::NAN,
            };
            line(comparison, design, value)
        })
        .collect();
    // The distribution at its widest: at the most threads.
    let most = comparison.plan.threads.iter().copied().max().unwrap_or(1);
    let curves: Vec<(&str, Vec<(f64, f64)>)> = designs()
        .filter_map(|design| Some((design, of(comparison.row(design, most)?, kind)?)))
        .filter(|(_, latency)| latency.count >= FEWEST)
        .map(|(design, latency)| (design, plot::placed(&above(latency))))
        .filter(|(_, curve)| curve.len() > 1)
        .collect();
    let mut missing: Vec<(&str, Vec<&str>)> = Vec::new();
    for design in designs().filter(|design| curves.iter().all(|(drawn, _)| drawn != design)) {
        let latency = comparison.row(design, most).and_then(|row| of(row, kind));
        let reason = match latency.map_or(0, |latency| latency.count) {
            0 => "no samples",
            count if count < FEWEST => "too few samples",
            _ => "next to nothing above 0 ns",
        };
        match missing.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, designs)) => designs.push(design),
            None => missing.push((reason, vec![design])),
        }
    }
    let missing: Vec<String> = missing
        .iter()
        .map(|(reason, designs)| format!("{} ({reason})", designs.join(", ")))
        .collect();
    let drawn = !curves.is_empty();
    let mut distribution = if curves.is_empty() {
        String::new()
    } else {
        let curves: Vec<(Tone, Vec<(f64, f64)>)> = curves
            .into_iter()
            .map(|(design, curve)| (style::design(design), curve))
            .collect();
        plot::tails((540, 280), &curves)
    };
    if !missing.is_empty() {
        distribution.push_str(&format!(
            "<figcaption>Not drawn: {}.</figcaption>",
            escape(&missing.join("; "))
        ));
    }
    let mut caption = String::new();
    if enough && all().any(|latency| latency.count < FEWEST) {
        caption.push_str(&format!("A percentile is shown of {FEWEST} samples or more. "));
    }
    // Bars begin at 0.
    if zeros && (comparison.plan.threads.len() > 1 || drawn) {
        caption.push_str("0 ns has no place on logarithmic axes.");
    }
    if !caption.is_empty() {
        caption = format!("<p class=\"soft\">{}</p>\n", caption.trim_end());
    }
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
                    number::time(p99(latency)),
                    number::time(latency.max_ns)
                )
            })
            .collect();
        if !cells.is_empty() {
            rows.push_str(&format!("<tbody>{cells}</tbody>\n"));
        }
    }
    format!(
        "<h2>Latency: {}</h2>\n\
         {}<div class=\"pair\">\n\
         <figure><h3>{title}</h3>{}</figure>\n\
         <figure><h3>How many are longer, at {most} threads</h3>{distribution}</figure>\n\
         </div>\n\
         {caption}<details><summary>Median, 99th percentile and longest</summary>\n\
         <div class=\"wide\"><table>\n\
         <thead><tr><th>threads</th><th class=\"word\">design</th>\
         <th>count</th><th>median</th><th>99th percentile</th><th>longest</th></tr></thead>\n\
         {rows}</table></div></details>\n",
        escape(kind),
        design_legend(comparison, false),
        over_threads(comparison, (540, 280), &tail, number::time, plot::times),
    )
}

/// The share of a distribution above each bucket's upper edge; the last is at its longest sample.
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

    fn recorded(count: u64, p50_ns: f64, max_ns: f64) -> Latency {
        Latency {
            name: "flush",
            count,
            p50_ns,
            p99_ns: max_ns,
            max_ns,
            buckets: vec![(p50_ns, count / 2), (max_ns, count - count / 2)],
        }
    }

    fn section(latencies: [Latency; 2]) -> String {
        let mut comparison = crate::runs::fake::comparison(crate::runs::fake::plan(&["ipi", "broadcast"], &[4]));
        for (row, latency) in comparison.rows.iter_mut().zip(latencies) {
            row.latencies = vec![latency];
        }
        latency(&comparison, "flush")
    }

    #[test]
    fn distribution_with_too_few_samples_is_named_not_drawn() {
        let html = section([recorded(100, 1000.0, 5000.0), recorded(3, 2000.0, 9000.0)]);
        assert!(html.contains("Not drawn: broadcast (too few samples)."), "{html}");
        assert!(html.contains("<h3>99th percentile</h3>"), "{html}");
        assert!(
            html.contains("<td>2.00 µs</td><td>–</td><td>9.00 µs</td>"),
            "no percentile of three: {html}"
        );
        assert!(!html.contains("0 ns has no place"), "{html}");
        let html = section([recorded(100, 0.0, 0.0), recorded(0, 0.0, 0.0)]);
        assert!(
            html.contains("Not drawn: ipi (next to nothing above 0 ns); broadcast (no samples)."),
            "{html}"
        );
        assert!(
            !html.contains("0 ns has no place") && !html.contains("longer than"),
            "no logarithmic axis: {html}"
        );
        let html = section([recorded(100, 0.0, 0.0), recorded(100, 10.0, 500.0)]);
        assert!(
            html.contains("0 ns has no place") && html.contains("longer than"),
            "{html}"
        );
    }

    #[test]
    fn few_samples_everywhere_show_the_maximum() {
        let html = section([recorded(3, 1000.0, 5000.0), recorded(4, 2000.0, 9000.0)]);
        assert!(
            html.contains("<h3>Longest</h3>") && html.contains(">5.00 µs</text>"),
            "{html}"
        );
    }

    #[test]
    fn tail_curve_falls_to_the_maximum() {
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
