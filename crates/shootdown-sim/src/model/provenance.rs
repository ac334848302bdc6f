//! The provenance of a number of a machine model.
//!
//! A [`Parameter`] is one number of a model file as it was written: its dotted path, its value and unit, and exactly
//! one [`Provenance`]. A number without provenance cannot be written.

use std::fmt;

/// The unit a parameter was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Processor cycles at the model's clock.
    Cycles,
    /// Nanoseconds; the model's clock converts them to cycles.
    Ns,
    /// A pure number: a count, a factor, a probability, a clock in GHz, or a flag (0 or 1).
    Value,
}

impl Unit {
    /// The key that carries a number of this unit in a model file.
    pub const fn key(self) -> &'static str {
        match self {
            Unit::Cycles => "cycles",
            Unit::Ns => "ns",
            Unit::Value => "value",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Value => "",
            timed => timed.key(),
        })
    }
}

/// An inclusive range of plausible values, in the unit of the parameter it belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Least plausible value.
    pub low: f64,
    /// Greatest plausible value, at least `low`.
    pub high: f64,
}

impl Range {
    /// Reads `"10..60"`; a flag may say `"false..true"`. `None` when it is not two finite numbers in order.
    pub(super) fn parse(text: &str) -> Option<Range> {
        let bound = |text: &str| match text.trim() {
            "false" => Some(0.0),
            "true" => Some(1.0),
            number => number.parse::<f64>().ok().filter(|value| value.is_finite()),
        };
        let (low, high) = text.split_once("..")?;
        let range = Range {
            low: bound(low)?,
            high: bound(high)?,
        };
        (range.low <= range.high).then_some(range)
    }

    /// Whether `value` lies in the range, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.low, self.high)
    }
}

/// The reason for a parameter's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Provenance {
    /// Taken from a published document or measurement.
    Source {
        /// The document or measurement.
        text: String,
        /// The published range, if one was published and the value is a point of it.
        range: Option<Range>,
    },
    /// Chosen so that the simulation meets a published row.
    Fitted {
        /// The rows that it was fitted on. They do not count as predictions.
        rows: String,
        /// The range that fitting was allowed to search, when stated.
        range: Option<Range>,
    },
    /// An estimate without a public number; results must be swept over the range.
    Assumed(Range),
    /// Replaced by [`Model::with`](super::Model::with).
    Overridden {
        /// The value in the file, in the parameter's unit.
        was: f64,
        /// The reason for that value.
        because: Box<Provenance>,
    },
}

impl Provenance {
    /// The range to sweep or to quote, if there is one; that of the file's value when overridden.
    pub fn range(&self) -> Option<Range> {
        match self {
            Provenance::Source { range, .. } | Provenance::Fitted { range, .. } => *range,
            Provenance::Assumed(range) => Some(*range),
            Provenance::Overridden { because, .. } => because.range(),
        }
    }

    /// `source`, `fitted`, `assumed` or `overridden`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Provenance::Source { .. } => "source",
            Provenance::Fitted { .. } => "fitted",
            Provenance::Assumed(_) => "assumed",
            Provenance::Overridden { .. } => "overridden",
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Provenance::Source { text, range } => {
                f.write_str(text)?;
                range.map_or(Ok(()), |range| write!(f, " ({range})"))
            }
            Provenance::Fitted { rows, range } => {
                write!(f, "fitted on {rows}")?;
                range.map_or(Ok(()), |range| write!(f, " within {range}"))
            }
            Provenance::Assumed(range) => write!(f, "assumed, sweep {range}"),
            Provenance::Overridden { was, because } => write!(f, "overridden, was {was} ({because})"),
        }
    }
}

/// One number of a model, as written.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Dotted path, such as `costs.ipi_send`.
    pub path: &'static str,
    /// The number, in `unit`. Flags are 0 or 1.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
    /// Where it comes from.
    pub provenance: Provenance,
    /// Line of the model file, from 1.
    pub line: usize,
}

impl Parameter {
    /// The table that it belongs to.
    pub(super) fn table(&self) -> &'static str {
        self.path.split('.').next().unwrap_or_default()
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.unit == Unit::Value { "" } else { " " };
        write!(
            f,
            "{} = {}{space}{}: {}",
            self.path, self.value, self.unit, self.provenance
        )
    }
}
