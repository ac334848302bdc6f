//! Axes of plots: positions of values, and labels.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use crate::print::number;

/// A linear axis with labels at chosen places.
pub(super) struct Axis {
    pub(super) range: Range<f64>,
    pub(super) labelled: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let fraction = (value - self.range.start) / (self.range.end - self.range.start);
        low + (fraction * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.labelled.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// About five round numbers from 0 to at most `top`.
pub fn ticks(top: f64) -> Vec<f64> {
    let decade = 10_f64.powf((top / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * decade)
        .into_iter()
        .find(|step| top / step < 6.0)
        .unwrap_or(top);
    (0..=(top / step) as i32).map(|index| f64::from(index) * step).collect()
}

/// A power of ten as a plain number.
pub fn decade_of_count(exponent: f64) -> String {
    tick(10_f64.powf(exponent))
}

/// A power of ten, in ns, as a time.
pub fn decade_of_time(exponent: f64) -> String {
    number::short_time(10_f64.powf(exponent))
}

/// Position of a thread count on its axis.
pub(super) fn log2(threads: usize) -> f64 {
    (threads.max(1) as f64).log2()
}

/// Where the axis is labelled: every thread count that has room for its label, the last one always.
pub(super) fn labelled(threads: &[usize]) -> Vec<f64> {
    let Some((&last, rest)) = threads.split_last() else {
        return Vec::new();
    };
    let span = (log2(last) - log2(threads[0])).max(1e-9);
    let mut points: Vec<f64> = Vec::new();
    for x in rest.iter().map(|&count| log2(count)) {
        let fits = |other: f64| (x - other).abs() / span >= 0.04;
        if points.last().is_none_or(|&other| fits(other)) && fits(log2(last)) {
            points.push(x);
        }
    }
    points.push(log2(last));
    points
}

/// A value as an axis prints it, short.
pub(super) fn tick(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        v if v >= 1e6 => format!("{}M", shortest(value / 1e6, 2)),
        v if v >= 1e3 => format!("{}k", shortest(value / 1e3, 2)),
        v if v >= 0.1 => shortest(value, 1),
        // At least as many as its first digit takes.
        v => shortest(value, (-v.log10()).ceil().max(3.0) as usize),
    }
}

/// At most `decimals` decimals, without zeros at the end.
pub(super) fn shortest(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_short() {
        let ticks = [0.0, 0.02, 0.5, 6.0, 20.0, 500_000.0, 1_000_000.0, 1_500_000.0];
        assert_eq!(ticks.map(tick), ["0", "0.02", "0.5", "6", "20", "500k", "1M", "1.5M"]);
        let near = [1000.0, 1500.0, 2000.0, 2500.0, 25_000.0];
        assert_eq!(near.map(tick), ["1k", "1.5k", "2k", "2.5k", "25k"]);
        let decades = [-5.0, -4.0, -3.0, -1.0, 0.0, 3.0];
        assert_eq!(
            decades.map(decade_of_count),
            ["0.00001", "0.0001", "0.001", "0.1", "1", "1k"]
        );
    }

    #[test]
    fn axis_labels_are_distinct() {
        for top in 1..4000 {
            let mut labels: Vec<String> = ticks(f64::from(top)).into_iter().map(tick).collect();
            let all = labels.len();
            labels.dedup();
            assert_eq!(labels.len(), all, "up to {top}: {labels:?}");
        }
    }

    #[test]
    fn zero_based_axes_have_few_round_labels() {
        assert_eq!(ticks(7.0), [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(ticks(1.08), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(1_950_000.0).len(), 4);
    }

    #[test]
    fn overlapping_labels_yield_to_the_last() {
        assert_eq!(labelled(&[1, 2, 64, 65]), [0.0, 1.0, log2(65)]);
        assert_eq!(labelled(&[8]), [3.0]);
        assert!(labelled(&[]).is_empty());
    }
}
