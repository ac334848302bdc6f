//! What can be named on the command line: workloads and designs, each with one line that describes it.
//!
//! Machines come from the simulator's own models; [`find_machine`] only words the mistakes.

use std::path::Path;

use shootdown_sim::model::Model;

use crate::failure::Failure;

/// The machine of the flagship comparison.
pub const FLAGSHIP_MACHINE: &str = "milan-72";
/// The workload of the flagship comparison.
pub const FLAGSHIP_WORKLOAD: &str = "tlb_flush2";
/// The designs compared unless others are named.
pub const FLAGSHIP_DESIGNS: &str = "ideal,ipi,broadcast,adaptive";
/// The workload on which the control run must be caught.
pub const CONTROL_WORKLOAD: &str = "tlb_shared";
/// The unsound design that serves as the control.
pub const CONTROL_DESIGN: &str = "none";
/// The design with free invalidation that others are measured against.
pub const IDEAL_DESIGN: &str = "ideal";

/// A workload or a design.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub description: &'static str,
}

/// Every workload.
pub const WORKLOADS: &[Entry] = &[
    Entry {
        name: "tlb_flush2",
        description: "each thread writes a page of its own region, drops it and reads it back as 0 (private anonymous memory)",
    },
    Entry {
        name: "tlb_shared",
        description: "threads drop and touch pages of one shared region, so that a missed invalidation shows at once",
    },
];

/// Every design.
pub const DESIGNS: &[Entry] = &[
    Entry {
        name: "ideal",
        description: "perfect invalidation at no cost (simulation only): the limit the others are measured against",
    },
    Entry {
        name: "ipi",
        description: "per-CPU tags, interrupts to the active CPUs of the space, spinning waits: x86 before broadcast",
    },
    Entry {
        name: "broadcast",
        description: "hybrid tags: spaces seen on 4 or more CPUs are promoted and use broadcast, the others interrupts",
    },
    Entry {
        name: "adaptive",
        description: "hybrid tags with demotion, reach chosen per request from measured costs, flush log",
    },
    Entry {
        name: "none",
        description: "no invalidation: UNSOUND, the control that the oracle must catch",
    },
];

/// Finds a workload by name.
///
/// # Errors
/// One line that lists the known ones.
pub fn find_workload(name: &str) -> Result<&'static Entry, Failure> {
    find(WORKLOADS, name).ok_or_else(|| unknown("WORKLOAD", "workload", name, &names(WORKLOADS)))
}

/// Finds a design by name.
///
/// # Errors
/// One line that lists the known ones.
pub fn find_design(name: &str) -> Result<&'static Entry, Failure> {
    find(DESIGNS, name).ok_or_else(|| unknown("--designs", "design", name, &names(DESIGNS)))
}

/// Finds a machine model by name, or reads the file of that path.
///
/// # Errors
/// One line: the known names, or what is wrong in the file and where.
pub fn find_machine(name: &str) -> Result<Model, Failure> {
    let known = Model::builtin_names();
    let looks_like_a_path =
        name.ends_with(".toml") || name.contains(std::path::MAIN_SEPARATOR) || Path::new(name).is_file();
    if !known.contains(&name) && !looks_like_a_path {
        return Err(unknown(
            "--on",
            "machine",
            name,
            &format!("{}, or the path of a .toml file", known.join(", ")),
        ));
    }
    Model::find(name).map_err(|error| Failure::Input(error.to_string()))
}

fn find(entries: &'static [Entry], name: &str) -> Option<&'static Entry> {
    entries.iter().find(|entry| entry.name == name.trim())
}

fn names(entries: &[Entry]) -> String {
    entries.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
}

fn unknown(place: &str, kind: &str, name: &str, known: &str) -> Failure {
    Failure::Input(format!("{place}: unknown {kind} `{name}`; known: {known}"))
}

/// The noun of one operation of a workload, as in "loops per second".
pub fn operation(workload: &str) -> &'static str {
    if workload.starts_with("tlb_flush") {
        "loop"
    } else {
        "op"
    }
}
