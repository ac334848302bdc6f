//! Layout of the sources: a limit on the length of files, and the layers of the program's folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Most lines of a source file.
const LINES: usize = 500;

/// Folders of sources, in the workspace and beside it.
const FOLDERS: [&str; 6] = ["crates", "docs", "examples", "fuzz", "kernel", "xtask"];

/// Crates, and folders in them, whose files import each other in cycles: the engine and its CPUs' state hold everything
/// else, and everything else uses them.
const WITH_CIRCLES: [(&str, &str); 1] = [("crates/shootdown", "")];

/// Folders and files of the program, bottom up: each names only those before it.
const LAYERS: [&str; 9] = [
    "failure",
    "interrupt",
    "catalog",
    "print",
    "args",
    "runs",
    "published",
    "comparison",
    "commands",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn no_source_file_is_longer_than_500_lines() {
    let mut files = Vec::new();
    for folder in FOLDERS {
        sources(&root().join(folder), &mut files);
    }
    assert!(files.len() > 400, "{} files: the search finds none", files.len());
    let long = files.iter().filter_map(|path| {
        let lines = read(path).lines().count();
        (lines > LINES).then(|| format!("{}: {lines} lines", path.display()))
    });
    assert_eq!(long.collect::<Vec<_>>(), Vec::<String>::new(), "split them by concept");
}

/// A source without its tests and its comments.
fn product(text: &str) -> String {
    let tests = ["mod", "pub(super) mod", "pub(crate) mod"].map(|how| format!("\n#[cfg(test)]\n{how} tests"));
    let end = tests.iter().filter_map(|start| text.find(start.as_str())).min();
    let lines = text[..end.unwrap_or(text.len())].lines();
    lines
        .map(|line| line.split("//").next().unwrap_or_default().to_string() + "\n")
        .collect()
}

/// The paths that a source names, in `use` and elsewhere: `a::{b, c::D}` is `a::b` and `a::c::D`.
fn paths(text: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_alphabetic() || c == '_') {
        rest = path(&rest[start..], &[], &mut found);
    }
    found
}

/// Reads one path, or a tree of them, and returns what follows it.
fn path<'a>(text: &'a str, before: &[&'a str], found: &mut Vec<Vec<&'a str>>) -> &'a str {
    let mut own = before.to_vec();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        own.push(name);
        match after.strip_prefix("::") {
            Some(tree) if tree.starts_with('{') => {
                rest = &tree[1..];
                while let Some(start) = rest.find(|c: char| c.is_alphabetic() || c == '_' || c == '}') {
                    if rest[start..].starts_with('}') {
                        return &rest[start + 1..];
                    }
                    rest = path(&rest[start..], &own, found);
                }
                return rest;
            }
            Some(next) if next.starts_with(|c: char| c.is_alphabetic() || c == '_') => rest = next,
            _ => {
                found.push(own);
                return after;
            }
        }
    }
}

#[test]
fn paths_are_found_outside_of_comments_and_tests() {
    let text = "//! a::b\n\
        use c::{d, e::{F, self}};\n\
        fn f() { g::<h::I>() } // j::k\n\n\
        #[cfg(test)]\n\
        mod tests {\n    \
        use l::m;\n\
        }\n";
    let text = product(text);
    let found = paths(&text);
    let long: Vec<String> = found
        .iter()
        .filter(|path| path.len() > 1)
        .map(|path| path.join("::"))
        .collect();
    assert_eq!(long, ["c::d", "c::e::F", "c::e::self", "h::I"]);
}

/// The module of a file: `a/b.rs` and `a/b/mod.rs` are `a`, `b`.
fn module(place: &Path) -> Vec<String> {
    let parts = place.with_extension("");
    let mut parts: Vec<String> = parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if ["mod", "lib", "main"].contains(&parts.last().map_or("", String::as_str)) {
        parts.pop();
    }
    parts
}

