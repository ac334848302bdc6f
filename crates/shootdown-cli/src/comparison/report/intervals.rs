//! Confidence intervals of plotted rates.

use super::by_threads;
use crate::comparison::summary::{Comparison, Row};

/// The meaning of thick strokes.
pub(super) const INTERVALS: &str =
    "Thick strokes are confidence intervals of 95 %, where they are wide enough to be seen.";

/// The rows of a design whose confidence interval is wide enough to be visible, and half its width as a share of the
/// rate.
pub(super) fn uncertain<'a>(comparison: &'a Comparison, design: &str) -> impl Iterator<Item = (&'a Row, f64)> {
    let rows = by_threads(comparison, design)
        .into_iter()
        .filter(|row| row.is_uncertain());
    rows.filter_map(|row| Some((row, row.half_width?)))
}
