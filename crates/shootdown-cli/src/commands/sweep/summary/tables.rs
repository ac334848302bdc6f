//! The tables of a sweep's conclusions: the rates of each point, and each design over the best of the others.

use super::{Cell, Parameter, ends_of, range};
use crate::comparison::interval::Interval;
use crate::print::number::{self, UNKNOWN, median};
use crate::print::table::{Column, Grid};

/// Whether all cells have the same value in a column of [`SIZE`](super::SIZE).
fn is_common(cells: &[Cell], index: usize) -> bool {
    cells.windows(2).all(|pair| pair[0].size[index] == pair[1].size[index])
}

/// Workload and machine, if they are the same at every point: the tables have no column for them then.
pub(super) fn common(cells: &[Cell]) -> String {
    let Some(first) = cells.first() else {
        return String::new();
    };
    let named = |index: usize| is_common(cells, index).then(|| first.size[index].as_str());
    match (named(0), named(1)) {
        (Some(workload), Some(machine)) => format!(", {workload} on {machine}"),
        (Some(workload), None) => format!(", {workload}"),
        (None, Some(machine)) => format!(", on {machine}"),
        (None, None) => String::new(),
    }
}

/// The columns of [`SIZE`](super::SIZE) in a table: workload and machine only where they differ.
fn place(cells: &[Cell]) -> (Vec<usize>, Vec<Column>) {
    let all = [
        Column::words("workload", "the workload; `shootdown list` describes each"),
        Column::words("machine", "the machine model"),
        Column::number("CPUs", "CPUs of the machine"),
        Column::number("threads", "simulated threads"),
    ];
    let shown = all.into_iter().enumerate();
    shown
        .filter(|&(index, _)| index >= 2 || !is_common(cells, index))
        .unzip()
}

/// The cells of a place, in the first row of its designs only.
fn once(cells: &[String], row: usize) -> Vec<String> {
    match row {
        0 => cells.to_vec(),
        _ => vec![String::new(); cells.len()],
    }
}

/// The rates of the designs at each point, a row for each design.
pub(super) fn rates(designs: &[String], parameters: &[Parameter], cells: &[Cell]) -> Grid {
    let varied: Vec<usize> = (0..parameters.len())
        .filter(|&index| range(cells, index).is_some())
        .collect();
    let (shown, mut columns) = place(cells);
    columns.extend(
        varied
            .iter()
            .map(|&index| Column::number(parameters[index].name.to_string(), "the value of this parameter")),
    );
    columns.push(Column::words("design", "the design"));
    columns.push(Column::number("op/s", "operations per second of this design"));
    columns.push(Column::interval());
    let rows = cells.iter().flat_map(|cell| {
        let value =
            |&index: &usize| cell.values[index].map_or(UNKNOWN.to_string(), |value| parameters[index].shown(value));
        let here = shown.iter().map(|&index| cell.size[index].clone());
        let here: Vec<String> = here.chain(varied.iter().map(value)).collect();
        let of_designs = cell.rates.keys().enumerate().map(move |(row, &design)| {
            let rate = cell.rate(design).unwrap_or(f64::NAN);
            let interval = cell.intervals.get(&design).copied();
            let figures = [
                designs[design].clone(),
                number::rate(rate),
                ends_of(rate, interval, number::rate),
            ];
            [once(&here, row), figures.to_vec()].concat()
        });
        of_designs.collect::<Vec<_>>()
    });
    Grid::new(columns, vec![rows.collect()])
}

/// Each design over the best of the others at each size, a row for each design.
pub(super) fn best(designs: &[String], cells: &[Cell]) -> Grid {
    let mut sizes: Vec<&Vec<String>> = Vec::new();
    for cell in cells {
        if !sizes.contains(&&cell.size) {
            sizes.push(&cell.size);
        }
    }
    let (shown, mut columns) = place(cells);
    columns.extend([
        Column::words("design", "the design"),
        Column::number("best at", "points at which it is best, of all points"),
        Column::number(
            "over best other",
            "rate over that of the best other design, median of the points",
        ),
        Column::interval(),
    ]);
    let rows = sizes.iter().flat_map(|&size| {
        let here: Vec<&Cell> = cells.iter().filter(|cell| &cell.size == size).collect();
        let place: Vec<String> = shown.iter().map(|&index| size[index].clone()).collect();
        let of_designs = (0..designs.len()).map(|design| {
            let figures = best_row(designs, design, &here);
            [once(&place, design), figures.to_vec()].concat()
        });
        of_designs.collect::<Vec<_>>()
    });
    Grid::new(columns, vec![rows.collect()])
}

/// A design at the points of one size: its name, where it is best, its ratio, and the interval of the ratio.
fn best_row(designs: &[String], design: usize, here: &[&Cell]) -> [String; 4] {
    let known = here.iter().filter_map(|cell| Some((cell, cell.ratio(design)?)));
    let ratios: Vec<f64> = known.clone().map(|(_, ratio)| ratio).collect();
    let won = ratios.iter().filter(|ratio| **ratio >= 1.0).count();
    let intervals: Vec<Interval> = known
        .filter_map(|(cell, _)| cell.ratio_interval(designs, design))
        .collect();
    let middle = (!ratios.is_empty()).then(|| median(ratios));
    let interval = (!intervals.is_empty()).then(|| Interval {
        low: median(intervals.iter().map(|interval| interval.low)),
        high: median(intervals.iter().map(|interval| interval.high)),
    });
    [
        designs[design].clone(),
        format!("{won} of {}", here.len()),
        middle.map_or(UNKNOWN.to_string(), number::ratio),
        middle.map_or(UNKNOWN.to_string(), |ratio| ends_of(ratio, interval, bare_ratio)),
    ]
}

/// A ratio without its unit, for the ends of an interval.
pub(super) fn bare_ratio(ratio: f64) -> String {
    format!("{ratio:.2}")
}
