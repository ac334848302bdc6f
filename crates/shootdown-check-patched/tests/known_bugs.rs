//! Known bugs, selected one at a time: the exploration of a race finds each. Which race is the first that shows it was
//! found by trying all. Bugs that are not here need what this machine does not have: time, split tags, migration,
//! virtual CPUs, grace periods.

extern crate shootdown_check_patched as shootdown_check;

use shootdown_check::Architecture::{self, Arm, RiscV, X86};
use shootdown_check::{Bounds, Play, Priorities, Scenario, at_random, configuration, explore, replay, scenario};
use shootdown_known_bugs::{Bug, select};

/// Bug, race, design.
const MUTANTS: &[(Bug, &str, &str)] = &[
    (Bug::SkipSwitchingCpu, "switch", "ipi"),
    (Bug::NoBarrierAfterJoin, "switch", "ipi"),
    (Bug::TagTestBeforeLazyTest, "end", "arm-broadcast"),
    (Bug::ReusedUnderWalk, "walk", "arm-broadcast"),
    (Bug::WalkWithoutFullBarrier, "foreign-walk", "walk-precise"),
    (Bug::NoSelfService, "masked", "ipi"),
    (Bug::SkipWhenNotCurrent, "batch", "arm-ipi"),
    (Bug::FlagBeforeArguments, "flush", "ipi"),
    // By what it does, in release builds too: the wait for a CPU that is off has no end (C5).
    (Bug::CountedBeforeOnline, "off", "ipi"),
    (Bug::TablesNotPurged, "tables", "ipi"),
    (Bug::TablesNamedOnce, "tables", "ipi"),
    (Bug::NoPublishBeforeInvalidation, "kernel-range", "broadcast"),
    (Bug::ModeBeforeBarrierUnderTag, "roll-over", "arm-broadcast"),
    (Bug::ModeBeforeBarrierUnderTag, "switch", "arm-local-first"),
    (Bug::NoGenerationAtDemotion, "given-back", "adaptive"),
    (Bug::TagReusedWithoutFlush, "switch", "ipi"),
    (Bug::StaleViewOfLoaded, "masked", "ipi"),
    (Bug::FilterByRequester, "batch", "ipi"),
    (Bug::DepartingCpuAcknowledgesTwice, "hotplug", "ipi"),
    (Bug::LeaveBeforeRootLoad, "switch", "arm-ipi"),
    (Bug::GiveUpWaiting, "flush", "ipi"),
    (Bug::BroadcastCountOffByOne, "flush", "arm-broadcast"),
    (Bug::RootLoadBeforeJoin, "switch", "ipi"),
    (Bug::NoBarrierAfterLazy, "lazy", "ipi"),
    (Bug::SkipLazyDespiteTables, "lazy-tables", "ipi"),
    (Bug::KernelRootKeepsWithoutTags, "end", "ipi-no-tags"),
    (Bug::KernelRootKeepsWithoutTags, "lazy-tables", "adaptive-no-tags"),
    (Bug::FlushTellsNoWalkers, "walk", "adaptive"),
    (Bug::WalkersReadBeforeBarrier, "foreign-walk", "walk-precise"),
    (Bug::WalkInterruptible, "walk", "ipi"),
    (Bug::SwitchInterruptible, "return", "ipi"),
    (Bug::LazyKeepsOldTag, "roll-over-lazy", "arm-broadcast"),
    (Bug::SendBeforePublish, "flush", "ipi"),
    (Bug::LazyLeavesSet, "lazy", "ipi"),
    (Bug::DepartsWithoutLooking, "twice", "ipi-trim"),
    (Bug::DepartsWithoutLooking, "departed", "ipi"),
    (Bug::DepartsWithoutLooking, "departed", "adaptive"),
    (Bug::DepartsWithoutLooking, "departed", "adaptive-no-broadcast"),
    (Bug::EarlyDespiteTables, "tables", "ipi-early"),
    (Bug::DeferredWithoutGeneration, "deferral", "deferred"),
    (Bug::DeferralOverTooSoon, "deferral", "deferred"),
    (Bug::TickDoesNotFlush, "deferral", "deferred"),
    (Bug::TicklessNotAsked, "ticks-resume", "deferred"),
    (Bug::EpochBeforeTickless, "ticks-resume", "deferred"),
    (Bug::EarlyDespiteKernelRange, "kernel-range", "ipi-early"),
];

