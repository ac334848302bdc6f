//! Independent cases, several at a time, each with a line for its result.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A case with a name for reports, and a command line to repeat it.
pub trait Case: Sync {
    /// Name in reports.
    fn name(&self) -> &str;
    /// The kernel's command line.
    fn command_line(&self) -> &str;
}

/// Runs all, on as many host threads as there are processors, but at most four: each runs an emulator. `run` also gets
/// the number of a case. Returns a line for each that failed.
///
/// # Errors
/// When `run` panicked.
pub fn run<C: Case>(
    cases: &[C],
    run: impl Fn(usize, &C) -> Result<String, String> + Sync,
) -> Result<Vec<String>, String> {
    let begun = Instant::now();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(number) else { break };
            match run(number, case) {
                Ok(note) => println!("  {:<46} {note}", case.name()),
                Err(why) => {
                    println!("  {:<46} FAILED: {why}", case.name());
                    let line = format!("{}: {why} ({})", case.name(), case.command_line());
                    failures.lock().expect("no panics").push(line);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let others = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        (0..others).for_each(|_| drop(scope.spawn(work)));
    });
    println!("{} cases in {:.0} s", cases.len(), begun.elapsed().as_secs_f64());
    failures.into_inner().map_err(|_| "a thread panicked".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Case for &str {
        fn name(&self) -> &str {
            self
        }
        fn command_line(&self) -> &str {
            "words"
        }
    }

    #[test]
    fn each_case_runs_once_and_failures_are_named() {
        let runs = Mutex::new(Vec::new());
        let failures = run(&["a", "b", "c"], |number, case| {
            runs.lock().unwrap().push(number);
            if *case == "b" {
                Err("why".into())
            } else {
                Ok("well".into())
            }
        });
        assert_eq!(failures, Ok(vec!["b: why (words)".to_string()]));
        let mut runs = runs.into_inner().unwrap();
        runs.sort_unstable();
        assert_eq!(runs, [0, 1, 2]);
    }
}
