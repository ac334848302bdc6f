//! Random runs under every preset and every variant: sequential, and with interleaved actions of other CPUs. The work
//! of the sequential runs is counted.

use crate::interleaving;
use crate::play::Play;
use crate::variants::variants;
use crate::work::{Did, Work, is_as_written, on_words};
use crate::world::{Broadcasts, engine};
use shootdown::{Design, Free, Reach, Tags};

/// Runs of each design; those with interleaving; and steps in each run.
const RUNS: u64 = 2;
const INTERLEAVED: u64 = 3;
const STEPS: u64 = 250;

/// Runs the designs of one part of [`PARTS`], several times each. Returns the work of each design.
pub fn play(part: usize, interleaves: bool) -> Vec<(String, Work)> {
    let mut done = Vec::new();
    for (name, design) in crate::designs().chain(variants()).skip(part).step_by(PARTS) {
        for broadcasts in Broadcasts::ALL.into_iter().filter(|all| all.fits(&design)) {
            if broadcasts != Broadcasts::None && design.policy.reach == Reach::Ipi {
                continue;
            }
            let traits = [
                (design.machine.split, ", split"),
                (design.machine.errata.repeat, ", twice"),
                (broadcasts == Broadcasts::Everywhere, ", broadcasts"),
                (broadcasts == Broadcasts::Aimed, ", aimed"),
            ];
            let traits: String = traits.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
            let mut work = Work::default();
            for run in 0..if interleaves { INTERLEAVED } else { RUNS } {
                println!("{name}{traits}, run {run}");
                let did = run_once(design, broadcasts, run, interleaves);
                work.iter_mut().zip(did).for_each(|(sum, more)| *sum += more);
            }
            done.push((format!("{name}{traits}"), work));
        }
    }
    done
}

fn run_once(design: Design, broadcasts: Broadcasts, run: u64, interleaves: bool) -> Work {
    interleaving::begin(None, 0);
    let engine = engine(design, broadcasts);
    // With few spaces a CPU returns to those that it has run.
    let play = Play::new(engine, 2 + 4 * (run % 2), run);
    interleaving::begin(interleaves.then_some(play), run);
    on_words();
    // These designs change tags, and defer unmaps, only occasionally.
    let seldom = design.policy.tags != Tags::PerCpu || design.policy.free == Free::Deferred;
    let steps = if seldom { 4 * STEPS } else { STEPS };
    (0..steps).for_each(|_| play.step());
    interleaving::begin(None, 0);
    let mut work = engine.kernel().work.get();
    [work[Did::Read as usize], work[Did::Write as usize]] = on_words();
    work
}

/// Number of tests that share the designs, so that each is short.
pub const PARTS: usize = 12;

macro_rules! no_stale_use {
    ($($name:ident: $part:literal, $interleaved:ident)*) => {
        $(
            #[test]
            fn $name() {
                let done = play($part, false);
                done.iter().for_each(|(name, work)| is_as_written(name, work));
            }
            #[test]
            fn $interleaved() {
                play($part, true);
            }
        )*
    };
}

no_stale_use! {
    no_stale_use_1: 0, no_stale_use_with_interleaved_cpus_1
    no_stale_use_2: 1, no_stale_use_with_interleaved_cpus_2
    no_stale_use_3: 2, no_stale_use_with_interleaved_cpus_3
    no_stale_use_4: 3, no_stale_use_with_interleaved_cpus_4
    no_stale_use_5: 4, no_stale_use_with_interleaved_cpus_5
    no_stale_use_6: 5, no_stale_use_with_interleaved_cpus_6
    no_stale_use_7: 6, no_stale_use_with_interleaved_cpus_7
    no_stale_use_8: 7, no_stale_use_with_interleaved_cpus_8
    no_stale_use_9: 8, no_stale_use_with_interleaved_cpus_9
    no_stale_use_10: 9, no_stale_use_with_interleaved_cpus_10
    no_stale_use_11: 10, no_stale_use_with_interleaved_cpus_11
    no_stale_use_12: 11, no_stale_use_with_interleaved_cpus_12
}
