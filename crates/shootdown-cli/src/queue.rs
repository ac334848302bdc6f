//! Runs cells in parallel: a work queue over host threads, results in the order of the specifications.
//!
//! One run is single-threaded on one host thread, so the longest runs (most simulated threads) start first and short ones fill up
//! the end. Results do not depend on the number of host threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shootdown_sim::run::{RunResult, RunSpec};

use crate::failure::Failure;
use crate::progress::Progress;

/// Something that can carry out a run: the simulator, or a stand-in in tests.
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

/// Runs every specification on up to `jobs` host threads.
///
/// # Errors
/// [`Failure::Interrupted`] once `stop` is set; otherwise the first failed run, in the order of `specs`. Either way the runs still
/// going are abandoned.
pub fn run_all(
    runner: &dyn Runner,
    specs: &[RunSpec],
    jobs: usize,
    stop: &AtomicBool,
) -> Result<Vec<RunResult>, Failure> {
    let mut order: Vec<usize> = (0..specs.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(specs[index].threads));
    let progress = Progress::new(specs);
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results: Mutex<Vec<Option<RunResult>>> = Mutex::new(vec![None; specs.len()]);
    let failure: Mutex<Option<(usize, String)>> = Mutex::new(None);

    // Relaxed throughout: each atomic stands for itself, and results travel through the mutexes.
    let abandoned = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
    let work = || {
        while !abandoned() {
            let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return;
            };
            let outcome = runner.run(&specs[index], &mut |fraction| {
                progress.update(index, fraction);
                !abandoned()
            });
            match outcome {
                Ok(result) => {
                    progress.finish(index);
                    results.lock().expect("no run panics while it holds the results")[index] = Some(result);
                }
                Err(_) if abandoned() => return,
                Err(line) => {
                    failed.store(true, Ordering::Relaxed);
                    let mut first = failure.lock().expect("no run panics while it holds the failure");
                    if first.as_ref().is_none_or(|(earlier, _)| index < *earlier) {
                        *first = Some((index, line));
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, specs.len().max(1)) {
            scope.spawn(work);
        }
    });
    progress.clear();

    if stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    if let Some((index, line)) = failure.into_inner().expect("all threads have ended") {
        let spec = &specs[index];
        return Err(Failure::Input(format!(
            "{} under {} at {} threads: {line}",
            spec.workload, spec.design, spec.threads
        )));
    }
    let results = results.into_inner().expect("all threads have ended");
    Ok(results
        .into_iter()
        .map(|result| result.expect("every cell ran"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, Fake};

    #[test]
    fn results_come_in_the_order_of_the_specifications_whatever_the_jobs() {
        let specs = fake::plan(&["ipi", "broadcast"], &[1, 4, 16, 2]).specs();
        let one = run_all(&Fake::default(), &specs, 1, &AtomicBool::new(false)).unwrap();
        let many = run_all(&Fake::default(), &specs, 7, &AtomicBool::new(false)).unwrap();
        assert_eq!(one, many);
        for (spec, result) in specs.iter().zip(&one) {
            assert_eq!(result.ops_per_s, fake::result(spec).ops_per_s);
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
    fn an_interrupt_abandons_the_runs() {
        let specs = fake::plan(&["ipi"], &[1, 4]).specs();
        let stop = AtomicBool::new(false);
        let fake = Fake {
            on_progress: Some(Box::new(|| stop.store(true, Ordering::Relaxed))),
            ..Fake::default()
        };
        assert_eq!(run_all(&fake, &specs, 2, &stop), Err(Failure::Interrupted));
        assert!(
            fake.finished.lock().unwrap().is_empty(),
            "a run went on after the interrupt"
        );
    }

    #[test]
    fn a_failed_run_is_named_and_ends_the_others() {
        let specs = fake::plan(&["ipi", "broadcast"], &[1, 4]).specs();
        let fake = Fake {
            fail_at: Some(4),
            ..Fake::default()
        };
        let failure = run_all(&fake, &specs, 1, &AtomicBool::new(false)).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "error: tlb_flush2 under ipi at 4 threads: out of frames"
        );
    }

    #[test]
    fn nothing_to_run_is_fine() {
        assert_eq!(
            run_all(&Fake::default(), &[], 3, &AtomicBool::new(false)),
            Ok(Vec::new())
        );
    }
}
