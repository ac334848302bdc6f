//! Mutations that break no rule of the contract, each with its argument: `crates/shootdown/mutants.toml`.

use crate::mutant::Mutant;
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};

/// Why a mutation cannot, or need not, be caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// No observer can see a difference.
    Equivalent,
    /// Only the cost differs, or the difference is always allowed (C6: more is invalidated, or a wait is longer).
    Harmless,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Which mutations the test command tries: parts of their names.
    #[serde(default)]
    slice: Vec<String>,
    #[serde(default)]
    argument: Vec<Argument>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Argument {
    class: Class,
    why: String,
    mutants: Vec<String>,
}

/// The arguments, by the names of mutations, and the slice.
#[derive(Debug, Default)]
pub struct Arguments {
    by_name: BTreeMap<String, (Class, String)>,
    /// Which mutations the test command tries: parts of their names.
    pub slice: Vec<String>,
}

impl Arguments {
    /// Reads them; each must be about an existing mutation, and no mutation may have two.
    ///
    /// # Errors
    /// The error, with the names.
    pub fn read(text: &str, mutants: &[Mutant]) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let known: HashSet<String> = mutants.iter().map(Mutant::name).collect();
        let (mut arguments, mut wrong) = (BTreeMap::new(), Vec::new());
        for Argument { class, why, mutants } in file.argument {
            for name in mutants {
                if !known.contains(&name) {
                    wrong.push(format!("no such mutation: {name}"));
                }
                if arguments.insert(name.clone(), (class, why.clone())).is_some() {
                    wrong.push(format!("argued twice: {name}"));
                }
            }
        }
        match wrong.is_empty() {
            true => Ok(Arguments {
                by_name: arguments,
                slice: file.slice,
            }),
            false => Err(wrong.join("\n")),
        }
    }

    /// The argument about the mutation of that name.
    pub fn about(&self, name: &str) -> Option<(Class, &str)> {
        self.by_name.get(name).map(|(class, why)| (*class, why.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_for_a_missing_mutation_is_an_error() {
        let text = "[[argument]]\nclass = \"equivalent\"\nwhy = \"w\"\nmutants = [\"log.rs read: drop `x`\"]\n";
        assert!(Arguments::read(text, &[]).is_err_and(|why| why.contains("no such mutation")));
    }
}
