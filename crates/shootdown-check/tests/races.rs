//! The races of two CPUs, exhaustively, under every design and memory model; and the negative control.

use shootdown_check::Architecture::{self, Arm, RiscV, X86};
use shootdown_check::configuration::{self, Configuration};
use shootdown_check::scenario;
use shootdown_check::{Bounds, Play, Priorities, Report, Scenario, Violation, at_random, explore, replay};

/// More states than any of these races has.
const STATES: u64 = 2_000_000;

fn run(race: &Scenario, configuration: Configuration) -> Report {
    explore(
        &mut Play::new(configuration::under(race, configuration)),
        Bounds::states(STATES),
        &mut |_| true,
    )
}

fn holds(memory: Architecture, races: impl Iterator<Item = &'static Scenario> + Clone, designs: impl Fn(&str) -> bool) {
    let mut states = 0;
    for configuration in configuration::configurations()
        .filter(|configuration| configuration.name != "none" && designs(configuration.name))
    {
        for race in races.clone() {
            let report = run(race, configuration.on(memory));
            let which = format!("{} under {} on {memory}", race.name, configuration.name);
            if let Some(found) = report.found {
                panic!("{which}: {}", found.violation);
            }
            assert!(report.complete, "{which}: more than {STATES} states");
            assert!(report.states > 1, "{which}: nothing raced");
            states += report.states;
        }
    }
    println!("{states} states on {memory}");
}

/// All races of two CPUs except those with lockless walks.
fn races() -> impl Iterator<Item = &'static Scenario> + Clone {
    let own = scenario::RACES.iter().chain(scenario::OF_KERNEL);
    own.chain(scenario::DEFERRALS).chain(scenario::ROLL_OVERS)
}

fn has_slots(name: &str) -> bool {
    !has_system_wide_tags(name) && !name.starts_with("walk-")
}

fn has_system_wide_tags(name: &str) -> bool {
    name.starts_with("arm-")
}

#[test]
fn slot_designs_hold_in_every_order_on_x86() {
    holds(X86, races(), has_slots);
}

#[test]
fn slot_designs_hold_in_every_order_on_arm() {
    holds(Arm, races(), has_slots);
}

#[test]
fn slot_designs_hold_in_every_order_on_riscv() {
    holds(RiscV, races(), has_slots);
}

#[test]
fn system_wide_tag_designs_hold_in_every_order() {
    Architecture::ALL
        .into_iter()
        .for_each(|memory| holds(memory, races(), has_system_wide_tags));
}

#[test]
fn lockless_walks_hold_in_every_order() {
    Architecture::ALL
        .into_iter()
        .for_each(|memory| holds(memory, scenario::WALKS.iter(), |_| true));
}

#[test]
fn control_is_caught_and_its_counterexample_replays() {
    let none = configuration::configurations()
        .find(|configuration| configuration.name == "none")
        .expect("the control");
    let flush = &scenario::RACES[0];
    let found = run(flush, none).found.expect("nothing is invalidated");
    assert!(matches!(found.violation, Violation::Stale { .. }), "{found:?}");
    let mut play = Play::new(configuration::under(flush, none));
    let (lines, violation) = replay(&mut play, &found.steps).expect("the same steps");
    assert_eq!(violation, Some(found.violation));
    assert!(
        lines.iter().any(|line| line.text.starts_with("frees frame")),
        "{lines:?}"
    );
}

#[test]
fn impossible_step_is_refused_with_its_number() {
    let ipi = configuration::configurations()
        .find(|configuration| configuration.name == "ipi")
        .expect("a preset");
    let mut play = Play::new(configuration::under(&scenario::RACES[0], ipi));
    let steps = [shootdown_check::Step::Run(0), shootdown_check::Step::Interrupt(1)];
    assert_eq!(replay(&mut play, &steps).err(), Some(1));
}

#[test]
fn random_runs_of_three_and_four_cpus_hold() {
    for race in scenario::OF_THREE.iter().chain(scenario::OF_FOUR) {
        for configuration in configuration::configurations().filter(|configuration| configuration.name != "none") {
            for memory in Architecture::ALL {
                let mut play = Play::new(configuration::under(race, configuration.on(memory)));
                let mut priorities = Priorities::new(3);
                for seed in 0..150 {
                    let found = at_random(&mut play, seed).or_else(|| priorities.run(&mut play, seed));
                    if let Some(found) = found {
                        let which = format!("{} under {} on {memory}", race.name, configuration.name);
                        panic!("{which}, seed {seed}: {}", found.violation);
                    }
                }
            }
        }
    }
}
