//! What a model is run with.

use shootdown::Design;

/// What a model is run with.
#[derive(Clone, Copy)]
pub struct Model {
    /// The design.
    pub design: Design,
    /// CPUs, at most 3.
    pub cpus: usize,
    /// Whether there is broadcast invalidation.
    pub broadcast: bool,
    /// At most so many preemptions.
    pub preemptions: usize,
}
