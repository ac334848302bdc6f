// Part of the build scripts of `shootdown-patched` and `shootdown-sim-patched`.
//! Copies a crate's source into `OUT_DIR` with every patch of `bugs.toml` in it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Text that is put around a place of the source, or at it.
struct Edit {
    at: Range<usize>,
    before: String,
    after: String,
}

/// Copies `source`, the `src` of the crate that the manifest calls `krate` (the engine: `None`), to `OUT_DIR/src`.
pub fn copy(source: &str, krate: Option<&str>) {
    let manifest = Path::new("../shootdown-known-bugs/bugs.toml");
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-changed={}", manifest.display());
    println!("cargo::rerun-if-changed=../shootdown-known-bugs/patch.rs");
    let text = fs::read_to_string(manifest).expect("the manifest of known bugs");
    let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("bugs.toml: {error}"));
    let mut files = BTreeMap::new();
    read(Path::new(source), Path::new(""), &mut files);
    let mut edits: BTreeMap<PathBuf, Vec<Edit>> = BTreeMap::new();
    for bug in table["bug"].as_array().expect("[[bug]]") {
        let name = bug["name"].as_str().expect("a name");
        for patch in bug["patch"].as_array().expect("[[bug.patch]]") {
            if patch.get("in").and_then(toml::Value::as_str) != krate {
                continue;
            }
            let get = |key: &str| patch.get(key).and_then(toml::Value::as_str);
            let file = get("file").unwrap_or_else(|| panic!("bugs.toml: {name}: a patch without a file"));
            let content = files
                .get(Path::new(file))
                .unwrap_or_else(|| panic!("bugs.toml: {name}: no file {source}/{file}"));
            let edit = edit(name, &format!("{source}/{file}"), content, &get);
            edits.entry(file.into()).or_default().push(edit);
        }
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo's")).join("src");
    let _ = fs::remove_dir_all(&out);
    let root = fs::canonicalize("../..").expect("the workspace");
    let home = fs::canonicalize(Path::new(source).join("..")).expect("the crate that is copied");
    for (path, content) in files {
        let mut content = apply(&content, edits.remove(&path).unwrap_or_default());
        if path == Path::new("lib.rs") {
            // It is included, which takes no inner attributes; `cargo` gives the crate its own.
            content = content
                .lines()
                .filter(|line| !line.starts_with("//!") && !line.starts_with("#!["))
                .collect::<Vec<_>>()
                .join("\n");
        }
        // The unit tests are the original's.
        let content = content.replace("#[cfg(test)]", "#[cfg(any())]");
        let content = content.replace("\"../../../../", &format!("\"{}/", root.display()));
        let content = content.replace("include_str!(\"../", &format!("include_str!(\"{}/", home.display()));
        let to = out.join(&path);
        fs::create_dir_all(to.parent().expect("below OUT_DIR")).expect("cargo's folder is writable");
        fs::write(to, content).expect("cargo's folder is writable");
    }
}

fn read(folder: &Path, below: &Path, files: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let entry = entry.expect("an entry of a folder");
        let (path, name) = (entry.path(), below.join(entry.file_name()));
        if path.is_dir() {
            read(&path, &name, files);
        } else {
            files.insert(
                name,
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            );
        }
    }
}

