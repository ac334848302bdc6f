//! CPUs that stay in the set of a space that they have left, until a request finds that they are not running it.

use super::scene::*;
use shootdown::{Departure, Policy};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;

const TRIM: Policy = Policy {
    departure: Departure::WhenAsked { trim_ns: 1 },
    ..IPI
};

/// A CPU must check whether it has the space loaded before it leaves the set on request: later requests would miss it.
#[test]
fn cpu_that_runs_the_space_stays_in_its_set() {
    let scene = Scene::new(2, TRIM);
    contract(&scene, Bug::DepartsWithoutLooking, Symptom::Breaks(Rule::C1), |stage| {
        let a = stage.process(1);
        let (b, other) = (a.clone(), stage.process(2));
        stage.cpu(0, move |system| {
            system.load(&a);
            rounds(|start| {
                for moment in [4_000, 16_000] {
                    write(system, &a, 1);
                    until(start + moment);
                    dawdle(1200);
                    system.drop_pages(&a, P, 1);
                }
            });
        });
        stage.cpu(1, move |system| {
            rounds(|start| {
                // It loads and unloads the space, so that requests find it present, gone, and present again.
                system.load(&other);
                until(start + 2_000);
                dawdle(4_000);
                system.load(&b);
                for moment in [10_000, 14_000, 15_000, 24_000] {
                    until(start + moment);
                    look(system, P);
                }
            });
        });
    });
}
