//! Random runs under every preset and every variant: sequential, and with interleaved actions of other CPUs. The work
//! of the sequential runs is counted.

use crate::meddling;
use crate::play::Play;
use crate::variants::variants;
use crate::work::{Did, Work, is_as_written, on_words};
use crate::world::{Broadcasts, engine};
use shootdown::{Design, Free, Reach, Tags};

/// Runs of each design; those with interleaving; and steps in each run.
const RUNS: u64 = 2;
const MEDDLED: u64 = 3;
const STEPS: u64 = 250;

/// Runs the designs of one part of [`PARTS`], several times each. Returns the work of each design.
pub fn play(part: usize, meddles: bool) -> Vec<(String, Work)> {
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
            for run in 0..if meddles { MEDDLED } else { RUNS } {
                println!("{name}{traits}, run {run}");
                let did = run_once(design, broadcasts, run, meddles);
                work.iter_mut().zip(did).for_each(|(sum, more)| *sum += more);
            }
            done.push((format!("{name}{traits}"), work));
        }
    }
    done
}

fn run_once(design: Design, broadcasts: Broadcasts, run: u64, meddles: bool) -> Work {
    meddling::begin(None, 0);
    let engine = engine(design, broadcasts);
    // With few spaces a CPU returns to those that it has run.
    let play = Play::new(engine, 2 + 4 * (run % 2), run);
    meddling::begin(meddles.then_some(play), run);
    on_words();
    // These designs change tags, and defer unmaps, only occasionally.
    let seldom = design.policy.tags != Tags::PerCpu || design.policy.free == Free::Deferred;
    let steps = if seldom { 4 * STEPS } else { STEPS };
    (0..steps).for_each(|_| play.step());
    meddling::begin(None, 0);
    let mut work = engine.kernel().work.get();
    [work[Did::Read as usize], work[Did::Write as usize]] = on_words();
    work
}

/// Number of tests that share the designs, so that each is short.
pub const PARTS: usize = 12;

macro_rules! nobody_uses_what_was_withdrawn {
    ($($name:ident: $part:literal, $meddled:ident)*) => {
        $(
            #[test]
            fn $name() {
                let done = play($part, false);
                done.iter().for_each(|(name, work)| is_as_written(name, work));
            }
            #[test]
            fn $meddled() {
                play($part, true);
            }
        )*
    };
}

nobody_uses_what_was_withdrawn! {
    nobody_uses_what_was_withdrawn_1: 0, nobody_does_while_others_meddle_1
    nobody_uses_what_was_withdrawn_2: 1, nobody_does_while_others_meddle_2
    nobody_uses_what_was_withdrawn_3: 2, nobody_does_while_others_meddle_3
    nobody_uses_what_was_withdrawn_4: 3, nobody_does_while_others_meddle_4
    nobody_uses_what_was_withdrawn_5: 4, nobody_does_while_others_meddle_5
    nobody_uses_what_was_withdrawn_6: 5, nobody_does_while_others_meddle_6
    nobody_uses_what_was_withdrawn_7: 6, nobody_does_while_others_meddle_7
    nobody_uses_what_was_withdrawn_8: 7, nobody_does_while_others_meddle_8
    nobody_uses_what_was_withdrawn_9: 8, nobody_does_while_others_meddle_9
    nobody_uses_what_was_withdrawn_10: 9, nobody_does_while_others_meddle_10
    nobody_uses_what_was_withdrawn_11: 10, nobody_does_while_others_meddle_11
    nobody_uses_what_was_withdrawn_12: 11, nobody_does_while_others_meddle_12
}
