//! Checks the 90 % intervals: how many of the held-out rows lie within theirs, and the remaining errors.

use schemars::JsonSchema;
use serde::Serialize;

use super::runs::figure;
use super::{Line, distinct};
use crate::comparison::interval::{self, Figure, Interval};
use crate::print::number::{self, median};

/// The number of rows within their intervals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub(super) struct Coverage {
    /// Held-out rows that have an interval.
    pub(super) rows: usize,
    /// Those whose published number lies within it.
    pub(super) within: usize,
    /// The same, with intervals estimated without the errors of the row's own table.
    pub(super) within_left_out: usize,
    /// Half the width of an interval, as a share of the simulated number.
    pub(super) median_half_width: f64,
    /// The same of the ranges of the model's numbers alone.
    pub(super) median_half_width_of_ranges: f64,
    /// The same of the model's other errors alone.
    pub(super) median_half_width_of_errors: f64,
}

impl Coverage {
    /// For all held-out rows; `None` without any.
    pub(super) fn of(lines: &[Line]) -> Option<Coverage> {
        let held_out = lines.iter().filter(|line| !line.published.fitted);
        let judged: Vec<(bool, bool, [Interval; 3])> = held_out
            .filter_map(|line| {
                let (whole, kind) = (line.interval?, figure(&line.published));
                let parts = [whole, whole.with_off(kind, 0.0), interval::of_kind(kind)];
                Some((line.is_within()?, left_out(lines, line)?, parts))
            })
            .collect();
        let half_width = |part: usize| median(judged.iter().map(|(.., parts)| parts[part].half_width()));
        (!judged.is_empty()).then(|| Coverage {
            rows: judged.len(),
            within: judged.iter().filter(|(within, ..)| *within).count(),
            within_left_out: judged.iter().filter(|(_, within, _)| *within).count(),
            median_half_width: half_width(0),
            median_half_width_of_ranges: half_width(1),
            median_half_width_of_errors: half_width(2),
        })
    }
}

impl Line {
    /// The ends of the 90 % interval.
    pub(super) fn ends(&self) -> Option<[f64; 2]> {
        Some(self.interval?.around(self.simulated?))
    }

    /// Whether the published number lies within.
    pub(super) fn is_within(&self) -> Option<bool> {
        self.is_in(self.interval?)
    }

    fn is_in(&self, interval: Interval) -> Option<bool> {
        let [low, high] = interval.around(self.simulated?);
        Some((low..=high).contains(&self.published.value))
    }
}

/// Whether a row lies within an interval that was estimated without the errors of its table.
fn left_out(lines: &[Line], line: &Line) -> Option<bool> {
    let kind = figure(&line.published);
    let others: Vec<&Line> = lines
        .iter()
        .filter(|other| other.published.table != line.published.table)
        .collect();
    let all: Vec<&Line> = lines.iter().collect();
    let (Some((found, _)), Some((without, _))) = (off(&all, kind), off(&others, kind)) else {
        return line.is_within();
    };
    if found == 0.0 {
        return line.is_within();
    }
    line.is_in(line.interval?.with_off(kind, kind.off() * without / found))
}

/// Share of rows, the nearest ones, from which the error is estimated.
const NEAREST: f64 = 0.9;

/// The standard deviation of the logarithm of simulated over published, for the nearest held-out rows of a kind, and
/// the number of rows.
pub(super) fn off(lines: &[&Line], kind: Figure) -> Option<(f64, usize)> {
    let held_out = lines
        .iter()
        .filter(|line| !line.published.fitted && figure(&line.published) == kind);
    let mut errors: Vec<f64> = held_out
        .filter_map(|line| Some((line.simulated? / line.published.value).ln().abs()))
        .filter(|error| error.is_finite())
        .collect();
    let rows = errors.len();
    errors.sort_by(f64::total_cmp);
    errors.truncate((rows as f64 * NEAREST).ceil() as usize);
    let squares: f64 = errors.iter().map(|error| error * error).sum();
    (rows > 0).then(|| ((squares / errors.len() as f64).sqrt(), rows))
}

/// The lines under the tables; nothing where no row has an interval.
pub(super) fn text(lines: &[Line]) -> String {
    let Some(found) = Coverage::of(lines) else {
        return String::new();
    };
    let share = |within: usize| number::percent(within as f64 / found.rows as f64);
    let mut text = format!(
        "90 % intervals: of {} not fitted, {} within ({}), median width ±{}\n  \
         of the ranges of the model's numbers alone ±{}, of its other errors alone ±{}\n",
        number::counted(found.rows, "row"),
        found.within,
        share(found.within),
        number::percent(found.median_half_width),
        number::percent(found.median_half_width_of_ranges),
        number::percent(found.median_half_width_of_errors)
    );
    if distinct(lines, |line| &line.published.table).len() > 1 {
        text.push_str(&format!(
            "  estimated without the errors of the row's own table: {} ({})\n",
            found.within_left_out,
            share(found.within_left_out)
        ));
    }
    let kinds = [
        (Figure::FittedRate, "rates on machines with a fitted rate"),
        (Figure::OtherRate, "rates on others"),
        (Figure::Ratio, "ratios"),
        (Figure::Interrupts, "interrupts"),
        (Figure::Share, "shares and latencies"),
    ];
    let all: Vec<&Line> = lines.iter().collect();
    let kinds = kinds.iter().filter_map(|&(kind, name)| {
        let (found, rows) = off(&all, kind)?;
        let rows = number::counted(rows, "row");
        Some(format!("{name} {found:.3} of {rows} (taken: {:.3})", kind.off()))
    });
    text.push_str(&format!(
        "  how far off, standard deviation of the logarithm, nearest nine in ten: {}\n",
        kinds.collect::<Vec<_>>().join("; ")
    ));
    text
}
