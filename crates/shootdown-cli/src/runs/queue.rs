//! Runs cells in parallel: a work queue over host threads, results in the order of the specifications.
//!
//! One run is single-threaded on one host thread, so the longest runs (most simulated threads) start first and short
//! ones fill up the end. Results do not depend on the number of host threads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shootdown_sim::run::{RunResult, RunSpec};

use crate::failure::Failure;
use crate::print::progress::Progress;

/// Runs specifications: the simulator, or a stand-in in tests.
pub trait Runner: Sync {
    /// Runs `spec`; `progress` takes the fraction done and returns `false` to abandon the run.
    ///
    /// # Errors
    /// One line, also when abandoned.
    fn run(&self, spec: &RunSpec, progress: &mut dyn FnMut(f64) -> bool) -> Result<RunResult, String>;
}

/// The simulated machine.
#[derive(Debug, Clone, Copy)]
pub struct Simulator;

impl Runner for Simulator {
    fn run(&self, spec: &RunSpec, progress: &mut dyn FnMut(f64) -> bool) -> Result<RunResult, String> {
        shootdown_sim::run::run(spec, progress)
    }
}

/// How a run ended: a result, or why there is none (usually a simulated kernel that hangs).
pub type Outcome = Result<RunResult, String>;

/// The outcomes of runs, some of which Ctrl-C may have ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// In the order of the specifications; none of a run that did not end.
    pub outcomes: Vec<Option<Outcome>>,
}

impl Ran {
    /// Number of runs that did not end.
    pub fn missing(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.is_none()).count()
    }

    /// The outcomes, with a failure in place of each run that did not end.
    pub fn filled(self) -> Vec<Outcome> {
        let unended = || Err("did not end".to_string());
        let outcomes = self.outcomes.into_iter();
        outcomes.map(|outcome| outcome.unwrap_or_else(unended)).collect()
    }
}

/// Runs every specification on up to `jobs` host threads. A run that fails, or panics, does not affect the others. Once
/// `stop` is set the runs still going are abandoned.
///
/// # Errors
/// [`Failure::Interrupted`] if no run has ended.
pub fn run_all(runner: &dyn Runner, specs: &[RunSpec], jobs: usize, stop: &AtomicBool) -> Result<Ran, Failure> {
    let threads: Vec<usize> = specs.iter().map(|spec| spec.threads).collect();
    let outcomes: Vec<OnceLock<Outcome>> = specs.iter().map(|_| OnceLock::new()).collect();
    let spec = |index: usize| Ok(specs[index].clone());
    let done = |index: usize, outcome| {
        outcomes[index].get_or_init(|| outcome);
        Ok(())
    };
    let run = run_each(runner, &threads, &spec, jobs, stop, &done);
    let ran = Ran {
        outcomes: outcomes.into_iter().map(OnceLock::into_inner).collect(),
    };
    match run {
        Err(Failure::Interrupted) if ran.missing() < specs.len() => Ok(ran),
        run => run.map(|()| ran),
    }
}

