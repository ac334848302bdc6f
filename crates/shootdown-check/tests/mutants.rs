//! Known bugs, switched on one at a time: the exploration of a race finds each. Which race is the first that shows it
//! was found by trying all. Bugs that are not here need what this machine does not have: time, split tags, migration, virtual
//! CPUs, grace periods.

use shootdown::Fault;
use shootdown_check::Architecture::{self, Arm, RiscV, X86};
use shootdown_check::{Bounds, Play, Priorities, Scenario, at_random, explore, replay, scenario, subject};

/// Bug, race, design.
const MUTANTS: &[(Fault, &str, &str)] = &[
    (Fault::SkipSwitchingCpu, "switch", "ipi"),
    (Fault::NoBarrierAfterJoin, "switch", "ipi"),
    (Fault::TagTestBeforeLazyTest, "end", "arm-broadcast"),
    (Fault::ReusedUnderWalk, "walk", "arm-broadcast"),
    (Fault::WalkWithoutFullBarrier, "foreign-walk", "walk-precise"),
    (Fault::NoSelfService, "masked", "ipi"),
    (Fault::SkipWhenNotCurrent, "batch", "arm-ipi"),
    (Fault::FlagBeforeArguments, "flush", "ipi"),
    (Fault::CountedBeforeOnline, "hotplug", "ipi"),
    (Fault::TablesNotPurged, "tables", "ipi"),
    (Fault::TablesNamedOnce, "tables", "ipi"),
    (Fault::NoPublishBeforeInvalidation, "kernel-range", "broadcast"),
    (Fault::TagReusedWithoutFlush, "switch", "ipi"),
    (Fault::StaleViewOfLoaded, "masked", "ipi"),
    (Fault::FilterByRequester, "batch", "ipi"),
    (Fault::DepartingCpuAcknowledgesTwice, "hotplug", "ipi"),
    (Fault::LeaveBeforeRootLoad, "switch", "arm-ipi"),
    (Fault::GiveUpWaiting, "flush", "ipi"),
    (Fault::BroadcastCountOffByOne, "flush", "arm-broadcast"),
    (Fault::RootLoadBeforeJoin, "switch", "ipi"),
    (Fault::NoBarrierAfterLazy, "lazy", "ipi"),
    (Fault::SkipLazyDespiteTables, "lazy-tables", "ipi"),
    (Fault::FlushTellsNoWalkers, "walk", "adaptive"),
    (Fault::WalkersReadBeforeBarrier, "foreign-walk", "walk-precise"),
    (Fault::WalkInterruptible, "walk", "ipi"),
    (Fault::SwitchInterruptible, "return", "ipi"),
    (Fault::LazyKeepsOldTag, "roll-over-lazy", "arm-broadcast"),
    (Fault::SendBeforePublish, "flush", "ipi"),
    (Fault::LazyLeavesSet, "lazy", "ipi"),
    (Fault::DepartsWithoutLooking, "twice", "ipi-trim"),
    (Fault::DepartsWithoutLooking, "departed", "ipi"),
    (Fault::DepartsWithoutLooking, "departed", "adaptive"),
    (Fault::DepartsWithoutLooking, "departed", "adaptive-no-broadcast"),
    (Fault::EarlyDespiteTables, "tables", "ipi-early"),
    (Fault::DeferredWithoutGeneration, "deferral", "deferred"),
    (Fault::DeferralOverTooSoon, "deferral", "deferred"),
    (Fault::TickDoesNotFlush, "deferral", "deferred"),
    (Fault::TicklessNotAsked, "ticks-resume", "deferred"),
    (Fault::EpochBeforeTickless, "ticks-resume", "deferred"),
    (Fault::EarlyDespiteKernelRange, "kernel-range", "ipi-early"),
];

