//! The parameters of a model.

use shootdown::Design;

/// The parameters of a model.
#[derive(Clone, Copy)]
pub struct Model {
    /// The design.
    pub design: Design,
    /// CPUs, at most 3.
    pub cpus: usize,
    /// Whether there is broadcast invalidation.
    pub broadcast: bool,
    /// Most preemptions.
    pub preemptions: usize,
}
