//! Reports of explorations and random runs, and the check whether a run has ended in a broken rule.

use crate::machine::Step;
use crate::play::Play;
use crate::violation::Violation;

/// Steps after which a run is assumed to be endless.
pub(crate) const ENDLESS: usize = 4000;

/// A broken rule and the run that breaks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counterexample {
    /// The rule.
    pub violation: Violation,
    /// The steps that break it, from the start.
    pub steps: Vec<Step>,
}

/// What an exploration found.
#[derive(Debug, Clone)]
pub struct Report {
    /// Different states.
    pub states: u64,
    /// Runs: those from the start, and one for each step other than the first that was taken from a state.
    pub runs: u64,
    /// Length of the longest run.
    pub depth: usize,
    /// Whether every state within the bound on preemptions was visited.
    pub complete: bool,
    /// The first broken rule.
    pub found: Option<Counterexample>,
}

/// The rule that is broken after `taken` steps, with `steps` possible.
pub(crate) fn ending(play: &mut Play, steps: &[Step], taken: usize) -> Option<Violation> {
    let waiting = if steps.is_empty() { play.waiting() } else { Vec::new() };
    match play.take_violation() {
        Some(violation) => Some(violation),
        None if taken > ENDLESS => Some(Violation::Endless),
        None if !waiting.is_empty() => Some(Violation::Deadlock { waiting }),
        None => None,
    }
}
