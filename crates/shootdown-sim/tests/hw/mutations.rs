//! Tests of the tests: every wrong machine, and every wrong oracle, must make named tests of this suite fail.
//!
//! The suite runs itself, with the mutation in an environment variable that the test bed reads. Each mutation names the
//! tests that must notice it. So a run costs milliseconds, and a test that no longer notices its mutation is reported
//! by name.

use shootdown_known_bugs::mistakes;
use shootdown_sim::hw::Wrong;
use std::process::Command;
use std::sync::OnceLock;

const VARIABLE: &str = "SHOOTDOWN_HW_WRONG";

/// The mutation this process was started for.
pub fn asked_for() -> Option<Wrong> {
    static ASKED: OnceLock<Option<Wrong>> = OnceLock::new();
    *ASKED.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let found = Wrong::ALL.iter().find(|wrong| format!("{wrong:?}") == name);
        Some(*found.unwrap_or_else(|| panic!("{VARIABLE}={name}: no such mutation")))
    })
}

/// The tests that notice a mutation: those that the manifest names.
fn noticed_by(wrong: Wrong) -> &'static [&'static str] {
    let listed = mistakes("hardware").find(|mistake| format!("{wrong:?}") == mistake.name);
    listed
        .unwrap_or_else(|| panic!("{wrong:?} is not in bugs.toml"))
        .caught_by
}

/// The results of some tests of this suite, by name: whether each passed.
fn results(wrong: Option<Wrong>, tests: &[&str]) -> Vec<(String, bool)> {
    let this = std::env::current_exe().expect("a test knows its own path");
    let mut command = Command::new(this);
    command.args(tests).args(["--exact", "--test-threads=1"]);
    // The same cases each time, so that noticing a wrong machine does not depend on chance.
    command.env_remove(VARIABLE).env("PROPTEST_RNG_SEED", "1");
    if let Some(wrong) = wrong {
        command.env(VARIABLE, format!("{wrong:?}"));
    }
    let output = command.output().expect("the suite can run itself");
    let text = String::from_utf8_lossy(&output.stdout);
    let told = |line: &str| {
        let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
        Some((name.to_string(), result.trim() == "ok"))
    };
    text.lines().filter_map(told).collect()
}

#[test]
fn every_wrong_machine_is_noticed() {
    assert_eq!(mistakes("hardware").count(), Wrong::ALL.len(), "bugs.toml lists others");
    let mut survivors = Vec::new();
    for &wrong in Wrong::ALL {
        let tests = noticed_by(wrong);
        assert!(!tests.is_empty(), "{wrong:?}: nobody is named");
        let seen = results(Some(wrong), tests);
        assert_eq!(
            seen.len(),
            tests.len(),
            "{wrong:?}: a test named does not exist: {tests:?}"
        );
        for (test, passed) in seen {
            println!(
                "{:24} {test}: {}",
                format!("{wrong:?}"),
                if passed { "passed" } else { "caught" }
            );
            if passed {
                survivors.push(format!("{wrong:?} under {test}"));
            }
        }
    }
    assert!(survivors.is_empty(), "not noticed:\n{}", survivors.join("\n"));
}

#[test]
fn the_right_machine_passes_the_tests_that_notice_wrong_ones() {
    let mut tests: Vec<_> = Wrong::ALL
        .iter()
        .flat_map(|&wrong| noticed_by(wrong))
        .copied()
        .collect();
    tests.sort_unstable();
    tests.dedup();
    let seen = results(None, &tests);
    assert_eq!(seen.len(), tests.len());
    for (test, passed) in seen {
        assert!(passed, "{test} fails on the machine as it is");
    }
}
