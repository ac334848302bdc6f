//! Exploration of every run of a scenario.
//!
//! Depth first, each state once: two runs that reach the same state continue alike. Where more than one step is
//! possible, a snapshot is kept and restored for each step but the first.

use crate::machine::{Line, Step};
use crate::play::Play;
use crate::report::{Counterexample, ENDLESS, Report, ending};
use crate::snapshot::Snapshot;
use crate::violation::Violation;
use crate::word::mix;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Random runs before an exploration, to learn which words are shared; under weak memory there is more to learn. What
/// they miss is learned on the way, at the cost of states that are visited twice: all races of Arm's memory take 8.8 s
/// with 100, 7.8 with 300, 7.5 with 1,000.
const RUNS_TO_LEARN: u64 = 100;
const WEAK_RUNS_TO_LEARN: u64 = 1_000;

/// How often a counterexample that cannot be replayed leads to more runs. No test has needed one; the bound affects
/// only an error message.
const ROUNDS_TO_LEARN: u32 = 4;

/// Bounds of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most states; beyond that the exploration is incomplete.
    pub states: u64,
    /// Most times that a runnable CPU is preempted by another; `None` for any number.
    pub preemptions: Option<u32>,
}

impl Bounds {
    /// Only a bound on states.
    pub const fn states(states: u64) -> Self {
        Bounds {
            states,
            preemptions: None,
        }
    }
}

/// State hashes are already mixed.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only whole numbers are hashed")
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A state on the way to the current one, and the steps still to be tried from it.
struct Fork {
    steps: Vec<Step>,
    /// Index of the step being tried.
    at: usize,
    /// Preemptions before it.
    preemptions: u32,
}

/// Explores every run of `play` within `bounds`, until a rule is broken. Calls `progress` occasionally with the number
/// of states; `false` ends the exploration.
pub fn explore(play: &mut Play, bounds: Bounds, progress: &mut dyn FnMut(u64) -> bool) -> Report {
    let mut report = Report {
        states: 0,
        runs: 0,
        depth: 0,
        complete: true,
        found: None,
    };
    // Learning it later costs a restart each time.
    report.runs += learn(play);
    loop {
        let mut seen: HashSet<u64, BuildHasherDefault<AsIs>> = HashSet::default();
        let again = search(play, bounds, progress, &mut report, &mut seen);
        report.states = seen.len() as u64;
        if !again {
            return report;
        }
    }
}

/// The first few runs show which CPUs share which words. Returns the number of runs.
fn learn(play: &mut Play) -> u64 {
    let runs = match play.memory().is_weak() {
        true => WEAK_RUNS_TO_LEARN,
        false => RUNS_TO_LEARN,
    };
    for seed in 0..runs {
        let _ = crate::random::at_random(play, seed);
    }
    runs
}

/// Returns true if the search must restart, because a word assumed to be private is shared.
fn search(
    play: &mut Play,
    bounds: Bounds,
    progress: &mut dyn FnMut(u64) -> bool,
    report: &mut Report,
    seen: &mut HashSet<u64, BuildHasherDefault<AsIs>>,
) -> bool {
    let mut path: Vec<Fork> = Vec::new();
    // By the length of the path at the fork.
    let mut snapshots: Vec<Snapshot> = Vec::new();
    loop {
        report.runs += 1;
        match path.last() {
            None => play.restart(false),
            Some(fork) => {
                play.go_back(&snapshots[path.len() - 1]);
                play.take(fork.steps[fork.at]);
            }
        }
        // Forward, taking the first step of each new state.
        loop {
            if play.has_learnt() {
                return true;
            }
            let steps = play.steps();
            if let Some(violation) = ending(play, &steps, path.len()) {
                let steps = path.iter().map(|fork| fork.steps[fork.at]).collect();
                report.found = Some(Counterexample { violation, steps });
                return false;
            }
            let (last, preemptions) = path.last().map_or((None, 0), |fork| {
                let step = fork.steps[fork.at];
                (Some(step), fork.preemptions + preempts(&path, &fork.steps, step))
            });
            let key = match bounds.preemptions {
                None => play.hash(),
                // The possible continuations depend on which CPU runs, and on how many preemptions are left.
                Some(_) => mix(
                    play.hash(),
                    last.map_or(0, |step| step.cpu() as u64) << 8 | u64::from(preemptions),
                ),
            };
            if !seen.insert(key) || steps.is_empty() {
                break;
            }
            report.depth = report.depth.max(path.len());
            if seen.len() as u64 >= bounds.states {
                report.complete = false;
                return false;
            }
            if seen.len().is_multiple_of(1 << 14) && !progress(seen.len() as u64) {
                report.complete = false;
                return false;
            }
            let mut steps = steps;
            if let Some(last) = last {
                // The CPU that ran last comes first.
                steps.sort_by_key(|step| step.cpu() != last.cpu());
            }
            if snapshots.len() == path.len() {
                snapshots.push(play.snapshot());
            }
            if steps.len() > 1 {
                play.keep(&mut snapshots[path.len()]);
            }
            path.push(Fork {
                steps,
                at: 0,
                preemptions,
            });
            if !settle(&mut path, bounds) {
                break;
            }
            let fork = path.last().expect("pushed above");
            play.take(fork.steps[fork.at]);
        }
        // Back to the last state with untried steps.
        loop {
            let Some(fork) = path.last_mut() else { return false };
            fork.at += 1;
            if settle(&mut path, bounds) {
                break;
            }
        }
    }
}

