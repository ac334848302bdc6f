//! Random runs, for races that are too large for exhaustive exploration.
//!
//! [`at_random`] draws each step from the possible ones. [`Priorities`] draws an order of priority instead. The actor
//! with the highest priority runs while it can. At a few random points the running actor drops to the lowest priority.
//! That is probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS 2010). A bug that
//! takes *d* ordered steps shows in a run of *k* steps of *n* actors with a probability of at least 1/(n k^(d-1)),
//! regardless of the rest. Actors are a CPU, its interrupt, and its store buffer, so late stores and late interrupts
//! are as likely as early ones.

use crate::machine::Step;
use crate::play::Play;
use crate::report::{Counterexample, Report, ending};
use crate::word::{MAX_CPUS, mix};

/// Assumed length of a run before there was one.
const USUAL: usize = 200;

/// One run in which each step is drawn from the possible ones, by `seed`. Returns what it broke.
pub fn at_random(play: &mut Play, seed: u64) -> Option<Counterexample> {
    let mut random = mix(seed, 1);
    run(play, |steps, _| {
        random = mix(random, 2);
        steps[(random % steps.len() as u64) as usize]
    })
    .1
}

/// Only an actor that spins for a lock takes this many steps in a row while the lock stays taken.
const SPINS: usize = 200;

/// Runs by priorities.
#[derive(Debug, Clone, Copy)]
pub struct Priorities {
    /// Changes of priority in a run: one less than the ordered steps that a bug takes.
    pub changes: u32,
    /// Length of the longest run so far, and of the last.
    longest: usize,
    last: usize,
}

impl Priorities {
    /// With this many changes of priority in a run.
    pub const fn new(changes: u32) -> Self {
        Priorities {
            changes,
            longest: USUAL,
            last: 0,
        }
    }

    /// One run, by `seed`. Returns what it broke.
    pub fn run(&mut self, play: &mut Play, seed: u64) -> Option<Counterexample> {
        let mut random = mix(seed, 3);
        let mut draw = |end: usize| {
            random = mix(random, 4);
            (random % end.max(1) as u64) as usize
        };
        // Highest first; those that have dropped come last.
        let mut order: Vec<usize> = (0..ACTORS).collect();
        for at in (1..ACTORS).rev() {
            order.swap(at, draw(at + 1));
        }
        let mut changes: Vec<usize> = (0..self.changes).map(|_| draw(self.longest)).collect();
        changes.sort_unstable();
        let (mut last, mut streak) = (ACTORS, 0);
        let (taken, found) = run(play, |steps, taken| {
            let highest = |order: &[usize]| {
                let able = |cpu: &&usize| steps.iter().any(|&step| actor(step) == **cpu);
                order.iter().find(able).copied().expect("some CPU can go on")
            };
            let fall = |order: &mut Vec<usize>, cpu: usize| {
                order.retain(|&other| other != cpu);
                order.push(cpu);
            };
            if streak > SPINS {
                fall(&mut order, last);
                streak = 0;
            }
            while changes.first().is_some_and(|&at| at <= taken) {
                changes.remove(0);
                let cpu = highest(&order);
                fall(&mut order, cpu);
            }
            let cpu = highest(&order);
            streak = if cpu == last { streak + 1 } else { 0 };
            last = cpu;
            let own: Vec<Step> = steps.iter().copied().filter(|&step| actor(step) == cpu).collect();
            own[draw(own.len())]
        });
        (self.longest, self.last) = (self.longest.max(taken), taken);
        found
    }
}

/// Changes of priority in the runs of [`sample`]: finds bugs that take four ordered steps.
const CHANGES: u32 = 3;

/// `runs` runs by priorities, or fewer if one breaks a rule. Calls `progress` occasionally with the number of runs;
/// `false` ends it. The report counts no states, and is never complete.
pub fn sample(play: &mut Play, runs: u64, progress: &mut dyn FnMut(u64) -> bool) -> Report {
    let mut priorities = Priorities::new(CHANGES);
    let mut report = Report {
        states: 0,
        runs: 0,
        depth: 0,
        complete: false,
        found: None,
    };
    while report.runs < runs && report.found.is_none() {
        report.found = priorities.run(play, report.runs);
        report.runs += 1;
        report.depth = report.depth.max(priorities.last);
        if report.runs.is_multiple_of(1 << 10) && !progress(report.runs) {
            break;
        }
    }
    report
}

/// CPUs, their interrupts, their store buffers.
const ACTORS: usize = 3 * MAX_CPUS;

fn actor(step: Step) -> usize {
    let kind = match step {
        Step::Run(_) | Step::Old(..) => 0,
        Step::Drain(..) => 1,
        Step::Interrupt(_) => 2,
    };
    3 * step.cpu() + kind
}

/// One run. `choose` picks each step from the possible ones and the number taken before. Returns the length of the run,
/// and what it broke.
fn run(play: &mut Play, mut choose: impl FnMut(&[Step], usize) -> Step) -> (usize, Option<Counterexample>) {
    play.restart(false);
    let mut taken = Vec::new();
    loop {
        let steps = play.steps();
        if let Some(violation) = ending(play, &steps, taken.len()) {
            let found = Counterexample {
                violation,
                steps: taken,
            };
            return (found.steps.len(), Some(found));
        }
        if steps.is_empty() {
            return (taken.len(), None);
        }
        let step = choose(&steps, taken.len());
        play.take(step);
        taken.push(step);
    }
}
