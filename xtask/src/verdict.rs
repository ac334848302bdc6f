//! The result: a table of steps and one last line that a program can read.

use std::fmt;

use super::times::Times;

/// The result of one step.
pub struct Outcome {
    /// The step.
    pub name: &'static str,
    /// Its duration.
    pub times: Times,
    /// Why it failed and the command that runs it again; `None` when it passed.
    pub failure: Option<(String, String)>,
}

/// The results of all steps. Shown as a table, the failures with the command to rerun, and finally `N passed, N
/// failed`.
#[derive(Default)]
pub struct Verdict {
    outcomes: Vec<Outcome>,
}

impl Verdict {
    /// Records a step.
    pub fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// How many steps failed.
    pub fn failed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.failure.is_some()).count()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<8}  {:<7}  {:>7}  {:>7}", "step", "verdict", "seconds", "CPU s")?;
        let mut sum = [0.0; 2];
        for Outcome { name, times, failure } in &self.outcomes {
            let verdict = if failure.is_some() { "FAILED" } else { "passed" };
            writeln!(
                f,
                "{name:<8}  {verdict:<7}  {:>7.1}  {:>7.1}",
                times.seconds, times.cpu_seconds
            )?;
            sum[0] += times.seconds;
            sum[1] += times.cpu_seconds;
        }
        writeln!(f, "{:<8}  {:<7}  {:>7.1}  {:>7.1}", "all", "", sum[0], sum[1])?;
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
        let times = |seconds| Times {
            seconds,
            cpu_seconds: 2.0 * seconds,
        };
        let mut verdict = Verdict::default();
        verdict.add(Outcome {
            name: "format",
            times: times(1.25),
            failure: None,
        });
        let why = ("exit status: 101".to_string(), "cargo test".to_string());
        verdict.add(Outcome {
            name: "tests",
            times: times(100.0),
            failure: Some(why),
        });
        let shown = verdict.to_string();
        assert_eq!(shown.lines().next_back(), Some("1 passed, 1 failed"));
        assert!(
            shown.contains("\ntests failed: exit status: 101\n    rerun: cargo test\n"),
            "{shown}"
        );
        assert!(shown.contains("\nall                  101.2    202.5\n"), "{shown}");
        assert!(shown.contains("\ntests     FAILED     100.0    200.0\n"), "{shown}");
    }
}
