//! The sender's time by activity, as a table whose rows add up.

use super::lanes::View;
use crate::print::table::{Column, Grid};

/// A unit for all rows: its name, its length in ns, and digits after the point.
fn unit(duration: f64) -> (&'static str, f64, usize) {
    match duration {
        _ if duration < 9_995.0 => ("ns", 1.0, 0),
        _ if duration < 9_995_000.0 => ("µs", 1e3, 2),
        _ => ("ms", 1e6, 2),
    }
}

/// `values` as whole multiples of `step` that add up to their rounded sum: those with the largest remainders are
/// rounded up.
fn apportioned(values: &[f64], step: f64) -> Vec<u64> {
    let exact: Vec<f64> = values.iter().map(|value| (value / step).max(0.0)).collect();
    let mut whole: Vec<u64> = exact.iter().map(|value| value.floor() as u64).collect();
    let all = exact.iter().sum::<f64>().round() as u64;
    let left = all.saturating_sub(whole.iter().sum());
    let mut order: Vec<usize> = (0..exact.len()).collect();
    let remainder = |index: usize| exact[index].fract();
    order.sort_by(|&a, &b| remainder(b).total_cmp(&remainder(a)).then(a.cmp(&b)));
    (order.into_iter().take(left as usize)).for_each(|index| whole[index] += 1);
    whole
}

/// One row of the table: what, time, share, time spent on cache lines; the last row is the sum.
pub fn rows(view: &View) -> Vec<[String; 4]> {
    let (name, length, digits) = unit(view.duration);
    let step = length / 10_f64.powi(digits as i32);
    let times: Vec<f64> = view.parts.iter().map(|part| part.time).collect();
    let whole = apportioned(&times, step);
    let tenths = apportioned(&times, (view.duration / 1000.0).max(f64::MIN_POSITIVE));
    let written = |steps: u64| format!("{:.digits$} {name}", steps as f64 * step / length);
    let share = |tenths: u64| format!("{:.1}%", tenths as f64 / 10.0);
    let mut rows: Vec<[String; 4]> = view
        .parts
        .iter()
        .zip(whole.iter().zip(&tenths))
        .map(|(part, (&steps, &tenths))| {
            let lines = (part.lines / step).round() as u64;
            let lines = if lines == 0 { String::new() } else { written(lines) };
            [part.kind.words().to_string(), written(steps), share(tenths), lines]
        })
        .collect();
    let lines: f64 = view.parts.iter().map(|part| part.lines).sum();
    rows.push([
        "in all".to_string(),
        written(whole.iter().sum()),
        share(tenths.iter().sum()),
        written((lines / step).round() as u64),
    ]);
    rows
}

/// The headings of [`rows`].
pub const HEADINGS: [&str; 4] = ["the requester's time", "time", "share", "of it, cache lines move"];

/// The table for the terminal.
pub fn table(view: &View) -> Grid {
    let [what, time, share, lines] = HEADINGS;
    let columns = vec![
        Column::words(what, "what the requester does; every moment belongs to one row"),
        Column::number(time, "how long it does that"),
        Column::number(share, "of the whole flush"),
        Column::number(lines, "the part of it that waits for cache lines from other CPUs").optional(1),
    ];
    let mut rows = rows(view);
    let all = rows.split_off(rows.len() - 1);
    Grid::new(
        columns,
        [rows, all].map(|rows| rows.into_iter().map(Vec::from).collect()).into(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::lanes::tests;
    use super::*;

    #[test]
    fn rounded_parts_sum_to_the_rounded_total() {
        assert_eq!(apportioned(&[0.4, 0.4, 0.4], 1.0), [1, 0, 0]);
        assert_eq!(apportioned(&[1.5, 2.5, 0.0], 1.0), [2, 2, 0]);
        assert_eq!(apportioned(&[], 1.0), [0; 0]);
    }

    #[test]
    fn parts_table_ends_with_the_total() {
        let table = table(&tests::view());
        let [parts, all] = table.groups.as_slice() else {
            panic!("{table:?}")
        };
        assert_eq!(parts[0][..2], ["choosing targets", "100 ns"], "{table:?}");
        assert_eq!(all[0][..3], ["in all", "1000 ns", "100.0%"], "{table:?}");
        let sum: u64 = parts
            .iter()
            .map(|row| row[1].split_whitespace().next().unwrap().parse::<u64>().unwrap())
            .sum();
        assert_eq!(sum, 1000, "{table:?}");
    }
}