/// Bugs that only the memory of another instruction set forgives: bug, race, design, and where it is found.
const WEAK: &[(Fault, &str, &str, &[Architecture])] = &[
    (Fault::PublishAfterGeneration, "cross", "ipi", &[Arm]),
    (Fault::PublishAfterGeneration, "masked", "ipi-early", &[Arm]),
    (Fault::OnlineInvalidatesEarly, "kernel-hotplug", "ipi", &[Arm]),
    (Fault::NoPublishBeforeInvalidation, "flush", "ipi", &[Arm]),
    (Fault::NoPublishBeforeInvalidation, "flush", "arm-broadcast", &[Arm]),
    (
        Fault::NoPublishBeforeInvalidation,
        "kernel-range",
        "broadcast",
        &[X86, Arm, RiscV],
    ),
    (Fault::AcknowledgeBeforeLocalSync, "flush", "ipi", &[Arm]),
    (Fault::NoBarrierAfterJoin, "switch", "ipi", &[X86, Arm, RiscV]),
    (Fault::NoBarrierAfterLazy, "lazy", "ipi", &[X86, Arm, RiscV]),
    (
        Fault::WalkWithoutFullBarrier,
        "foreign-walk",
        "walk-precise",
        &[X86, Arm, RiscV],
    ),
];

/// More than any of these races has.
const STATES: u64 = 1_000_000;

fn case(race: &str, design: &str, memory: Architecture) -> Scenario {
    let race = scenario::races().find(|known| known.name == race).expect("a race");
    let subject = subject::subjects().find(|known| known.name == design);
    subject::under(race, subject.expect("a design").on(memory))
}

#[test]
fn every_one_of_these_bugs_is_found_and_nothing_without_it() {
    for &(fault, race, design) in MUTANTS {
        let scenario = case(race, design, X86);
        let play = &mut Play::with_fault(scenario, fault);
        let report = explore(play, Bounds::states(STATES), &mut |_| true);
        let found = report.found;
        let found = found.unwrap_or_else(|| panic!("{fault:?} was not found in {race} under {design}"));
        println!(
            "{fault:?}: {race} under {design}, {} states: {}",
            report.states, found.violation
        );
        let sound = explore(&mut Play::new(scenario), Bounds::states(STATES), &mut |_| true);
        assert!(sound.found.is_none() && sound.complete, "{race} under {design}");
    }
}

#[test]
fn bugs_that_one_memory_forgives_are_found_with_the_others() {
    for &(fault, race, design, memories) in WEAK {
        for memory in Architecture::ALL {
            let play = &mut Play::with_fault(case(race, design, memory), fault);
            let report = explore(play, Bounds::states(STATES), &mut |_| true);
            let which = format!("{fault:?} in {race} under {design} on {memory}");
            assert_eq!(report.found.is_some(), memories.contains(&memory), "{which}");
            assert!(report.found.is_some() || report.complete, "{which}");
            let Some(found) = report.found else { continue };
            let told = replay(&mut Play::with_fault(case(race, design, memory), fault), &found.steps);
            assert_eq!(
                told.map(|(_, violation)| violation),
                Ok(Some(found.violation)),
                "{which}, told again"
            );
        }
    }
}

/// Bug, race of three or four CPUs, design.
const RARE: &[(Fault, &str, &str)] = &[
    (Fault::SkipSwitchingCpu, "switch-3", "ipi"),
    (Fault::NoBarrierAfterJoin, "mixed-4", "ipi"),
    (Fault::NoBarrierAfterLazy, "mixed-4", "ipi"),
    (Fault::LeaveBeforeRootLoad, "mixed-4", "arm-ipi"),
    (Fault::SkipLazyDespiteTables, "lazy-tables", "ipi"),
    (Fault::FlushTellsNoWalkers, "tables-4", "walk-sticky"),
    (Fault::WalkWithoutFullBarrier, "tables-4", "walk-precise"),
];

/// Runs in which each is to be found.
const RUNS: u64 = 20_000;

#[test]
fn random_runs_by_priorities_find_bugs_in_races_of_many_cpus() {
    for &(fault, race, design) in RARE {
        let mut play = Play::with_fault(case(race, design, X86), fault);
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
