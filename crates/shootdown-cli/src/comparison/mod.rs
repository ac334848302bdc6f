//! What came of the runs of a plan: their numbers beside published ones, the verdict, and how they are shown.

pub mod distinct;
pub mod fallback;
pub mod json;
pub mod kernel_counts;
pub mod ratios;
pub mod report;
pub mod summary;
pub mod table;
pub mod verdict;
