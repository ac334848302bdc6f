//! Layout of the sources: limits on files, lines and the engine's functions, and the layers of the program's folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Most lines of a source file.
const LINES: usize = 500;

/// Most columns of a line.
const COLUMNS: usize = 120;

/// Most lines of a function of the engine, and its deepest nesting.
const FUNCTION: (usize, usize) = (60, 4);

/// Folders of sources, in the workspace and beside it.
const FOLDERS: [&str; 6] = ["crates", "docs", "examples", "fuzz", "kernel", "xtask"];

/// Folders and files of the engine, bottom up: values and hooks; state; the engine, which is all state together; its
/// operations, in folders. A file belongs to the longest entry that names it.
const ENGINE: [&[&str]; 9] = [
    &[
        "cache_padded",
        "facade",
        "range",
        "cpuset",
        "design",
        "adaptive/costs",
        "hooks",
        "stuck",
    ],
    &[
        "adaptive/tag_costs",
        "flush/state",
        "space",
        "tags/pool",
        "tags/state",
        "transport/request",
        "transport/room",
        "walk/slots",
        "walk/state",
        "cpu/local_flag",
        "cpu/mask_seen",
        "cpu/state",
    ],
    &["engine"],
    &["cpu", "flush/token"],
    &["transport"],
    &["walk"],
    &["flush"],
    &["tags", "adaptive"],
    &["testing"],
];

/// Folders and files of the program, bottom up.
const PROGRAM: [&[&str]; 9] = [
    &["failure"],
    &["interrupt"],
    &["catalog"],
    &["print"],
    &["args"],
    &["runs"],
    &["published"],
    &["comparison"],
    &["commands"],
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

/// Every source file of the project.
fn all_sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        sources(&root().join(folder), &mut files);
    }
    assert!(files.len() > 400, "{} files: the search finds none", files.len());
    files
}

#[test]
fn no_source_file_is_longer_than_500_lines() {
    let files = all_sources();
    let long = files.iter().filter_map(|path| {
        let lines = read(path).lines().count();
        (lines > LINES).then(|| format!("{}: {lines} lines", path.display()))
    });
    assert_eq!(long.collect::<Vec<_>>(), Vec::<String>::new(), "split them by concept");
}

/// The numbers of the lines of `text` that are longer than [`COLUMNS`].
fn long_lines(text: &str) -> impl Iterator<Item = usize> {
    let numbered = (1..).zip(text.lines());
    numbered.filter_map(|(number, line)| (line.chars().count() > COLUMNS).then_some(number))
}

#[test]
fn no_line_is_longer_than_120_columns() {
    let text = format!("{}\n{}\n", "é".repeat(COLUMNS), "x".repeat(COLUMNS + 1));
    assert_eq!(long_lines(&text).collect::<Vec<_>>(), [2], "the search counts columns");
    let mut long = Vec::new();
    for path in all_sources() {
        long.extend(long_lines(&read(&path)).map(|number| format!("{}:{number}", path.display())));
    }
    assert_eq!(long, Vec::<String>::new(), "break prose at a sentence, strings by `\\`");
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

/// The functions of a formatted source: name, number of lines, deepest nesting of braces in the body.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let body = |first: usize, end: &str| {
        let (mut depth, mut deepest) = (0_usize, 0);
        for (index, line) in lines[first..].iter().enumerate() {
            for brace in line.chars().filter(|letter| "{}".contains(*letter)) {
                depth = if brace == '{' { depth + 1 } else { depth - 1 };
                deepest = deepest.max(depth);
            }
            let is_declaration = deepest == 0 && line.trim_end().ends_with(';');
            if is_declaration || depth == 0 && (line.trim_end() == end || deepest > 0) {
                return (index + 1, deepest.saturating_sub(1));
            }
        }
        panic!("a function without an end: {}", lines[first]);
    };
    let starts = lines.iter().enumerate().filter_map(|(number, line)| {
        let (before, after) = line.split_once("fn ")?;
        let is_start = before
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || " ()\"C".contains(letter));
        let name: String = after
            .chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect();
        (is_start && !name.is_empty()).then_some((number, name, before.len() - before.trim_start().len()))
    });
    starts
        .map(|(number, name, indent)| {
            let (length, nesting) = body(number, &format!("{}}}", " ".repeat(indent)));
            (name, length, nesting)
        })
        .collect()
}

