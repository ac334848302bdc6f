//! What all commands print: tables, numbers, JSON, progress, plots and HTML pages.

pub mod bars;
mod destination;
pub mod json;
mod leftovers;
pub mod number;
pub mod output;
pub mod page;
pub mod plot;
pub mod progress;
pub mod schema;
pub mod style;
pub mod table;
pub mod terminal;
pub mod victims;
