//! Properties that must hold for any input.
//!
//! Each [`Target`] is one function of bytes that panics when something does not hold. A fuzzer calls it (`fuzz/`, run
//! by `cargo xtask fuzz TARGET`), and so do the tests: with every seed of its corpus, and with changes to them that a
//! seeded generator makes ([`mutate`]), so that a bounded part of the search is repeated at every test.
#![forbid(unsafe_code)]

mod columns;
mod encoders;
mod input;
mod machine;
pub mod mutate;
mod ranges;
mod trace;

use std::path::{Path, PathBuf};

/// Something that reads what others have written, or that counts with what others have given.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: of the fuzzer's binary and of its folder of seeds.
    pub name: &'static str,
    /// What is read.
    pub about: &'static str,
    /// Panics when something does not hold for these bytes.
    pub check: fn(&[u8]),
    /// Most bytes worth trying.
    pub longest: usize,
    /// A folder of the workspace whose files are seeds too.
    pub more_seeds: Option<&'static str>,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "machine",
        about: "a machine file: an error names its place; what is read can be written and is read back the same",
        check: machine::check,
        longest: 8 << 10,
        more_seeds: Some("machines"),
    },
    Target {
        name: "trace",
        about: "trace text: every line is an event or counted as damage, events are in order, their program can be had",
        check: trace::check,
        longest: 4 << 10,
        more_seeds: None,
    },
    Target {
        name: "columns",
        about: "a recording as a file: an error, or events that are read back the same from what they are written to",
        check: columns::check,
        longest: 16 << 10,
        more_seeds: None,
    },
    Target {
        name: "ranges",
        about: "ranges: every byte asked for is covered, by its pages and by its pieces, under every limit",
        check: ranges::check,
        longest: 64,
        more_seeds: None,
    },
    Target {
        name: "encoders",
        about: "operands: what is taken apart and put together is the same; sequences cover exactly what was asked",
        check: encoders::check,
        longest: 64,
        more_seeds: None,
    },
];

/// Checks bytes as the target of that name does.
///
/// # Panics
/// When something does not hold, or there is no such target.
pub fn check(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("a target").check)(bytes);
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Target {
    /// Folders of its seeds.
    pub fn folders(&self) -> Vec<PathBuf> {
        let own = workspace().join("fuzz/corpus").join(self.name);
        [Some(own), self.more_seeds.map(|folder| workspace().join(folder))]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Its seeds, by name of file.
    ///
    /// # Errors
    /// When a folder or a file cannot be read.
    pub fn seeds(&self) -> std::io::Result<Vec<(String, Vec<u8>)>> {
        let mut seeds = Vec::new();
        for folder in self.folders() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                seeds.push((path.display().to_string(), std::fs::read(&path)?));
            }
        }
        seeds.sort();
        Ok(seeds)
    }
}
