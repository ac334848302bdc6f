//! The engine's memory orders, left out one at a time. For each file and kind the first one that makes a difference is
//! enough. x86 forgives missing acquires and releases.

use shootdown_check::Architecture::{self, Arm, RiscV, X86};
use shootdown_check::ordering_sites::{Order, leave_out, requested_in};
use shootdown_check::{Bounds, Play, Scenario, configuration, explore, scenario};

/// Source file, kind of order, race, design, and the memory models that detect the omission.
const MISSED: &[(&str, Order, &str, &str, &[Architecture])] = &[
    // The log's orders are left to loom: unwritten entries read as "everything", and no race wraps around the ring.
    // Here: the DSB before a generation, and the one after local invalidations.
    ("transport/broadcast.rs", Order::Barrier, "flush", "ipi", &[Arm]),
    // The same in place of a generation, under a tag that rolls over or can be taken back; and there it orders the read
    // of the tag or the set.
    (
        "flush/under_tag.rs",
        Order::Barrier,
        "flush",
        "arm-broadcast",
        &[X86, Arm, RiscV],
    ),
    (
        "flush/under_tag.rs",
        Order::Barrier,
        "roll-over",
        "arm-broadcast",
        &[X86, Arm, RiscV],
    ),
    (
        "flush/under_tag.rs",
        Order::Barrier,
        "switch",
        "arm-local-first",
        &[X86, Arm, RiscV],
    ),
    (
        "flush/under_tag.rs",
        Order::Barrier,
        "given-back",
        "adaptive",
        &[X86, Arm, RiscV],
    ),
    (
        "flush/kernel_range.rs",
        Order::Barrier,
        "kernel-range",
        "broadcast",
        &[X86, Arm, RiscV],
    ),
    // Before interrupts.
    ("transport/send.rs", Order::Barrier, "flush", "ipi", &[Arm, RiscV]),
    ("transport/post.rs", Order::Barrier, "twice", "adaptive", &[Arm, RiscV]),
    // Joins, generations, leaving lazy TLB mode, walks.
    ("cpuset.rs", Order::Full, "return", "ipi", &[Arm, RiscV]),
    (
        "cpu/switch.rs",
        Order::Barrier,
        "return",
        "adaptive",
        &[X86, Arm, RiscV],
    ),
    ("flush/mod.rs", Order::Full, "roll-over-lazy", "ipi", &[Arm, RiscV]),
    ("cpu/switch.rs", Order::Barrier, "lazy", "ipi", &[X86, Arm, RiscV]),
    (
        "walk/mod.rs",
        Order::Barrier,
        "foreign-walk",
        "walk-precise",
        &[X86, Arm, RiscV],
    ),
    // Coming online.
    ("cpu/hotplug.rs", Order::Barrier, "kernel-hotplug", "ipi", &[Arm]),
];

/// More states than any of these races has.
const STATES: u64 = 1_000_000;

fn is_found(scenario: Scenario) -> bool {
    let report = explore(&mut Play::new(scenario), Bounds::states(STATES), &mut |_| true);
    assert!(report.found.is_some() || report.complete);
    report.found.is_some()
}

#[test]
fn missing_orderings_are_found_under_the_listed_memory_models() {
    for &(file, order, race, design, memories) in MISSED {
        let race = scenario::races().find(|known| known.name == race).expect("a race");
        let configuration = configuration::configurations().find(|known| known.name == design);
        for memory in Architecture::ALL {
            let scenario = configuration::under(race, configuration.expect("a design").on(memory));
            let sites = requested_in(|| assert!(!is_found(scenario), "nothing is left out"));
            let mut own = sites
                .into_iter()
                .filter(|site| site.file.ends_with(&format!("/{file}")) && site.order == order);
            let missed = own.find(|&site| {
                leave_out(Some(site));
                let found = is_found(scenario);
                leave_out(None);
                found
            });
            if let Some(site) = missed {
                println!(
                    "{file}:{}, {order:?}: {} under {design} on {memory}",
                    site.line, race.name
                );
            }
            let which = format!("{order:?} of {file} in {} under {design} on {memory}", race.name);
            assert_eq!(missed.is_some(), memories.contains(&memory), "{which}");
        }
    }
}