/// Advances the last fork to a step within the bound on preemptions. If there is none, drops the fork and returns
/// false.
fn settle(path: &mut Vec<Fork>, bounds: Bounds) -> bool {
    loop {
        let Some(fork) = path.last() else { return false };
        let Some(&step) = fork.steps.get(fork.at) else {
            path.pop();
            return false;
        };
        let most = bounds.preemptions.unwrap_or(u32::MAX);
        if fork.preemptions + preempts(path, &fork.steps, step) <= most {
            return true;
        }
        path.last_mut().expect("looked at above").at += 1;
    }
}

/// 1 if `step`, taken from the last state of `path`, preempts the previous CPU.
fn preempts(path: &[Fork], steps: &[Step], step: Step) -> u32 {
    let before = match path {
        [.., fork, _] => fork.steps[fork.at].cpu(),
        _ => return 0,
    };
    let could = steps.contains(&Step::Run(before as u8));
    u32::from(matches!(step, Step::Run(_) | Step::Old(..)) && step.cpu() != before && could)
}

/// Takes `steps` from the start. Returns the run as text, and the rule that is broken at the end.
///
/// # Errors
/// The number of the first step that is impossible, from 0.
pub fn replay(play: &mut Play, steps: &[Step]) -> Result<(Vec<Line>, Option<Violation>), usize> {
    // The sharing of words must be known as in the exploration, and must not change on the way.
    learn(play);
    let mut taken = retake(play, steps);
    for _ in 0..ROUNDS_TO_LEARN {
        let Err(number) = taken else { break };
        // Perhaps the exploration had learned more. Continuing from there learns it.
        learn_after(play, &steps[..number]);
        taken = retake(play, steps);
    }
    taken
}

fn retake(play: &mut Play, steps: &[Step]) -> Result<(Vec<Line>, Option<Violation>), usize> {
    for pass in [false, true] {
        play.restart(pass);
        for (number, &step) in steps.iter().enumerate() {
            if !play.steps().contains(&step) {
                return Err(number);
            }
            play.take(step);
        }
    }
    let possible = play.steps();
    let violation = ending(play, &possible, steps.len());
    Ok((play.take_story(), violation))
}

/// Continues from the end of `steps` at random.
fn learn_after(play: &mut Play, steps: &[Step]) {
    for seed in 0..RUNS_TO_LEARN {
        play.restart(false);
        let mut random = seed;
        for number in 0..ENDLESS {
            let possible = play.steps();
            let Some(first) = possible.first() else { break };
            random = mix(random, 5);
            let at_random = possible[(random % possible.len() as u64) as usize];
            let as_before = steps.get(number).filter(|&step| possible.contains(step));
            play.take(*as_before.unwrap_or(if number < steps.len() { first } else { &at_random }));
            if play.is_broken() {
                break;
            }
        }
    }
}
