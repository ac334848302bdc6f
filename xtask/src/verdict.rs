//! The result: a table of steps and one last line that a program can read.

use std::fmt;

/// The result of one step.
pub struct Outcome {
    /// The step.
    pub name: &'static str,
    /// Elapsed time.
    pub seconds: f64,
    /// Why it failed and the command that runs it again; `None` when it passed.
    pub failure: Option<(String, String)>,
}

/// The results of all steps, in the order in which they ended. Shown as a table, the failures with the command to
/// rerun, and finally `N passed, N failed`.
#[derive(Default)]
pub struct Verdict {
    outcomes: Vec<Outcome>,
    seconds: f64,
    cpu_seconds: f64,
}

impl Verdict {
    /// Records a step.
    pub fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// Records the elapsed time and the CPU time of all steps.
    pub fn took(&mut self, seconds: f64, cpu_seconds: f64) {
        (self.seconds, self.cpu_seconds) = (seconds, cpu_seconds);
    }

    /// How many steps failed.
    pub fn failed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.failure.is_some()).count()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<8}  {:<7}  {:>7}", "step", "verdict", "seconds")?;
        for Outcome { name, seconds, failure } in &self.outcomes {
            let verdict = if failure.is_some() { "FAILED" } else { "passed" };
            writeln!(f, "{name:<8}  {verdict:<7}  {seconds:>7.1}")?;
        }
        writeln!(
            f,
            "{:<8}  {:<7}  {:>7.1}  with {:.1} of CPU time",
            "all", "", self.seconds, self.cpu_seconds
        )?;
        for Outcome { name, failure, .. } in &self.outcomes {
            if let Some((why, rerun)) = failure {
                writeln!(f, "\n{name} failed: {why}\n    rerun: {rerun}")?;
            }
        }
        writeln!(
            f,
            "\n{} passed, {} failed",
            self.outcomes.len() - self.failed(),
            self.failed()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_counts_steps_and_names_the_failed_command() {
        let mut verdict = Verdict::default();
        verdict.add(Outcome {
            name: "format",
            seconds: 1.25,
            failure: None,
        });
        let why = ("exit status: 101".to_string(), "cargo test".to_string());
        verdict.add(Outcome {
            name: "tests",
            seconds: 100.0,
            failure: Some(why),
        });
        verdict.took(100.5, 202.5);
        let shown = verdict.to_string();
        assert_eq!(shown.lines().next_back(), Some("1 passed, 1 failed"));
        assert!(
            shown.contains("\ntests failed: exit status: 101\n    rerun: cargo test\n"),
            "{shown}"
        );
        assert!(
            shown.contains("\nall                  100.5  with 202.5 of CPU time\n"),
            "{shown}"
        );
        assert!(shown.contains("\ntests     FAILED     100.0\n"), "{shown}");
    }
}