/// Bugs that only the memory of another instruction set forgives: bug, race, design, and where it is found.
const WEAK: &[(Bug, &str, &str, &[Architecture])] = &[
    (Bug::PublishAfterGeneration, "cross", "ipi", &[Arm]),
    (Bug::PublishAfterGeneration, "masked", "ipi-early", &[Arm]),
    (Bug::OnlineInvalidatesEarly, "kernel-hotplug", "ipi", &[Arm]),
    (Bug::NoPublishBeforeInvalidation, "flush", "ipi", &[Arm]),
    (Bug::NoPublishBeforeInvalidation, "flush", "arm-broadcast", &[Arm]),
    (
        Bug::NoPublishBeforeInvalidation,
        "kernel-range",
        "broadcast",
        &[X86, Arm, RiscV],
    ),
    (Bug::AcknowledgeBeforeLocalSync, "flush", "ipi", &[Arm]),
    (Bug::NoBarrierAfterJoin, "switch", "ipi", &[X86, Arm, RiscV]),
    (Bug::NoBarrierAfterLazy, "lazy", "ipi", &[X86, Arm, RiscV]),
    (
        Bug::WalkWithoutFullBarrier,
        "foreign-walk",
        "walk-precise",
        &[X86, Arm, RiscV],
    ),
];

/// The scenario in the engine with that bug, which stays selected on this thread.
fn with_bug(scenario: Scenario, bug: Bug) -> Play {
    select(Some(bug));
    Play::new(scenario)
}

/// More than any of these races has.
const STATES: u64 = 1_000_000;

fn case(race: &str, design: &str, memory: Architecture) -> Scenario {
    let race = scenario::races().find(|known| known.name == race).expect("a race");
    let configuration = configuration::configurations().find(|known| known.name == design);
    configuration::under(race, configuration.expect("a design").on(memory))
}

#[test]
fn exploration_finds_each_bug_and_passes_without_it() {
    for &(fault, race, design) in MUTANTS {
        let scenario = case(race, design, X86);
        let play = &mut with_bug(scenario, fault);
        let report = explore(play, Bounds::states(STATES), &mut |_| true);
        let found = report.found;
        let found = found.unwrap_or_else(|| panic!("{fault:?} was not found in {race} under {design}"));
        println!(
            "{fault:?}: {race} under {design}, {} states: {}",
            report.states, found.violation
        );
        select(None);
        let sound = explore(&mut Play::new(scenario), Bounds::states(STATES), &mut |_| true);
        assert!(sound.found.is_none() && sound.complete, "{race} under {design}");
    }
}

#[test]
fn weak_memory_bugs_are_found_under_the_listed_models() {
    for &(fault, race, design, memories) in WEAK {
        for memory in Architecture::ALL {
            let play = &mut with_bug(case(race, design, memory), fault);
            let report = explore(play, Bounds::states(STATES), &mut |_| true);
            let which = format!("{fault:?} in {race} under {design} on {memory}");
            assert_eq!(report.found.is_some(), memories.contains(&memory), "{which}");
            assert!(report.found.is_some() || report.complete, "{which}");
            let Some(found) = report.found else { continue };
            let told = replay(&mut with_bug(case(race, design, memory), fault), &found.steps);
            assert_eq!(
                told.map(|(_, violation)| violation),
                Ok(Some(found.violation)),
                "{which}, replayed"
            );
        }
    }
}

/// Bug, race of three or four CPUs, design.
const RARE: &[(Bug, &str, &str)] = &[
    (Bug::SkipSwitchingCpu, "switch-3", "ipi"),
    (Bug::NoBarrierAfterJoin, "mixed-4", "ipi"),
    (Bug::NoBarrierAfterLazy, "mixed-4", "ipi"),
    (Bug::LeaveBeforeRootLoad, "mixed-4", "arm-ipi"),
    (Bug::SkipLazyDespiteTables, "lazy-tables", "ipi"),
    (Bug::FlushTellsNoWalkers, "tables-4", "walk-sticky"),
    (Bug::WalkWithoutFullBarrier, "tables-4", "walk-precise"),
];

/// Runs in which each is to be found.
const RUNS: u64 = 20_000;

#[test]
fn random_runs_by_priority_find_bugs_in_races_of_many_cpus() {
    for &(fault, race, design) in RARE {
        let mut play = with_bug(case(race, design, X86), fault);
        let mut priorities = Priorities::new(3);
        let found = (0..RUNS).find_map(|seed| Some((seed, priorities.run(&mut play, seed)?)));
        let uniform = (0..RUNS).find(|&seed| at_random(&mut play, seed).is_some());
        let Some((seed, found)) = found else {
            panic!("{fault:?} was not found in {race} under {design}; uniformly: {uniform:?}")
        };
        println!(
            "{fault:?}: {race} under {design}, run {seed} (uniformly {uniform:?}): {}",
            found.violation
        );
    }
}
