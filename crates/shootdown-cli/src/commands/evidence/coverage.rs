//! Checks the 90 % intervals: how many of the held-out rows lie within theirs, and the remaining errors.

use schemars::JsonSchema;
use serde::Serialize;

use super::Line;
use super::runs::figure;
use crate::comparison::interval::Figure;
use crate::print::number::{self, median};

/// The tables from which [`Figure::off`] was estimated; later ones test it.
const ESTIMATED_ON: [&str; 10] = ["E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9", "E10"];

/// The number of rows within their intervals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub(super) struct Coverage {
    /// Held-out rows that have an interval.
    pub(super) rows: usize,
    /// Those whose published number lies within it.
    pub(super) within: usize,
    /// Half the width of an interval, as a share of the simulated number.
    pub(super) median_half_width: f64,
}

impl Coverage {
    /// For the rows that `which` selects; `None` without any.
    fn of(lines: &[Line], which: impl Fn(&Line) -> bool) -> Option<Coverage> {
        let held_out = lines.iter().filter(|line| !line.published.fitted && which(line));
        let (within, widths): (Vec<bool>, Vec<f64>) = held_out
            .filter_map(|line| Some((line.is_within()?, line.interval?.half_width())))
            .unzip();
        (!within.is_empty()).then(|| Coverage {
            rows: within.len(),
            within: within.iter().filter(|within| **within).count(),
            median_half_width: median(widths),
        })
    }

    /// For all held-out rows.
    pub(super) fn of_all(lines: &[Line]) -> Option<Coverage> {
        Coverage::of(lines, |_| true)
    }

    fn text(&self) -> String {
        let share = number::percent(self.within as f64 / self.rows as f64);
        let width = number::percent(self.median_half_width);
        format!(
            "{} of {} rows that were not fitted lie within ({share}), median width ±{width}",
            self.within, self.rows
        )
    }
}

impl Line {
    /// The ends of the 90 % interval.
    pub(super) fn ends(&self) -> Option<[f64; 2]> {
        Some(self.interval?.around(self.simulated?))
    }

    /// Whether the published number lies within.
    pub(super) fn is_within(&self) -> Option<bool> {
        let [low, high] = self.ends()?;
        Some((low..=high).contains(&self.published.value))
    }
}

/// Share of rows, the nearest ones, from which the error is estimated.
const NEAREST: f64 = 0.9;

/// The standard deviation of the logarithm of simulated over published, for the nearest held-out rows of a kind, and
/// the number of rows.
fn off(lines: &[Line], kind: Figure) -> Option<(f64, usize)> {
    let held_out = lines
        .iter()
        .filter(|line| !line.published.fitted && figure(&line.published) == kind);
    let of_estimate = held_out.filter(|line| ESTIMATED_ON.contains(&line.published.table.as_str()));
    let mut errors: Vec<f64> = of_estimate
        .filter_map(|line| Some((line.simulated? / line.published.value).ln().abs()))
        .filter(|error| error.is_finite())
        .collect();
    let rows = errors.len();
    errors.sort_by(f64::total_cmp);
    errors.truncate((rows as f64 * NEAREST).ceil() as usize);
    let squares: f64 = errors.iter().map(|error| error * error).sum();
    (rows > 0).then(|| ((squares / errors.len() as f64).sqrt(), rows))
}

/// The lines under the tables; empty if no row has an interval.
pub(super) fn text(lines: &[Line]) -> String {
    let Some(all) = Coverage::of_all(lines) else {
        return String::new();
    };
    let mut text = format!("90 % intervals: {}\n", all.text());
    let later = |line: &Line| !ESTIMATED_ON.contains(&line.published.table.as_str());
    if let Some(later) = Coverage::of(lines, later).filter(|later| later.rows < all.rows) {
        text.push_str(&format!(
            "  of later tables than E10, on which nothing was estimated: {}\n",
            later.text()
        ));
        let kinds = [
            (Figure::FittedRate, "rates on machines with a fitted row"),
            (Figure::OtherRate, "rates on others"),
            (Figure::Ratio, "ratios"),
            (Figure::Count, "counts, shares and latencies"),
        ];
        let kinds = kinds.iter().filter_map(|&(kind, name)| {
            let (found, rows) = off(lines, kind)?;
            Some(format!("{name} {found:.2} of {rows} rows (taken: {:.2})", kind.off()))
        });
        text.push_str(&format!(
            "  how far off up to E10, standard deviation of the logarithm, nearest nine in ten: {}\n",
            kinds.collect::<Vec<_>>().join("; ")
        ));
    }
    text
}