/// Runs as many cells as there are `threads` (simulated threads of each) on up to `jobs` host threads. `spec` makes the
/// specification of a cell when its turn comes; `done` takes each outcome, on the host thread that ran it, in the order
/// in which runs end, and never that of an abandoned run.
///
/// # Errors
/// The first error of `done`, which ends all runs; [`Failure::Interrupted`] once `stop` is set.
pub fn run_each(
    runner: &dyn Runner,
    threads: &[usize],
    spec: &(dyn Fn(usize) -> Result<RunSpec, String> + Sync),
    jobs: usize,
    stop: &AtomicBool,
    done: &(dyn Fn(usize, Outcome) -> Result<(), Failure> + Sync),
) -> Result<(), Failure> {
    let mut order: Vec<usize> = (0..threads.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(threads[index]));
    // Runs with more threads take longer.
    let progress = Progress::new("runs", threads.iter().map(|&threads| threads as f64).collect());
    let next = AtomicUsize::new(0);
    let failure: OnceLock<Failure> = OnceLock::new();

    // Relaxed throughout: the atomics are independent, and outcomes travel through locks.
    let stopped = || stop.load(Ordering::Relaxed) || failure.get().is_some();
    let work = || {
        while !stopped() {
            let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return;
            };
            let mut abandoned = false;
            let mut on_progress = |fraction| {
                progress.update(index, fraction);
                abandoned |= stopped();
                !abandoned
            };
            // A run owns all state that it changes, so no half-changed state is seen after a panic.
            let run = AssertUnwindSafe(|| runner.run(&spec(index)?, &mut on_progress));
            let outcome = catch_unwind(run).unwrap_or_else(|panic| Err(format!("panicked: {}", message(&*panic))));
            if abandoned {
                return;
            }
            progress.finish(index);
            if let Err(error) = done(index, outcome) {
                failure.get_or_init(|| error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, threads.len().max(1)) {
            scope.spawn(work);
        }
    });
    drop(progress);
    match failure.into_inner() {
        Some(failure) => Err(failure),
        None if stop.load(Ordering::Relaxed) => Err(Failure::Interrupted),
        None => Ok(()),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::fake::{self, Fake};

    #[test]
    fn results_keep_the_order_of_their_specifications() {
        let specs = fake::plan(&["ipi", "broadcast"], &[1, 4, 16, 2]).specs();
        let one = run_all(&Fake::default(), &specs, 1, &AtomicBool::new(false)).unwrap();
        let many = run_all(&Fake::default(), &specs, 7, &AtomicBool::new(false)).unwrap();
        assert_eq!(one, many);
        for (spec, result) in specs.iter().zip(&one.outcomes) {
            assert_eq!(result, &Some(Ok(fake::result(spec))));
        }
    }

    #[test]
    fn the_longest_runs_start_first() {
        let specs = fake::plan(&["ipi"], &[1, 16, 4]).specs();
        let fake = Fake::default();
        run_all(&fake, &specs, 1, &AtomicBool::new(false)).unwrap();
        assert_eq!(*fake.started.lock().unwrap(), [16, 4, 1]);
    }

    #[test]
    fn interrupt_abandons_runs_and_keeps_ended_ones() {
        let specs = fake::plan(&["ipi"], &[1, 4, 16]).specs();
        let stop = AtomicBool::new(false);
        let (stop, started) = (&stop, &AtomicUsize::new(0));
        let fake = |last: usize| Fake {
            on_progress: Some(Box::new(move || {
                stop.store(started.fetch_add(1, Ordering::Relaxed) >= last, Ordering::Relaxed);
            })),
            ..Fake::default()
        };
        let none = fake(0);
        assert_eq!(run_all(&none, &specs, 2, stop), Err(Failure::Interrupted));
        assert!(
            none.finished.lock().unwrap().is_empty(),
            "a run went on after the interrupt"
        );
        drop(none);
        stop.store(false, Ordering::Relaxed);
        started.store(0, Ordering::Relaxed);
        let ran = run_all(&fake(1), &specs, 1, stop).unwrap();
        assert_eq!(ran.outcomes, [None, None, Some(Ok(fake::result(&specs[2])))]);
        assert_eq!(ran.missing(), 2);
    }

    #[test]
    fn failed_or_panicked_run_keeps_the_others() {
        let specs = fake::plan(&["ipi", "broadcast"], &[1, 4, 16]).specs();
        let fake = Fake {
            fail_at: Some(4),
            panic_at: Some(16),
            ..Fake::default()
        };
        let outcomes = run_all(&fake, &specs, 2, &AtomicBool::new(false)).unwrap().filled();
        for (spec, outcome) in specs.iter().zip(outcomes) {
            let expected = match spec.threads {
                4 => Err("out of frames".to_string()),
                16 => Err("panicked: on purpose".to_string()),
                _ => Ok(fake::result(spec)),
            };
            assert_eq!(outcome, expected);
        }
    }

    #[test]
    fn empty_plan_runs_nothing() {
        assert_eq!(
            run_all(&Fake::default(), &[], 3, &AtomicBool::new(false)),
            Ok(Ran { outcomes: Vec::new() })
        );
    }
}
