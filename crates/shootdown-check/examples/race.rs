//! Explores races under designs, one after the other, until a rule is broken. For scripts: prints one line of
//! tab-separated fields for each.
//!
//! ```text
//! race STATES RACE/DESIGN...
//! held    switch/ipi    2318 states    734 runs
//! caught  lazy/ipi      120 states     40 runs    C1 broken: CPU 1 can use ...
//! ```
//!
//! Races of three CPUs take 200 random runs. An exploration that exceeds STATES states is aborted: `unknown`. Exit
//! status: 0, 1 if a rule was broken, 2 on bad usage. `--list` names every race under every sound design.

use shootdown_check::configuration::{self, Configuration};
use shootdown_check::scenario;
use shootdown_check::{Bounds, Play, Scenario, Violation, at_random, explore};
use std::process::ExitCode;

/// Random runs of each race of three CPUs.
const RUNS: u64 = 200;

struct Outcome {
    verdict: &'static str,
    states: u64,
    runs: u64,
    broken: Option<Violation>,
}

fn explored(race: &Scenario, configuration: Configuration, most: u64) -> Outcome {
    let mut play = Play::new(configuration::under(race, configuration));
    if race.scripts.len() > 2 {
        let found = (0..RUNS).find_map(|seed| at_random(&mut play, seed).map(|found| (seed + 1, found)));
        return match found {
            Some((runs, found)) => Outcome {
                verdict: "caught",
                states: 0,
                runs,
                broken: Some(found.violation),
            },
            None => Outcome {
                verdict: "held",
                states: 0,
                runs: RUNS,
                broken: None,
            },
        };
    }
    let report = explore(&mut play, Bounds::states(most), &mut |_| true);
    Outcome {
        verdict: match (&report.found, report.complete) {
            (Some(_), _) => "caught",
            (None, true) => "held",
            (None, false) => "unknown",
        },
        states: report.states,
        runs: report.runs,
        broken: report.found.map(|found| found.violation),
    }
}

fn list() {
    for race in scenario::races() {
        for configuration in configuration::configurations().filter(|configuration| configuration.name != "none") {
            println!("{}/{}", race.name, configuration.name);
        }
    }
}

/// A race under a design, by their names.
fn named(name: &str) -> Option<(&'static Scenario, Configuration)> {
    let (race, design) = name.split_once('/')?;
    let race = scenario::races().find(|known| known.name == race)?;
    configuration::configurations()
        .find(|known| known.name == design)
        .map(|configuration| (race, configuration))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (most, names) = match arguments.as_slice() {
        [list_wanted] if list_wanted == "--list" => {
            list();
            return ExitCode::SUCCESS;
        }
        [most, names @ ..] => (most.parse(), names),
        [] => {
            eprintln!("usage: race STATES RACE/DESIGN... | race --list");
            return ExitCode::from(2);
        }
    };
    let Ok(most) = most else {
        eprintln!("race: {:?} is no number of states", arguments[0]);
        return ExitCode::from(2);
    };
    // A panic of the engine is a verdict, which is printed once.
    std::panic::set_hook(Box::new(|_| {}));
    for name in names {
        let Some((race, configuration)) = named(name) else {
            eprintln!("race: {name:?} is not RACE/DESIGN; see --list");
            return ExitCode::from(2);
        };
        let Outcome {
            verdict,
            states,
            runs,
            broken,
        } = explored(race, configuration, most);
        let why = broken.as_ref().map_or(String::new(), |broken| format!("\t{broken}"));
        println!("{verdict}\t{name}\t{states} states\t{runs} runs{why}");
        if broken.is_some() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
