//! `docs/src/verification/known-bugs.md` is made of the manifest, of the tests that name each bug, and of the arguments
//! about mutations (`crates/shootdown/mutants.toml`).
//! `WRITE_TABLE=1 cargo test -p shootdown-known-bugs` writes it.

use shootdown_known_bugs::{ALL, mistakes};
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
        .split("[[mistake]]")
        .flat_map(|part| part.split("[[bug]]"))
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

const HEAD: &str = "# Deliberate mistakes, and what notices each

Made of `crates/shootdown-known-bugs/bugs.toml` and `crates/shootdown/mutants.toml`, by
`WRITE_TABLE=1 cargo test -p shootdown-known-bugs`. Numbers are rows of [the list of bugs](correctness.md).
";

const COLUMNS: &str =
    "\n| mistake | number | what goes wrong | source | where | noticed by |\n| --- | --- | --- | --- | --- | --- |\n";

fn row(page: &mut String, name: &str, number: Option<u32>, what: &str, source: &str, place: &str, by: &str) {
    let number = number.map_or("–".into(), |number| number.to_string());
    let what = what.trim_end_matches('.').replace('|', "\\|");
    writeln!(page, "| `{name}` | {number} | {what} | {source} | {place} | {by} |").expect("memory");
}

/// Bugs that are patches.
fn bugs(page: &mut String) {
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
        let (places, source) = (patched_places(known.name), known.source.unwrap_or("–"));
        row(
            page,
            known.name,
            known.number,
            known.what,
            source,
            &places,
            &by.join(", "),
        );
    }
}

/// Mistakes of one kind that are no patches.
fn others(page: &mut String, kind: &str) {
    for mistake in mistakes(kind) {
        let place = match mistake.place {
            Some(model) => format!("`docs/protocol/src/{model}`"),
            None if kind == "facade" => "`crates/shootdown-loom/src/facade.rs`".into(),
            None => "`crates/shootdown-sim/src/hw`".into(),
        };
        let mut by: Vec<String> = mistake.caught_by.iter().map(|by| format!("`{by}`")).collect();
        if let Some(claim) = mistake.breaks {
            by = vec![format!("the model ({claim})")];
        }
        let number = mistake.number;
        let source = ALL.iter().find(|known| number.is_some() && known.number == number);
        let source = source.and_then(|known| known.source).unwrap_or("–");
        row(page, mistake.name, number, mistake.what, source, &place, &by.join(", "));
    }
}

/// Arguments about mutations of the engine that no test catches.
fn arguments(page: &mut String) {
    let text = fs::read_to_string(crates().join("shootdown/mutants.toml")).expect("the arguments");
    let table: toml::Table = text.parse().expect("TOML");
    for argument in table["argument"].as_array().expect("[[argument]]") {
        let text = |key: &str| argument[key].as_str().expect("a text");
        let count = argument["mutants"].as_array().expect("a list").len();
        let why = text("why").split_whitespace().collect::<Vec<_>>().join(" ");
        writeln!(page, "| {} | {count} | {} |", text("class"), why.replace('|', "\\|")).expect("memory");
    }
}

fn page() -> String {
    let mut page = String::from(HEAD);
    page += "\n\
             ## Known bugs\n\n\
             Each is a patch of a copy of the engine \
             (`crates/shootdown-patched`) or of the simulated kernel around it\n\
             (`crates/shootdown-sim-patched`), selected at run time. No other build contains any.\n";
    page += COLUMNS;
    bugs(&mut page);
    for (kind, about) in [
        (
            "model",
            "## Mutants of the protocol models\n\n`cargo run --release -p protocol`.\n",
        ),
        (
            "facade",
            "## Barriers that loom's facade leaves out\n\n`cargo xtask test loom`. Named are the models that fail.\n",
        ),
        (
            "hardware",
            "## Machines and oracles with injected defects\n\n\
             `cargo test -p shootdown-sim --test hw mutations`. Named are the tests that must fail.\n",
        ),
    ] {
        page += "\n";
        page += about;
        page += COLUMNS;
        others(&mut page, kind);
    }
    page += "\n## Mutations of the engine that are argued about\n\n`cargo xtask mutants` tries every other one; \
             `crates/shootdown/mutants.toml` names these.\n\n| class | mutations | why no test need catch them |\n\
             | --- | --- | --- |\n";
    arguments(&mut page);
    page
}

/// The facades that loom's models are run on, and those models.
#[test]
fn manifest_facades_match_the_loom_models() {
    let tests = sources(&crates().join("shootdown-loom/tests"));
    let mut found: Vec<(&str, &str)> = tests
        .match_indices("finds_weak::<")
        .filter_map(|(at, start)| {
            let (facade, rest) = tests[at + start.len()..].split_once(">(\"")?;
            Some((facade, rest.split('"').next()?))
        })
        .collect();
    let mut listed: Vec<(&str, &str)> = mistakes("facade")
        .flat_map(|mistake| mistake.caught_by.iter().map(|by| (mistake.name, *by)))
        .collect();
    found.sort_unstable();
    found.dedup();
    listed.sort_unstable();
    assert_eq!(found, listed);
}

#[test]
fn known_bugs_page_matches_the_manifest() {
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
