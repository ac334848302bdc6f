//! One mutation: its place, its effect, and a name for it that does not change when lines move.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// The effect of a mutation on its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The call, store, barrier, message or assignment is not made.
    Drop,
    /// An acquire or a release becomes relaxed.
    Relax,
    /// A read-modify-write becomes a load and a store, and no barrier.
    Split,
    /// The statement changes places with the next one.
    Swap,
    /// The condition holds always.
    Always,
    /// The condition never holds.
    Never,
    /// The bound of the comparison moves by one.
    Edge,
    /// The flag passed to a call is inverted.
    Flip,
    /// The loop ends after its first iteration.
    Once,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Kind::Drop => "drop",
            Kind::Relax => "relax",
            Kind::Split => "split",
            Kind::Swap => "swap",
            Kind::Always => "always",
            Kind::Never => "never",
            Kind::Edge => "edge",
            Kind::Flip => "flip",
            Kind::Once => "once",
        };
        f.pad(word)
    }
}

/// A mutation. Its number is its place in the list, from 1.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// File, under the engine's `src`.
    pub file: String,
    /// Function, with its type unless that is the engine.
    pub function: String,
    /// The kind of change.
    pub kind: Kind,
    /// The changed source text on one line, shortened.
    pub text: String,
    /// Its number among equal ones, from 1.
    pub nth: u32,
    /// Line of the file, from 1; for people, not part of the name.
    pub line: usize,
}

impl Mutant {
    /// The name: file, function, kind and text; and the number, if there are several.
    pub fn name(&self) -> String {
        let Mutant {
            file,
            function,
            kind,
            text,
            nth,
            ..
        } = self;
        let which = if *nth > 1 { format!(" #{nth}") } else { String::new() };
        format!("{file} {function}: {kind} `{text}`{which}")
    }
}

/// Numbers equal ones, so that each has a name of its own.
pub fn number_alike(mutants: &mut [Mutant]) {
    let mut seen = HashMap::new();
    for mutant in mutants {
        let Mutant {
            file,
            function,
            kind,
            text,
            ..
        } = &mutant;
        let count = seen
            .entry((file.clone(), function.clone(), *kind, text.clone()))
            .or_insert(0);
        *count += 1;
        mutant.nth = *count;
    }
}

/// Source text as it appears in a name: one line, single spaces, at most 60 characters.
pub fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.strip_suffix(';').unwrap_or(&line);
    if line.chars().count() <= MOST {
        return line.to_string();
    }
    let head: String = line.chars().take(MOST - 1).collect();
    head + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(text: &str) -> Mutant {
        Mutant {
            file: "switch.rs".into(),
            function: "join".into(),
            kind: Kind::Drop,
            text: shortened(text),
            nth: 1,
            line: 7,
        }
    }

    #[test]
    fn mutation_names_ignore_layout_and_are_unique() {
        let mut mutants = [mutant("space.cpus\n    .join(me);"), mutant("space.cpus .join(me)")];
        number_alike(&mut mutants);
        assert_eq!(mutants[0].name(), "switch.rs join: drop `space.cpus .join(me)`");
        assert_eq!(mutants[1].name(), "switch.rs join: drop `space.cpus .join(me)` #2");
    }
}
