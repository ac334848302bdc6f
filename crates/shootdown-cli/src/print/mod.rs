//! What all commands print: tables, numbers, JSON, progress, plots and HTML pages.

pub mod bars;
pub mod comparison;
mod destination;
pub mod json;
pub mod kernel_counts;
mod leftovers;
pub mod number;
pub mod output;
pub mod page;
pub mod plot;
pub mod progress;
pub mod report;
pub mod schema;
pub mod style;
pub mod table;
pub mod terminal;
pub mod victims;
