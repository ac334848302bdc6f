//! Designs by name.

use shootdown::{Design, Policy};

/// A design by name, with its description.
#[derive(Debug, Clone, Copy)]
pub struct DesignEntry {
    /// Name.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Settings of the engine.
    pub design: Design,
    /// Whether the machine invalidates everything at once and for free.
    pub ideal: bool,
}

/// All designs: the engine's presets, and `ideal`, which only a simulated machine can have.
pub fn designs() -> impl Iterator<Item = DesignEntry> {
    let ideal = DesignEntry {
        name: "ideal",
        about: "perfect invalidation at no cost: the limit, simulation only",
        // CPUs never leave a set: no flush reads it, and no write is made for the sake of flushes.
        design: Policy {
            departure: shootdown::Departure::WhenAsked { trim_ns: u64::MAX },
            ..Policy::NONE
        }
        .into(),
        ideal: true,
    };
    let presets = Design::PRESETS.iter().map(|&(name, design, about)| DesignEntry {
        name,
        about,
        design,
        ideal: false,
    });
    std::iter::once(ideal).chain(presets)
}

pub(crate) fn find_design(name: &str) -> Result<DesignEntry, String> {
    designs().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<_> = designs().map(|entry| entry.name).collect();
        format!("design `{name}` is not known; use one of: {}", known.join(", "))
    })
}
