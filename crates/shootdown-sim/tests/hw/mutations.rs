//! Tests of the tests: every machine or oracle with an injected defect must make named tests of this suite fail.
//!
//! The suite runs itself, with the mutation in an environment variable that the test bed reads. Each mutation names the
//! tests that must notice it. So a run costs milliseconds, and a test that no longer notices its mutation is reported
//! by name.

use shootdown_known_bugs::mistakes;
use shootdown_sim::hw::Defect;
use std::process::Command;
use std::sync::OnceLock;

const VARIABLE: &str = "SHOOTDOWN_HW_WRONG";

/// The mutation this process was started for.
pub fn requested() -> Option<Defect> {
    static REQUESTED: OnceLock<Option<Defect>> = OnceLock::new();
    *REQUESTED.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let found = Defect::ALL.iter().find(|defect| format!("{defect:?}") == name);
        Some(*found.unwrap_or_else(|| panic!("{VARIABLE}={name}: no such mutation")))
    })
}

/// The tests that notice a mutation: those that the manifest names.
fn noticed_by(defect: Defect) -> &'static [&'static str] {
    let listed = mistakes("hardware").find(|mistake| format!("{defect:?}") == mistake.name);
    listed
        .unwrap_or_else(|| panic!("{defect:?} is not in bugs.toml"))
        .caught_by
}

/// The results of some tests of this suite, by name: whether each passed.
fn results(defect: Option<Defect>, tests: &[&str]) -> Vec<(String, bool)> {
    let this = std::env::current_exe().expect("a test knows its own path");
    let mut command = Command::new(this);
    command.args(tests).args(["--exact", "--test-threads=1"]);
    // The same cases each time, so that noticing a defect does not depend on chance.
    command.env_remove(VARIABLE).env("PROPTEST_RNG_SEED", "1");
    if let Some(defect) = defect {
        command.env(VARIABLE, format!("{defect:?}"));
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
fn every_hardware_defect_is_noticed() {
    assert_eq!(
        mistakes("hardware").count(),
        Defect::ALL.len(),
        "bugs.toml lists others"
    );
    let mut survivors = Vec::new();
    for &defect in Defect::ALL {
        let tests = noticed_by(defect);
        assert!(!tests.is_empty(), "{defect:?}: no test is named");
        let seen = results(Some(defect), tests);
        assert_eq!(
            seen.len(),
            tests.len(),
            "{defect:?}: a named test does not exist: {tests:?}"
        );
        for (test, passed) in seen {
            println!(
                "{:24} {test}: {}",
                format!("{defect:?}"),
                if passed { "passed" } else { "caught" }
            );
            if passed {
                survivors.push(format!("{defect:?} under {test}"));
            }
        }
    }
    assert!(survivors.is_empty(), "not noticed:\n{}", survivors.join("\n"));
}

#[test]
fn defect_free_machine_passes_the_same_tests() {
    let mut tests: Vec<_> = Defect::ALL
        .iter()
        .flat_map(|&defect| noticed_by(defect))
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
