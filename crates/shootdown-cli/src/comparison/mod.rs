//! The results of a plan: their numbers beside published ones, the verdict, and their presentation.

pub mod distinct;
pub mod fallback;
pub mod interval;
pub mod json;
pub mod kernel_counts;
pub mod ratios;
pub mod report;
pub mod summary;
pub mod table;
pub mod verdict;
