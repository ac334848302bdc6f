//! From names on the command line to finished runs: the machine, the recording, the plan, the queue.

pub mod one;
pub mod plan;
pub mod queue;
pub mod recording;
pub mod target;

#[cfg(test)]
pub mod fake;