/// The modules that each module of a crate names. Items of a folder's `mod.rs` belong to the whole folder: its files
/// may name them, and such uses are left out.
fn imports(source: &Path) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let mut files = Vec::new();
    sources(source, &mut files);
    let for_tests = ["tests", "fake", "documented"].map(String::from);
    let texts: BTreeMap<Vec<String>, String> = files
        .iter()
        .map(|file| (module(file.strip_prefix(source).expect("within")), product(&read(file))))
        .filter(|(module, _)| !module.iter().any(|part| for_tests.contains(part)))
        .collect();
    let of = |own: &Vec<String>, text: &String| {
        let mut named = BTreeSet::new();
        for path in paths(text) {
            let mut at = own.clone();
            let mut rest = path.as_slice();
            match rest[0] {
                "crate" => at.clear(),
                "super" | "self" => {}
                child if texts.contains_key(&[own.as_slice(), &[child.to_string()]].concat()) => {}
                _ => continue,
            }
            while let Some(("crate" | "self" | "super", more)) = rest.split_first().map(|(first, more)| (*first, more))
            {
                if rest[0] == "super" {
                    at.pop();
                }
                rest = more;
            }
            for name in rest {
                at.push((*name).to_string());
                if !texts.contains_key(&at) {
                    at.pop();
                    break;
                }
            }
            if !own.starts_with(&at) {
                named.insert(at);
            }
        }
        named
    };
    texts.iter().map(|(own, text)| (own.clone(), of(own, text))).collect()
}

/// The modules in a cycle, or between two.
fn circles(mut imports: BTreeMap<Vec<String>, BTreeSet<Vec<String>>>) -> Vec<String> {
    loop {
        let all: BTreeSet<Vec<String>> = imports.keys().cloned().collect();
        let named: BTreeSet<Vec<String>> = imports.values().flatten().cloned().collect();
        imports.retain(|module, names| named.contains(module) && names.iter().any(|name| all.contains(name)));
        if imports.len() == all.len() {
            return imports.keys().map(|module| module.join("/")).collect();
        }
    }
}

#[test]
fn circles_are_found_and_chains_are_none() {
    let modules =
        |text: &str| -> Vec<Vec<String>> { text.split_whitespace().map(|name| vec![name.to_string()]).collect() };
    let graph = [("a", "b"), ("b", "c d"), ("c", "b"), ("d", "e"), ("e", "")];
    let graph = graph.map(|(from, to)| (modules(from).remove(0), modules(to).into_iter().collect()));
    assert_eq!(circles(graph.into_iter().collect()), ["b", "c"]);
}

/// The crates of the workspace.
fn crates() -> Vec<String> {
    let entries = fs::read_dir(root().join("crates")).expect("the folder of the crates");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names
        .map(|name| format!("crates/{name}"))
        .chain(["xtask".to_string()])
        .collect()
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for name in crates() {
        let imports = imports(&root().join(&name).join("src"));
        seen += imports.len();
        let circles = circles(imports);
        let known = WITH_CIRCLES.iter().find(|(crate_name, _)| *crate_name == name);
        let is_known = |module: &String| known.is_some_and(|(_, folder)| module.starts_with(folder));
        if known.is_some() && circles.is_empty() {
            wrong.push(format!(
                "{name}: has no circles, and can leave the list of those that do"
            ));
        }
        let others = circles.into_iter().filter(|module| !is_known(module));
        wrong.extend(others.map(|module| format!("{name}: {module}")));
    }
    assert!(seen > 300, "{seen} modules: the search finds none");
    assert_eq!(wrong, Vec::<String>::new(), "move what both need below both");
}

#[test]
fn the_folders_of_the_program_name_only_those_below() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    let level = |module: &Vec<String>| LAYERS.iter().position(|layer| *layer == module[0]);
    for (own, named) in imports(&root().join("crates/shootdown-cli/src")) {
        if own.is_empty() {
            continue;
        }
        let above = level(&own).unwrap_or_else(|| panic!("{own:?}: which layer is it?"));
        for module in named {
            seen += 1;
            if level(&module).is_none_or(|below| below > above) {
                wrong.push(format!("{} names {}", own.join("/"), module.join("/")));
            }
        }
    }
    assert!(seen > 300, "{seen} names: the search finds none");
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "the layers, from below: {}",
        LAYERS.join(", ")
    );
}
