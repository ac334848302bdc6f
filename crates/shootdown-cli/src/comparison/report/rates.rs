//! Plots of the report over threads, or of one thread count: throughput, the ratio to the limit, interrupts, and CPU
//! time in invalidation.

use super::intervals::{INTERVALS, uncertain};
use super::legend::design_legend;
use super::line;
use crate::catalog;
use crate::comparison::summary::{Comparison, Row};
use crate::print::bars;
use crate::print::number;
use crate::print::page::capitalized;
use crate::print::plot::{self, Line};

/// From this ratio on a rate is above the limit by more than rounding.
const ABOVE: f64 = 1.005;

/// Operations per second of each design, in the order of the designs, with published points and wide intervals.
pub(super) fn throughput_lines(comparison: &Comparison) -> Vec<Line> {
    let plan = &comparison.plan;
    // Published points outside the range of the runs would stretch the axis.
    let run = |threads: usize| {
        let most = plan.threads.iter().copied().max().unwrap_or(1);
        (plan.threads.iter().copied().min().unwrap_or(1)..=most).contains(&threads)
    };
    plan.designs
        .iter()
        .map(|design| Line {
            hollow: comparison
                .published
                .iter()
                .filter(|row| row.design == design.name && run(row.threads))
                .map(|row| (row.threads, row.value))
                .collect(),
            ranges: uncertain(comparison, design.name)
                .map(|(row, half)| (row.threads, row.ops_per_s * (1.0 - half), row.ops_per_s * (1.0 + half)))
                .collect(),
            ..line(comparison, design.name, |row| row.ops_per_s)
        })
        .collect()
}

pub(super) fn throughput(comparison: &Comparison) -> String {
    let plan = &comparison.plan;
    let operation = plan.workload.operation();
    let lines = throughput_lines(comparison);
    let published = lines.iter().any(|line| !line.hollow.is_empty());
    let mut caption = format!("{}s per second, all threads together.", capitalized(operation));
    if published {
        caption.push_str(" Hollow markers are published measurements.");
    }
    let plotted = plan.threads.len() > 1;
    if plotted && lines.iter().any(|line| !line.ranges.is_empty()) {
        caption += &format!(" {INTERVALS}");
    }
    format!(
        "<h2>Throughput</h2>\n{}<figure>{}<figcaption>{caption}</figcaption></figure>\n",
        design_legend(comparison, published),
        over_threads(comparison, (1100, 420), &lines, number::rate, |size, lines| {
            plot::lines(size, &format!("{operation}s/s"), lines)
        }),
    )
}

/// The ratio to the limit over threads, where `ideal` is among the designs.
pub(super) fn limit(comparison: &Comparison) -> String {
    if comparison.rows.iter().all(|row| row.of_ideal.is_none()) {
        return String::new();
    }
    let designs = comparison.plan.designs.iter();
    let lines: Vec<Line> = designs
        .map(|design| line(comparison, design.name, |row| row.of_ideal.unwrap_or(f64::NAN)))
        .collect();
    let above = comparison
        .rows
        .iter()
        .any(|row| row.caveat.is_none() && row.of_ideal.is_some_and(|ratio| ratio > ABOVE));
    format!(
        "<h2>Of the limit</h2>\n\
         {}<figure>{}<figcaption>Throughput over that of <code>{}</code>, \
         whose invalidation is perfect and free.{}</figcaption></figure>\n",
        design_legend(comparison, false),
        over_threads(comparison, (1100, 300), &lines, number::ratio, |size, lines| {
            plot::lines(size, "of the limit", lines)
        }),
        catalog::IDEAL_DESIGN,
        if above {
            " More than 1 can be an effect of locks: threads that flush slowly contend less for them."
        } else {
            ""
        }
    )
}

/// Lines over threads, or bars where there is only one thread count. The lines are in the order of the designs.
pub(super) fn over_threads(
    comparison: &Comparison,
    size: (u32, u32),
    lines: &[Line],
    shown: fn(f64) -> String,
    plot: impl Fn((u32, u32), &[Line]) -> String,
) -> String {
    let &[threads] = &*comparison.plan.threads else {
        return plot(size, lines);
    };
    let at = |points: &[(usize, f64)]| points.iter().find(|point| point.0 == threads).map(|point| point.1);
    let of_designs = comparison.plan.designs.iter().zip(lines);
    let drawn: Vec<bars::Bar> = of_designs
        .map(|(design, line)| {
            let value = at(&line.points).unwrap_or(f64::NAN);
            bars::Bar {
                name: design.name,
                tone: line.tone,
                value,
                shown: shown(value),
                published: at(&line.hollow),
            }
        })
        .collect();
    bars::draw(&drawn)
}

pub(super) fn interrupts(comparison: &Comparison) -> String {
    let operation = comparison.plan.workload.operation();
    let panel = |title: &str, value: fn(&Row) -> f64| {
        let lines: Vec<Line> = comparison
            .plan
            .designs
            .iter()
            .map(|design| line(comparison, design.name, value))
            .collect();
        format!(
            "<figure><h3>{title}</h3>{}</figure>\n",
            over_threads(comparison, (540, 280), &lines, number::per_operation, |size, lines| {
                plot::lines(size, &format!("per {operation}"), lines)
            })
        )
    };
    format!(
        "<h2>Interrupts per {operation}</h2>\n\
         {}<div class=\"pair\">\n\
         {}{}</div>\n\
         <p class=\"soft\">Sent: shootdown IPIs, one for each target CPU. \
         Taken: all. Several requests can share one interrupt, which makes them fewer; \
         those of the scheduler (timers, ends of time slices, ticks) add to them where there are any.</p>\n",
        design_legend(comparison, false),
        panel("Sent", |row| row.ipis_per_op),
        panel("Taken", |row| row.interrupts_per_op)
    )
}

/// Share of CPU time in invalidation of each design, in percent, in the order of the designs.
pub(super) fn invalidation_lines(comparison: &Comparison) -> Vec<Line> {
    let designs = comparison.plan.designs.iter();
    designs
        .map(|design| line(comparison, design.name, |row| row.flush_share * 100.0))
        .collect()
}

pub(super) fn invalidation(comparison: &Comparison) -> String {
    let lines = invalidation_lines(comparison);
    format!(
        "<h2>CPU time in invalidation</h2>\n\
         {}<figure>{}<figcaption>Of all CPU time, requesters and interrupted CPUs together.</figcaption></figure>\n",
        design_legend(comparison, false),
        over_threads(
            comparison,
            (1100, 320),
            &lines,
            |share| number::percent(share / 100.0),
            |size, lines| plot::lines(size, "%", lines)
        )
    )
}
