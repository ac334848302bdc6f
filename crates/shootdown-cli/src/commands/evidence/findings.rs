//! The findings of `evidence`, as its page shows them.

use super::Line;
use crate::commands::evidence::shape::Statement;
use crate::published::{Note, Published};
use crate::runs::plan::Settings;

/// Everything the page shows.
pub struct Findings<'a> {
    /// The rows that were run.
    pub lines: &'a [Line],
    /// Designs shown beside the published ones, without published rates.
    pub beside: &'a [Line],
    /// Notes on the tables.
    pub notes: &'a [Note],
    /// The rows that were not run.
    pub left: &'a [Published],
    /// How they were run.
    pub settings: &'a Settings,
    /// The command that repeats this.
    pub command: &'a str,
    /// Simulated curves between the published points of E1.
    pub curves: Vec<(&'static str, Vec<(usize, f64)>)>,
    /// Statements about these curves, if they were checked; none when one of their runs failed.
    pub statements: Option<Option<Vec<Statement>>>,
    /// The oracle's verdict, and each run that failed.
    pub verdict: &'a str,
    /// Whether nothing was stale and nothing failed.
    pub sound: bool,
}
