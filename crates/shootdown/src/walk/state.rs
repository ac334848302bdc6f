//! What the freeing side keeps in a space, to decide between sticky and precise walks. `policy.rs` does.

use crate::facade::{Facade, Word};

/// Counts of one space, on a line that only freeing CPUs and their handlers write.
pub(crate) struct Counts<F: Facade> {
    /// Frees so far.
    pub(super) frees: F::U64,
    /// Registrations found by frees since the last decision.
    pub(super) interrupted: F::U64,
    /// Walks that those registrations have served.
    pub(super) walks: F::U64,
    /// When the last decision was made, ns.
    pub(super) since: F::U64,
    /// Time between two frees when the space became precise, ns.
    pub(super) at_change: F::U64,
}

impl<F: Facade> Counts<F> {
    pub(crate) fn new() -> Self {
        let zero = || F::U64::new(0);
        Counts {
            frees: zero(),
            interrupted: zero(),
            walks: zero(),
            since: zero(),
            at_change: zero(),
        }
    }
}
