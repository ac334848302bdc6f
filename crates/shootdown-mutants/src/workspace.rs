//! The instrumented copy: a separate workspace under `target/mutants`, in which the engine holds every mutation and the
//! rest is unchanged.

use crate::enumerate::{enumerate, functions_without_result};
use crate::mutant::{Mutant, number_alike};
use crate::rewrite::rewrite;
use std::fs;
use std::path::{Path, PathBuf};

/// Files of the engine without protocol: its environment, two for unit tests, named settings.
const COPIED_UNCHANGED: [&str; 6] = [
    "lib.rs",
    "facade.rs",
    "hooks.rs",
    "design/presets.rs",
    "testing/interleave.rs",
    "testing/mock_kernel.rs",
];

/// The parts of the copy other than the engine.
const COPIED: [&str; 8] = [
    "crates/shootdown-arch",
    "crates/shootdown-check",
    "crates/shootdown-known-bugs",
    "crates/shootdown-loom",
    "crates/shootdown-sim",
    "crates/shootdown-trace",
    "machines",
    "docs/src/machines/priors.md",
];

const RUNTIME: &str = include_str!("../runtime/mutation.rs");

/// The engine's source with every mutation in it.
pub struct Instrumented {
    /// Every mutation, by number less one.
    pub mutants: Vec<Mutant>,
    /// Path under the engine's folder, and text.
    files: Vec<(PathBuf, String)>,
}

/// Reads the engine under `root` and enumerates.
///
/// # Errors
/// The file that cannot be read, or is not Rust.
pub fn instrument(root: &Path) -> Result<Instrumented, String> {
    let source = root.join("crates/shootdown/src");
    let mut paths = Vec::new();
    files_under(&source, &mut paths)?;
    let mut read = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let syntax = syn::parse_file(&text).map_err(|error| format!("{} is not Rust: {error}", path.display()))?;
        let name = path.strip_prefix(&source).expect("found under it").to_path_buf();
        read.push((name, text, syntax));
    }
    let syntaxes: Vec<_> = read.iter().map(|(_, _, syntax)| syntax.clone()).collect();
    let without_result = functions_without_result(&syntaxes);
    let (mut mutants, mut files) = (Vec::new(), Vec::new());
    for (name, text, syntax) in read {
        let shown = name.to_string_lossy().replace('\\', "/");
        let text = if COPIED_UNCHANGED.contains(&&*shown) || shown.ends_with("/tests.rs") || shown.contains("/tests/") {
            match &*shown {
                "lib.rs" => format!(
                    "{}\nmod mutation;\n",
                    text.replacen("\nmod ", "\n#[allow(warnings)]\nmod ", 99)
                ),
                _ => text,
            }
        } else {
            let sites = enumerate(&shown, &text, &syntax, &without_result, &mut mutants);
            format!("{}\nuse crate::mutation::Mutable as _;\n", rewrite(&text, sites))
        };
        files.push((Path::new("src").join(name), text));
    }
    number_alike(&mut mutants);
    let runtime = format!("{RUNTIME}\nconst COUNT: usize = {};\n", mutants.len());
    files.push((PathBuf::from("src/mutation.rs"), runtime));
    Ok(Instrumented { mutants, files })
}

impl Instrumented {
    /// A hash of the source.
    pub fn fingerprint(&self) -> u64 {
        self.files.iter().fold(0, |sum, (path, text)| {
            sum ^ crate::fingerprint(path.to_string_lossy().as_bytes()).rotate_left(7)
                ^ crate::fingerprint(text.as_bytes())
        })
    }

    /// Writes the workspace under `place`. Existing files with the right content are not touched, so that cargo builds
    /// only what has changed.
    ///
    /// # Errors
    /// The file that cannot be read or written.
    pub fn write(&self, root: &Path, place: &Path) -> Result<(), String> {
        let mut kept = Vec::new();
        let mut put = |path: PathBuf, bytes: &[u8]| {
            let to = place.join(&path);
            kept.push(to.clone());
            write_if_changed(&to, bytes)
        };
        for what in COPIED.iter().copied().chain(["crates/shootdown"]) {
            let mut paths = Vec::new();
            files_under(&root.join(what), &mut paths)?;
            for path in paths {
                let name = path.strip_prefix(root).expect("found under it");
                if name.starts_with("crates/shootdown/src") || name.starts_with("crates/shootdown/benches") {
                    continue;
                }
                let bytes = fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                let bytes = match name.file_name().is_some_and(|name| name == "Cargo.toml") {
                    true => manifest(&String::from_utf8_lossy(&bytes)).into_bytes(),
                    false => bytes,
                };
                put(name.to_path_buf(), &bytes)?;
            }
        }
        for (path, text) in &self.files {
            put(Path::new("crates/shootdown").join(path), text.as_bytes())?;
        }
        for name in ["Cargo.lock", "README.md"] {
            let bytes = fs::read(root.join(name)).map_err(|error| format!("cannot read {name}: {error}"))?;
            if name != "Cargo.lock" || !place.join(name).exists() {
                put(name.into(), &bytes)?;
            }
        }
        let whole =
            fs::read_to_string(root.join("Cargo.toml")).map_err(|error| format!("cannot read Cargo.toml: {error}"))?;
        put("Cargo.toml".into(), workspace(&whole).as_bytes())?;
        let mut there = Vec::new();
        files_under(&place.join("crates"), &mut there)?;
        for path in there.iter().filter(|path| !kept.contains(path)) {
            fs::remove_file(path).map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// A package's manifest without lints, which generated code need not satisfy, and without benches.
fn manifest(text: &str) -> String {
    let sections = text
        .split("\n[")
        .filter(|section| !section.starts_with("lints]") && !section.starts_with("[bench]]"));
    sections.collect::<Vec<_>>().join("\n[") + "\n"
}

/// The workspace's manifest with the copied members only.
fn workspace(text: &str) -> String {
    let members: Vec<_> = COPIED
        .iter()
        .filter(|path| path.starts_with("crates/"))
        .map(|path| format!("{path:?}"))
        .collect();
    let mut lines: Vec<String> = Vec::new();
    let mut in_defaults = false;
    for line in text.lines() {
        in_defaults |= line.starts_with("default-members");
        if !in_defaults {
            lines.push(match line.starts_with("members") {
                true => format!("members = [\"crates/shootdown\", {}]", members.join(", ")),
                false => line.into(),
            });
        }
        in_defaults &= !line.starts_with(']');
    }
    // The copy is not debugged, and linking takes most of its build time.
    lines
        .join("\n")
        .replace("[profile.test]", "[profile.test]\ndebug = false")
        + "\n"
}

fn write_if_changed(to: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let written = fs::create_dir_all(to.parent().expect("a file lies in a folder")).and_then(|()| fs::write(to, bytes));
    written.map_err(|error| format!("cannot write {}: {error}", to.display()))
}

/// All files under `place`, or `place` itself if it is one, in order of their names.
fn files_under(place: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    if place.is_file() {
        found.push(place.to_path_buf());
        return Ok(());
    }
    let cannot = |error| format!("cannot read {}: {error}", place.display());
    let mut entries: Vec<PathBuf> = fs::read_dir(place)
        .map_err(cannot)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(cannot)?;
    entries.sort();
    entries.iter().try_for_each(|entry| files_under(entry, found))
}
