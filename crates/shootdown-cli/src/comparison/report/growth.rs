//! How the cost of an operation grows with CPUs, in the report, with the certainty of each figure.

use super::intervals::{INTERVALS, uncertain};
use super::legend::design_legend;
use super::line;
use crate::comparison::summary::{Comparison, Row};
use crate::comparison::verdict::Verdict;
use crate::print::page::escape;
use crate::print::plot::{self, Line};

/// The cost of an operation over CPUs, where each thread count has a machine of its size.
pub(super) fn growth(comparison: &Comparison, verdict: &Verdict) -> String {
    if !comparison.plan.follows() {
        return String::new();
    }
    let operation = comparison.plan.workload.operation();
    let lines = |value: fn(&Row) -> f64, ranges: bool| -> Vec<Line> {
        let designs = comparison.plan.designs.iter();
        designs
            .map(|design| Line {
                ranges: uncertain(comparison, design.name)
                    .filter(|_| ranges)
                    .map(|(row, half)| {
                        // A rate of zero is within the widest intervals: the stroke ends at the edge of the plot.
                        let at = |rate: f64| value(row) / rate.max(1e-3);
                        (row.threads, at(1.0 + half), at(1.0 - half))
                    })
                    .collect(),
                ..line(comparison, design.name, value)
            })
            .collect()
    };
    let figure = |title: &str, unit: &str, lines: &[Line], decade| {
        let plot = plot::log_log((1100, 420), ("CPUs, each with a thread", unit), lines, decade);
        format!("<figure><h3>{title}</h3>{plot}</figure>\n")
    };
    let sentences: String = verdict
        .growth
        .iter()
        .map(|sentence| format!("<li>{}</li>\n", escape(sentence)))
        .collect();
    format!(
        "<h2>Growth with CPUs</h2>\n\
         {}{}{}<ul>\n\
         {sentences}</ul>\n\
         <p class=\"soft\">Both axes are logarithmic: \
         a straight line is a power of the number of CPUs, and 0 has no place. {INTERVALS}</p>\n",
        design_legend(comparison, false),
        figure(
            &format!("CPU time per {operation}, waiting included"),
            "",
            &lines(Row::cpu_ns_per_op, true),
            plot::decade_of_time
        ),
        figure(
            &format!("Interrupts taken per {operation}"),
            &format!("per {operation}"),
            &lines(|row| row.interrupts_per_op, false),
            plot::decade_of_count
        )
    )
}
