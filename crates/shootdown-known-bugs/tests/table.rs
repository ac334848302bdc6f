//! `docs/src/verification/known-bugs.md` is made of the manifest and of the tests that name each bug.
//! `WRITE_TABLE=1 cargo test -p shootdown-known-bugs` writes it.

use shootdown_known_bugs::ALL;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const CATCHERS: [(&str, &str); 4] = [
    ("simulator", "shootdown-sim/tests/regressions"),
    ("exploration", "shootdown-check-patched/tests"),
    ("loom", "shootdown-loom/tests"),
    ("threads", "shootdown-host-patched/tests"),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        text += &match path.is_dir() {
            true => sources(&path),
            false => fs::read_to_string(&path).expect("a text"),
        };
    }
    text
}

/// Whether the source names the bug, as `Bug::Name` or as `(Name, `.
fn names(source: &str, name: &str) -> bool {
    let whole = format!("Bug::{name}");
    source
        .match_indices(&whole)
        .any(|(at, _)| !source[at + whole.len()..].starts_with(|next: char| next.is_alphanumeric()))
        || source.contains(&format!("({name}, "))
}

fn patched_places(name: &str) -> String {
    let text = fs::read_to_string(crates().join("shootdown-known-bugs/bugs.toml")).expect("the manifest");
    let bug = text
        .split("[[bug]]")
        .find(|bug| bug.contains(&format!("name = \"{name}\"\n")))
        .expect("listed");
    let mut places: Vec<String> = Vec::new();
    for patch in bug.split("[[bug.patch]]").skip(1) {
        let get = |key: &str| patch.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")));
        let Some(function) = get("function") else { continue };
        let file = get("file").expect("a file").trim_end_matches('"');
        let place = format!("`{file}` {}", function.trim_end_matches('"'));
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places.join(", ")
}

fn page() -> String {
    let mut page = String::from(
        "# Known bugs that the tests bring back\n\n\
         Made of `crates/shootdown-known-bugs/bugs.toml`, by `WRITE_TABLE=1 cargo test -p shootdown-known-bugs`. Each bug is a patch of a\n\
         copy of the engine (`crates/shootdown-patched`) or of the simulated kernel around it (`crates/shootdown-sim-patched`). Numbers\n\
         are rows of [the list of bugs](correctness.md).\n\n\
         | bug | number | what goes wrong | where it is put | caught by |\n| --- | --- | --- | --- | --- |\n",
    );
    let sources = CATCHERS.map(|(tool, folder)| (tool, sources(&crates().join(folder))));
    for known in ALL {
        let mut by: Vec<String> = Vec::new();
        by.extend(
            sources
                .iter()
                .filter(|(_, text)| names(text, known.name))
                .map(|(tool, _)| (*tool).to_owned()),
        );
        by.extend(known.qemu.map(|design| format!("QEMU (`{design}`)")));
        if by.is_empty() && known.name == "KernelRangeByTag" {
            by.push("Bochs".into());
        }
        assert!(!by.is_empty(), "{}: no test names it", known.name);
        let number = known.number.map_or("–".into(), |number| number.to_string());
        let source = known.source.map_or(String::new(), |source| format!(" ({source})"));
        let what = known.what.trim_end_matches('.').replace('|', "\\|");
        let (places, by) = (patched_places(known.name), by.join(", "));
        writeln!(
            page,
            "| `{}` | {number} | {what}{source} | {places} | {by} |",
            known.name
        )
        .expect("memory");
    }
    page
}

#[test]
fn every_bug_is_in_the_table_with_who_catches_it() {
    let (path, page) = (crates().join("../docs/src/verification/known-bugs.md"), page());
    if std::env::var_os("WRITE_TABLE").is_some() {
        fs::write(&path, &page).expect("the page is writable");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/src/verification/known-bugs.md is not what bugs.toml and the tests say: see the head of this file"
    );
}
