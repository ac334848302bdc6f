//! What `evidence` found, as its page shows it.

use super::Line;
use crate::commands::evidence::shape::Statement;
use crate::published::{Note, Published};
use crate::runs::plan::Settings;

/// Everything the page shows.
pub struct Findings<'a> {
    /// The rows that were run.
    pub lines: &'a [Line],
    /// Designs shown beside the published ones, of which nothing is published.
    pub beside: &'a [Line],
    /// What must be known of the tables.
    pub notes: &'a [Note],
    /// The rows that were not run.
    pub left: &'a [Published],
    /// How they were run.
    pub settings: &'a Settings,
    /// What to type for the same again.
    pub command: &'a str,
    /// Simulated curves between the published points of E1.
    pub curves: Vec<(&'static str, Vec<(usize, f64)>)>,
    /// What is said of these curves, if they were looked at; none when one of their runs failed.
    pub statements: Option<Option<Vec<Statement>>>,
    /// The oracle's verdict, and each run that failed.
    pub verdict: &'a str,
    /// Whether nothing was stale and nothing failed.
    pub sound: bool,
}
