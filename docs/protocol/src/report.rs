//! Runs a model with its mutants, and prints the table of results.

use crate::program::{describe, take};
use crate::{Claim, Explored, Protocol, Step, explore};
use std::fmt::{self, Write};

/// One exploration.
#[derive(Debug, Clone)]
pub struct Line {
    /// The model.
    pub protocol: &'static str,
    /// The bounds, or the mutant.
    pub subject: String,
    /// The claim expected to be broken; `None` for the sound protocol.
    pub expected: Option<Claim>,
    /// The result.
    pub explored: Explored,
    /// The steps to the broken claim, if one was broken.
    pub story: String,
}

impl Line {
    /// Whether the expected claim was broken, and no other.
    pub fn is_right(&self) -> bool {
        self.explored.broken.as_ref().map(|(claim, _)| *claim) == self.expected
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explored {
            states, depth, broken, ..
        } = &self.explored;
        let verdict = match (broken, self.expected) {
            (None, None) => format!("sound, {depth} deep"),
            (None, Some(claim)) => format!("SURVIVES, {claim:?} expected"),
            (Some((claim, steps)), expected) => {
                let mark = if expected == Some(*claim) { "" } else { "WRONG: " };
                format!("{mark}breaks {claim:?} in {} steps", steps.len())
            }
        };
        write!(f, "{:<12} {:<46} {states:>8}  {verdict}", self.protocol, self.subject)
    }
}

/// Explores the sound protocol and every mutant; calls `each` with each result.
pub fn run<P: Protocol>(mut each: impl FnMut(Line)) {
    let line = |subject: String, expected, protocol: P| {
        let explored = explore(protocol);
        let steps = explored.broken.as_ref().map(|(_, steps)| steps.as_slice());
        Line {
            protocol: P::NAME,
            subject,
            expected,
            story: story(protocol, steps.unwrap_or_default()),
            explored,
        }
    };
    for (bounds, protocol) in P::SOUND {
        each(line((*bounds).to_string(), None, *protocol));
    }
    for (mutant, bounds, claim) in P::MUTANTS {
        each(line(format!("{mutant:?}"), Some(*claim), bounds.with(*mutant)));
    }
}

/// The steps to a broken claim, as text.
pub fn story<P: Protocol>(protocol: P, steps: &[Step]) -> String {
    let mut state = protocol.start();
    let mut lines = String::new();
    for (number, &step) in (1..).zip(steps) {
        let _ = writeln!(lines, "{number:>4}  {}", describe(&protocol, &state, step));
        take(&protocol, &mut state, step);
    }
    lines
}
