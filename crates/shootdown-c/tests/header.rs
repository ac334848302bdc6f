//! The header matches the source, and a kernel written in C that includes it keeps its translations coherent.

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> PathBuf {
    root().join("include/shootdown.h")
}

/// The source files of the header, in its order.
const SOURCES: [&str; 13] = [
    "settings", "hooks", "range", "sizes", "engine", "space", "cpu", "flush", "gather", "batch", "walk", "later",
    "panic",
];

#[test]
fn every_source_file_with_a_call_is_in_the_header() {
    for file in std::fs::read_dir(root().join("src")).expect("the sources") {
        let path = file.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a source");
        let name = path.file_stem().and_then(|name| name.to_str()).expect("UTF-8");
        assert!(
            SOURCES.contains(&name)
                || ["no_mangle", "repr(C)", "extern \"C\" {"]
                    .iter()
                    .all(|sign| !text.contains(sign)),
            "{name}.rs is missing in SOURCES"
        );
    }
}

fn generated() -> String {
    let config = cbindgen::Config::from_root_or_default(root());
    let source = |name: &str| root().join("src").join(name).with_extension("rs");
    let bindings = SOURCES
        .iter()
        .fold(cbindgen::Builder::new(), |all, name| all.with_src(source(name)))
        .with_config(config)
        .generate()
        .expect("the source is parsed");
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn header_matches_the_source() {
    let there = std::fs::read_to_string(header()).expect("include/shootdown.h");
    assert!(
        there == generated(),
        "include/shootdown.h is not what the sources say; write it anew: cargo test -p shootdown-c -- --ignored"
    );
}

#[test]
#[ignore = "writes include/shootdown.h"]
fn write_the_header() {
    std::fs::write(header(), generated()).expect("include/shootdown.h can be written");
}

/// The names of the calls in a text.
fn calls<'a>(text: &'a str, end: &str) -> Vec<&'a str> {
    let letters = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let mut all: Vec<&str> = text
        .match_indices("shootdown_")
        .map(|(place, _)| &text[place..])
        .filter_map(|rest| {
            let (name, rest) = rest.split_at(rest.find(|letter| !letters(letter))?);
            rest.starts_with(end).then_some(name)
        })
        .filter(|name| *name != "shootdown_panic" && !name.starts_with("shootdown_hook_"))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn linker_script_keeps_every_call() {
    let header = std::fs::read_to_string(header()).expect("include/shootdown.h");
    let script = std::fs::read_to_string(root().join("link/shootdown.ld")).expect("link/shootdown.ld");
    let (_, kept) = script.split_once("EXTERN(").expect("a list of names");
    let (kept, _) = kept.split_once(')').expect("its end");
    assert_eq!(calls(kept, "\n"), calls(&header, "("));
}

/// Where Rust's linker is a C compiler.
#[cfg(unix)]
mod machine {
    use super::root;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// The library, in a separate build: that of this test is locked, and its name changes.
    fn library() -> PathBuf {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("library");
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "-p",
                "shootdown-c",
                "--all-features",
                "--target-dir",
            ])
            .arg(&target)
            .current_dir(root())
            .status()
            .expect("cargo runs");
        assert!(built.success());
        target.join("debug/libshootdown_c.a")
    }

    /// Compiles `tests/machine.c` with these definitions; returns the program.
    fn machine(library: &Path, name: &str, definitions: &[&str]) -> PathBuf {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let compiled = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
            .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-I"])
            .arg(root().join("include"))
            .args(definitions)
            .arg(root().join("tests/machine.c"))
            .arg(library)
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(&program)
            .output()
            .expect("a C compiler, as Rust's linker needs one, too");
        assert!(
            compiled.status.success(),
            "{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        program
    }

    #[test]
    fn c_machine_finds_stale_translations_only_without_invalidation() {
        let library = library();
        let run = |program: &Path, arguments: &str| {
            let mut command = Command::new(program);
            let ended = command.args(arguments.split(' ')).output().expect("it runs");
            (
                ended.status.code(),
                String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr),
            )
        };
        let program = machine(&library, "machine", &[]);
        for design in [
            "ipi",
            "ipi-trim",
            "broadcast",
            "preemptible",
            "adaptive",
            "walk-precise",
            "walk-grace",
            "deferred",
            "arm-broadcast",
            "arm-local-first",
            "ipi split",
            "adaptive split",
            "ipi untagged",
            "adaptive untagged",
            "arm-local-first untagged",
        ] {
            let (status, text) = run(&program, design);
            assert_eq!(status, Some(0), "{design}: {text}");
        }
        for control in ["none", "local-only"] {
            let (status, text) = run(&program, control);
            assert_eq!(status, Some(3), "{control}: stale translations are found: {text}");
        }
        // The same machine catches a kernel that omits one of its obligations.
        for (name, forgotten, design) in [
            ("without_pages", "-DFORGET_PAGES", "ipi"),
            ("without_tags", "-DFORGET_TAGS", "ipi"),
            ("without_kept_roots", "-DFORGET_ROOTS", "ipi"),
            ("without_fences", "-DFORGET_ROOTS", "ipi untagged"),
            ("without_halves", "-DFORGET_HALVES", "ipi split"),
            ("without_quarantine", "-DFORGET_QUARANTINE", "deferred"),
        ] {
            let (status, text) = run(&machine(&library, name, &[forgotten]), design);
            assert_eq!(status, Some(3), "{forgotten}: {text}");
        }
    }
}
