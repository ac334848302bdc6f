//! From names on the command line to finished runs: what can be named, the plan, the queue, the summary, the verdict.

pub mod catalog;
pub mod distinct;
pub mod fallback;
pub mod plan;
pub mod queue;
pub mod ratios;
pub mod summary;
pub mod target;
pub mod verdict;

#[cfg(test)]
pub mod fake;
