//! How a test ended, and what it said of its parts.

use std::collections::BTreeMap;

use crate::linux_baseline::report::Ended;

/// The exit status of a test that cannot run here.
const SKIPPED: i32 = 4;
/// That of a test that was killed: by `timeout`.
const KILLED: i32 = 128 + 9;

/// How a test, or a part of it, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Skipped,
    Failed,
    /// It was killed at its time limit.
    TooLong,
}

/// A test.
#[derive(Debug)]
pub struct Outcome {
    /// With its arguments.
    pub test: &'static str,
    pub verdict: Verdict,
    /// Its parts, by name.
    pub parts: BTreeMap<String, Verdict>,
    /// What it said last, or of its first part that was skipped or failed.
    pub why: String,
}

impl Outcome {
    /// By its exit status and its output, which is either in the Test Anything Protocol or has `[OK]` in its lines.
    pub fn of(test: &'static str, ended: &Ended) -> Outcome {
        let verdict = match ended.status {
            0 => Verdict::Passed,
            SKIPPED => Verdict::Skipped,
            KILLED => Verdict::TooLong,
            _ => Verdict::Failed,
        };
        let lines = || {
            ended
                .output
                .lines()
                .map(|line| line.trim_start_matches(['#', ' ']).trim())
        };
        let mut parts = BTreeMap::new();
        for line in lines() {
            if let Some((name, verdict)) = part(line) {
                // A name may come again; the worst counts.
                let known = parts.entry(name.to_string()).or_insert(verdict);
                if verdict == Verdict::Failed {
                    *known = verdict;
                }
            }
        }
        let tells = |line: &&str| match verdict {
            Verdict::Skipped => line.to_lowercase().contains("skip"),
            _ => part(line).is_some_and(|(_, verdict)| verdict == Verdict::Failed),
        };
        let why = match verdict {
            Verdict::Passed => "",
            _ => lines()
                .find(tells)
                .or(lines().rfind(|line| !line.is_empty()))
                .unwrap_or_default(),
        };
        Outcome {
            test,
            verdict,
            parts,
            why: why.to_string(),
        }
    }

    /// The number of parts with that verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.parts.values().filter(|found| **found == verdict).count()
    }
}

/// The name of a part and how it ended, if the line reports one.
fn part(line: &str) -> Option<(&str, Verdict)> {
    let (verdict, rest) = if let Some(rest) = line.strip_prefix("ok ") {
        (Verdict::Passed, rest)
    } else if let Some(rest) = line.strip_prefix("not ok ") {
        (Verdict::Failed, rest)
    } else if let Some(rest) = line.strip_prefix("[OK]") {
        (Verdict::Passed, rest)
    } else {
        (Verdict::Failed, line.strip_prefix("[FAIL]")?)
    };
    let (rest, skipped) = match rest.split_once("# SKIP") {
        Some((name, why)) => (
            if name.trim_start_matches(|c: char| c.is_ascii_digit()).trim().is_empty() {
                why
            } else {
                name
            },
            true,
        ),
        None => (rest, false),
    };
    // The number of a part depends on those before it.
    let name = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim();
    Some((name, if skipped { Verdict::Skipped } else { verdict }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: i32, said: &str) -> Outcome {
        Outcome::of(
            "mm/cow",
            &Ended {
                status,
                output: said.into(),
            },
        )
    }

    #[test]
    fn parts_are_counted_whatever_their_form_and_the_first_failure_is_the_reason() {
        let found = outcome(
            1,
            "TAP version 13\nok 1 a\nnot ok 2 b\n# ok 3 c # SKIP no device\n[OK]\td\n[FAIL]\te",
        );
        let counts = [Verdict::Passed, Verdict::Skipped, Verdict::Failed].map(|verdict| found.count(verdict));
        assert_eq!(
            (found.verdict, counts, found.why.as_str()),
            (Verdict::Failed, [2, 1, 2], "not ok 2 b")
        );
        assert_eq!(found.parts["d"], Verdict::Passed);
    }

    #[test]
    fn a_test_that_is_skipped_or_killed_has_not_failed_and_says_why() {
        let skipped = outcome(4, "1..0 # SKIP no device\nbye");
        assert_eq!(
            (skipped.verdict, skipped.why.as_str()),
            (Verdict::Skipped, "1..0 # SKIP no device")
        );
        assert_eq!(outcome(137, "ok 1 a").verdict, Verdict::TooLong);
        assert_eq!(outcome(0, "").verdict, Verdict::Passed);
    }

    #[test]
    fn part_name_reported_again_keeps_its_failure() {
        assert_eq!(outcome(0, "ok 1 a\nnot ok 2 a\nok 3 a").parts["a"], Verdict::Failed);
    }
}