/// One patch as an edit of `content`.
fn edit<'a>(name: &str, file: &str, content: &str, get: &dyn Fn(&str) -> Option<&'a str>) -> Edit {
    let on = format!("::shootdown_known_bugs::is_on(::shootdown_known_bugs::Bug::{name})");
    if let Some(item) = get("item") {
        return Edit {
            at: content.len()..content.len(),
            before: format!("\n{item}\n"),
            after: String::new(),
        };
    }
    let function = get("function").unwrap_or_else(|| panic!("bugs.toml: {name}: a patch without a function"));
    let body =
        body_of(content, function).unwrap_or_else(|| panic!("bugs.toml: {name}: {file} has no function {function}"));
    let (pattern, replaces) = match (get("site"), get("before")) {
        (Some(site), None) => (site, true),
        (None, Some(before)) => (before, false),
        _ => panic!("bugs.toml: {name}: a patch has either a site or a before"),
    };
    let found = find(&content[body.clone()], pattern);
    let [at] = &found[..] else {
        panic!(
            "bugs.toml: {name}: {file}, {function}: `{pattern}` is there {} times, and must be there once",
            found.len()
        );
    };
    let at = body.start + at.start..body.start + at.end;
    if !replaces {
        let insert = get("insert").unwrap_or_else(|| panic!("bugs.toml: {name}: a before without an insert"));
        let before = match has_word(insert) {
            true => format!(" {} ", insert.replace("ON", &on)),
            false => format!("if {on} {{ {insert} }}\n"),
        };
        return Edit {
            at: at.start..at.start,
            before,
            after: String::new(),
        };
    }
    let instead = get("instead").unwrap_or_else(|| panic!("bugs.toml: {name}: a site without an instead"));
    let (open, close) = match content[at.clone()].ends_with([';', '}']) {
        true => ("", ""),
        false => ("(", ")"),
    };
    Edit {
        at,
        before: format!("{open}if {on} {{ {instead} }} else {{ "),
        after: format!(" }}{close}"),
    }
}

/// Whether `ON` stands in it as a word.
fn has_word(text: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .any(|word| word == "ON")
}

/// Where the function of that name is: from `fn` to the line that closes it, which is indented as the first is.
fn body_of(content: &str, function: &str) -> Option<Range<usize>> {
    let start = ["(", "<"]
        .iter()
        .find_map(|next| content.find(&format!("fn {function}{next}")))?;
    let line = content[..start].rfind('\n').map_or(0, |at| at + 1);
    let indent = content[line..].len() - content[line..].trim_start_matches(' ').len();
    let close = format!("\n{}}}\n", " ".repeat(indent));
    let end = content[start..].find(&close)? + start + close.len();
    Some(start..end)
}

/// The places of `pattern` in `text`, white space aside; of each, the part between « and » if it has them.
fn find(text: &str, pattern: &str) -> Vec<Range<usize>> {
    let letters = |text: &str| {
        text.char_indices()
            .filter(|(_, letter)| !letter.is_whitespace())
            .collect::<Vec<_>>()
    };
    let (mut expected, mut from, mut to) = (Vec::new(), 0, None);
    for (_, letter) in letters(pattern) {
        match letter {
            '«' => from = expected.len(),
            '»' => to = Some(expected.len()),
            letter => expected.push(letter),
        }
    }
    let (to, here) = (to.unwrap_or(expected.len()), letters(text));
    let places = here
        .windows(expected.len())
        .filter(|window| window.iter().map(|(_, letter)| letter).eq(&expected));
    places
        .map(|window| {
            let start = window.get(from).map_or_else(|| end_of(window, from), |place| place.0);
            let start = if to == from { end_of(window, from) } else { start };
            start..end_of(window, to).max(start)
        })
        .collect()
}

/// Behind the letter before `index`.
fn end_of(window: &[(usize, char)], index: usize) -> usize {
    index
        .checked_sub(1)
        .map_or(window[0].0, |last| window[last].0 + window[last].1.len_utf8())
}

/// `content` with the edits: those that replace the same place stand within each other, what is inserted there before
/// them.
fn apply(content: &str, edits: Vec<Edit>) -> String {
    // Position, whether it closes, and an order among those at one position.
    let mut pieces: Vec<(usize, u8, usize, String)> = Vec::new();
    for (number, edit) in edits.into_iter().enumerate() {
        let length = edit.at.len();
        if edit.at.is_empty() {
            pieces.push((edit.at.start, 1, number, edit.before));
        } else {
            // At one position the longer opens first, and the one that opened last closes first.
            pieces.push((edit.at.start, 2, (1 << 32) - (length << 10) + number, edit.before));
            pieces.push((edit.at.end, 0, (length << 10) + (1 << 10) - number, edit.after));
        }
    }
    pieces.sort();
    let (mut text, mut at) = (String::new(), 0);
    for (position, _, _, piece) in pieces {
        text.push_str(&content[at..position]);
        text.push_str(&piece);
        at = position;
    }
    text + &content[at..]
}
