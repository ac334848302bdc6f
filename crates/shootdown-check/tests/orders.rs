//! The engine's memory orders, left out one at a time. For each file and kind the first one that makes a difference is
//! enough. x86 forgives missing acquires and releases.

use shootdown_check::Architecture::{self, Arm, RiscV, X86};
use shootdown_check::orders::{Asked, asked_in, leave_out};
use shootdown_check::{Bounds, Play, Scenario, explore, scenario, subject};

/// Source file, kind of order, race, design, and the memory models that detect the omission.
const MISSED: &[(&str, Asked, &str, &str, &[Architecture])] = &[
    // The log's orders are left to loom: unwritten entries read as "everything", and no race wraps around the ring.
    // Here: the DSB before a generation, and the one after local invalidations.
    ("transport/broadcast.rs", Asked::Barrier, "flush", "ipi", &[Arm]),
    (
        "transport/broadcast.rs",
        Asked::Barrier,
        "flush",
        "arm-broadcast",
        &[Arm],
    ),
    (
        "flush/kernel_range.rs",
        Asked::Barrier,
        "kernel-range",
        "broadcast",
        &[X86, Arm, RiscV],
    ),
    // Before interrupts.
    ("transport/send.rs", Asked::Barrier, "flush", "ipi", &[Arm, RiscV]),
    ("transport/post.rs", Asked::Barrier, "twice", "adaptive", &[Arm, RiscV]),
    // Joins, generations, leaving lazy TLB mode, walks.
    ("cpuset.rs", Asked::Full, "return", "ipi", &[Arm, RiscV]),
    (
        "cpu/switch.rs",
        Asked::Barrier,
        "return",
        "adaptive",
        &[X86, Arm, RiscV],
    ),
    ("flush/mod.rs", Asked::Full, "roll-over-lazy", "ipi", &[Arm, RiscV]),
    ("cpu/switch.rs", Asked::Barrier, "lazy", "ipi", &[X86, Arm, RiscV]),
    (
        "walk/mod.rs",
        Asked::Barrier,
        "foreign-walk",
        "walk-precise",
        &[X86, Arm, RiscV],
    ),
    // Coming online.
    ("cpu/hotplug.rs", Asked::Barrier, "kernel-hotplug", "ipi", &[Arm]),
];

/// More states than any of these races has.
const STATES: u64 = 1_000_000;

fn is_found(scenario: Scenario) -> bool {
    let report = explore(&mut Play::new(scenario), Bounds::states(STATES), &mut |_| true);
    assert!(report.found.is_some() || report.complete);
    report.found.is_some()
}

#[test]
fn what_the_memory_of_one_instruction_set_forgives_is_missed_with_that_of_another() {
    for &(file, asked, race, design, memories) in MISSED {
        let race = scenario::races().find(|known| known.name == race).expect("a race");
        let subject = subject::subjects().find(|known| known.name == design);
        for memory in Architecture::ALL {
            let scenario = subject::under(race, subject.expect("a design").on(memory));
            let sites = asked_in(|| assert!(!is_found(scenario), "nothing is left out"));
            let mut own = sites
                .into_iter()
                .filter(|site| site.file.ends_with(&format!("/{file}")) && site.asked == asked);
            let missed = own.find(|&site| {
                leave_out(Some(site));
                let found = is_found(scenario);
                leave_out(None);
                found
            });
            if let Some(site) = missed {
                println!(
                    "{file}:{}, {asked:?}: {} under {design} on {memory}",
                    site.line, race.name
                );
            }
            let which = format!("{asked:?} of {file} in {} under {design} on {memory}", race.name);
            assert_eq!(missed.is_some(), memories.contains(&memory), "{which}");
        }
    }
}
