//! `docs/src/verification/correctness.md` names tests, patches and mutants. Each must exist and do what the page says.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Rust source below a folder of the workspace, as one text.
fn sources(folder: &str) -> String {
    let mut text = String::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text += &fs::read_to_string(&path).expect("a text");
            }
        }
    }
    text
}

fn page() -> String {
    fs::read_to_string(root().join("docs/src/verification/correctness.md")).expect("the page")
}

/// Text between single backticks outside of blocks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Rows of the table of bugs: number, scenario, patch, other tools that find it.
fn bugs(page: &str) -> Vec<(u32, Option<&str>, Option<&str>, &str)> {
    page.lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, number, _, scenario, switch, others, _] = cells[..] else {
                return None;
            };
            Some((
                number.parse().ok()?,
                quoted(scenario).next(),
                quoted(switch).next(),
                others,
            ))
        })
        .collect()
}

#[test]
fn correctness_page_lists_every_bug() {
    let page = page();
    let mut numbers: Vec<u32> = bugs(&page).iter().map(|bug| bug.0).collect();
    numbers.dedup();
    assert_eq!(numbers, (1..=55).collect::<Vec<_>>());
    for (number, scenario, ..) in bugs(&page) {
        let explained = page.contains(&format!("\n- {number}: "));
        assert_eq!(
            scenario.is_none(),
            explained,
            "bug {number}: a scenario, or why there is none"
        );
    }
}

#[test]
fn named_scenarios_exist_and_use_their_bug() {
    let page = page();
    let (tests, faults) = (
        sources("crates/shootdown-sim/tests"),
        fs::read_to_string(root().join("crates/shootdown-known-bugs/bugs.toml")).expect("the manifest"),
    );
    for (number, scenario, switch, _) in bugs(&page) {
        if let Some(scenario) = scenario {
            assert!(
                tests.contains(&format!("fn {scenario}()")),
                "bug {number}: no test {scenario}"
            );
        }
        if let Some(switch) = switch {
            assert!(
                faults.contains(&format!("name = \"{switch}\"\n")),
                "bug {number}: no patch {switch}"
            );
            assert!(
                tests.contains(&format!("Bug::{switch}")),
                "bug {number}: {switch} is not used"
            );
        }
    }
}

#[test]
fn other_checkers_of_a_bug_name_it() {
    let page = page();
    let (check, loom) = (
        sources("crates/shootdown-check-patched/tests"),
        sources("crates/shootdown-loom/tests"),
    );
    let (threads, models) = (
        sources("crates/shootdown-host-patched/tests"),
        sources("docs/protocol/src"),
    );
    for (number, _, switch, others) in bugs(&page) {
        for other in others.split(',').map(str::trim).filter(|other| *other != "–") {
            let switch = switch.unwrap_or_default();
            let names =
                |text: &str| text.contains(&format!("Bug::{switch},")) || text.contains(&format!("({switch}, "));
            let found = match other.split_once(' ') {
                Some(("model", mutant)) => models.contains(&format!("    {}: C", mutant.trim_matches('`'))),
                Some(("fuzzing", target)) => root().join("fuzz/corpus").join(target.trim_matches('`')).is_dir(),
                _ => match other {
                    "check" => names(&check),
                    "loom" => names(&loom),
                    "threads" => names(&threads),
                    _ => false,
                },
            };
            assert!(found, "bug {number}: {other} does not name {switch}");
        }
    }
}

#[test]
fn correctness_page_claims_every_preset_except_none() {
    let page = page();
    let presets = fs::read_to_string(root().join("crates/shootdown/src/design/presets.rs")).expect("the presets");
    let list = presets.split("const PRESETS").nth(1).expect("a list of presets");
    let names = list.lines().filter_map(|line| {
        let name = line.trim().strip_prefix('"')?.strip_suffix("\",")?;
        (!name.contains(' ') && name != "none").then_some(name)
    });
    let names: Vec<&str> = names.collect();
    assert!(names.contains(&"ipi") && names.contains(&"adaptive"), "{names:?}");
    for name in names {
        let claimed = page.contains(&format!("`{name}`")) || name.starts_with("walk-") && page.contains("six modes");
        assert!(claimed, "{name} is not on the page");
    }
}

#[test]
fn every_test_named_on_the_page_exists() {
    let page = page();
    let all = sources("crates") + &sources("docs/protocol") + &sources("xtask");
    for name in quoted(&page.replace("```", "")) {
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        if name.contains('_') && name.chars().all(is_name) {
            assert!(all.contains(&format!("fn {name}()")), "no test {name}");
        }
        let camel = name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric);
        if camel && name != "TARGET" && name.chars().any(char::is_lowercase) {
            assert!(all.contains(name), "nothing is called {name}");
        }
        if let Some(rest) = name.strip_prefix("crates/") {
            assert!(root().join("crates").join(rest).exists(), "no {name}");
        }
    }
}
