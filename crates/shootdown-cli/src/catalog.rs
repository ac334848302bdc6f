//! Names for the command line, as the simulator lists them, and the names that this program treats specially.

use shootdown_sim::run;

/// The machine of the default comparison.
pub const FLAGSHIP_MACHINE: &str = "milan-72";
/// The workload of the default comparison.
pub const FLAGSHIP_WORKLOAD: &str = "tlb_flush2";
/// The designs compared unless others are named.
pub const FLAGSHIP_DESIGNS: &str = "ideal,ipi,broadcast,adaptive";
/// The workload on which the control run must be caught.
pub const CONTROL_WORKLOAD: &str = "tlb_shared";
/// The unsound design that serves as the control.
pub const CONTROL_DESIGN: &str = "none";
/// The design with free invalidation, against which others are measured.
pub const IDEAL_DESIGN: &str = "ideal";
/// The design that must be at least as good as every other.
pub const JUDGED_DESIGN: &str = "adaptive";

/// A workload or a design.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// One-line description.
    pub description: &'static str,
}

/// The entry for recordings in lists; for `compare` only.
pub const RECORDED: Entry = Entry {
    name: "trace:FILE",
    description: "a program recorded by `record` or read by `import`, \
        replayed by `compare` (one op: a requested flush)",
};

/// Every workload of the simulator's own.
pub fn workloads() -> impl Iterator<Item = Entry> {
    run::Workload::ALL
        .iter()
        .map(|&(name, _, description)| Entry { name, description })
}

/// Every design.
pub fn designs() -> impl Iterator<Item = Entry> {
    run::designs().map(|design| Entry {
        name: design.name,
        description: design.about,
    })
}

/// The workload of that name.
pub fn workload(name: &str) -> Option<Entry> {
    workloads().find(|entry| entry.name == name)
}

/// The design of that name.
pub fn design(name: &str) -> Option<Entry> {
    designs().find(|entry| entry.name == name)
}

/// The noun of one operation of a workload, as in "loops per second".
pub fn operation(workload: &str) -> &'static str {
    if workload.starts_with("tlb_flush") {
        "loop"
    } else {
        "op"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalogue_names_exist_in_the_simulator() {
        for name in FLAGSHIP_DESIGNS
            .split(',')
            .chain([CONTROL_DESIGN, IDEAL_DESIGN, JUDGED_DESIGN])
        {
            assert!(design(name).is_some(), "{name}");
        }
        assert!(workload(FLAGSHIP_WORKLOAD).is_some() && workload(CONTROL_WORKLOAD).is_some());
    }
}