#[test]
fn engine_functions_fit_a_screen() {
    let text = "impl A {\n    pub(crate) fn a(\n        b: u8,\n    ) {\n        if c {\n            d(E { f });\n\
                \x20       }\n    }\n\n    fn g(&self);\n    const fn h() {}\n}\n";
    let expected =
        [("a", 7, 2), ("g", 1, 0), ("h", 1, 0)].map(|(name, lines, nesting)| (name.to_string(), lines, nesting));
    assert_eq!(functions(text), expected, "the search measures functions");
    let source = root().join("crates/shootdown/src");
    let is_test = |path: &Path| {
        path.strip_prefix(&source)
            .is_ok_and(|rest| rest.to_string_lossy().contains("tests"))
    };
    let (mut files, mut all) = (Vec::new(), Vec::new());
    sources(&source, &mut files);
    for path in files.iter().filter(|path| !is_test(path)) {
        let of_file = functions(&product(&read(path)));
        all.extend(
            of_file
                .into_iter()
                .map(|function| (path.display().to_string(), function)),
        );
    }
    assert!(all.len() > 400, "{} functions: the search finds none", all.len());
    all.retain(|(_, (_, lines, nesting))| *lines > FUNCTION.0 || *nesting > FUNCTION.1);
    assert_eq!(all, [], "split them by what they do");
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
fn paths_are_found_outside_comments_and_tests() {
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
fn import_circles_are_found() {
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
        wrong.extend(circles(imports).into_iter().map(|module| format!("{name}: {module}")));
    }
    assert!(seen > 300, "{seen} modules: the search finds none");
    assert_eq!(wrong, Vec::<String>::new(), "move what both need below both");
}

/// What a module names in a layer above its own, and a module in none.
fn above(imports: BTreeMap<Vec<String>, BTreeSet<Vec<String>>>, layers: &[&[&str]]) -> Vec<String> {
    let layer = |module: &[String]| {
        (1..=module.len()).rev().find_map(|most| {
            let name = module[..most].join("/");
            layers.iter().position(|layer| layer.contains(&name.as_str()))
        })
    };
    let mut wrong = Vec::new();
    // The root names everything.
    for (own, named) in imports.into_iter().filter(|(own, _)| !own.is_empty()) {
        let Some(most) = layer(&own) else {
            wrong.push(format!("{} is in no layer", own.join("/")));
            continue;
        };
        // A folder's root names the files of the folder, whichever layer they are in.
        for module in named.iter().filter(|module| !module.starts_with(&own)) {
            if layer(module).is_none_or(|below| below > most) {
                wrong.push(format!("{} names {}", own.join("/"), module.join("/")));
            }
        }
    }
    wrong
}

#[test]
fn layer_is_that_of_the_longest_matching_name() {
    let module = |name: &str| -> Vec<String> { name.split('/').map(String::from).collect() };
    let graph = [("a/low", "b"), ("b", "a/low a/high"), ("a", "b a/high"), ("c", "a")];
    let graph = graph.map(|(from, to)| (module(from), to.split_whitespace().map(module).collect()));
    let wrong = above(graph.into_iter().collect(), &[&["a/low"], &["b"], &["a"]]);
    assert_eq!(wrong, ["a/low names b", "b names a/high", "c is in no layer"]);
}

#[test]
fn files_import_only_their_layer_or_below() {
    for (name, layers) in [("shootdown", &ENGINE), ("shootdown-cli", &PROGRAM)] {
        let imports = imports(&root().join("crates").join(name).join("src"));
        assert!(imports.len() > 40, "{name}: {} modules", imports.len());
        let wrong = above(imports, layers);
        assert_eq!(
            wrong,
            Vec::<String>::new(),
            "{name}: the layers, from below: {layers:?}"
        );
    }
}
