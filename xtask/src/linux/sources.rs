//! The sources of Linux: Debian's package, unpacked; and a copy in which the engine is in place of `tlb.c`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use shootdown_qemu::Arch;

use crate::edits::{self, Edit};
use crate::linux_baseline::kernel_package::Archive;
use crate::{child, workspace};

/// The package.
const PACKAGE: &str = "linux-source-6.12";

/// The folder of the copy with the engine.
const COPY: &str = "engine-source";

/// Space for the sources, their copy and three builds, MiB. Each further configuration takes 1000.
const ROOM: u64 = 5000;

/// The files that are added, each with where it comes from.
const OURS: [(&str, &str); 4] = [
    ("arch/x86/mm/tlb.c", "linux/tlb.c"),
    ("arch/x86/mm/shootdown_options.c", "linux/options.c"),
    ("arch/x86/include/asm/shootdown.h", "linux/shootdown.h"),
    (
        "arch/x86/include/asm/shootdown_library.h",
        "crates/shootdown-c/include/shootdown.h",
    ),
];

/// Those that were written for it.
const GLUE: [&str; 3] = ["linux/tlb.c", "linux/options.c", "linux/shootdown.h"];

/// The library, which Kbuild links as it is.
const LIBRARY: &str = "arch/x86/mm/shootdown.o_shipped";

/// Unpacked sources.
#[derive(Debug)]
pub struct Sources {
    /// Their folder.
    pub folder: PathBuf,
    /// The version of the package.
    pub version: String,
}

/// The folder of everything here.
pub fn place() -> Result<PathBuf, String> {
    let place = workspace::root().join("target/linux");
    make_folder(&place)?;
    place.canonicalize().map_err(|error| at(&place, error))
}

/// Debian's sources, downloaded if missing.
///
/// # Errors
/// When the package or the room is missing.
pub fn debians(end: Instant) -> Result<Sources, String> {
    let archive = Archive::of(Arch::X86_64);
    let package = archive.find(Some(PACKAGE), end).map_err(|_| {
        format!(
            "no package {PACKAGE} in Debian's lists; run: \
             sudo apt-get update (on Debian 12 with its security updates, or 13)"
        )
    })?;
    let place = place()?;
    let (folder, version) = (place.join(PACKAGE), place.join("version"));
    if !folder.is_dir() || std::fs::read_to_string(&version).unwrap_or_default() != package.version {
        enough_room(&place, end)?;
        eprintln!("== downloading {} {}", package.name, package.version);
        // Of another version, or half unpacked.
        for old in [&folder, &place.join(COPY)] {
            let _ = std::fs::remove_dir_all(old);
        }
        let aside = place.join("package.tmp");
        let _ = std::fs::remove_dir_all(&aside);
        make_folder(&aside)?;
        archive.unpack(&package, &aside, end)?;
        let mut tar = Command::new("tar");
        tar.arg("-xJf").arg(aside.join(format!("usr/src/{PACKAGE}.tar.xz")));
        child::output(tar.arg("-C").arg(&place), end)?;
        std::fs::write(&version, &package.version).map_err(|error| at(&version, error))?;
        let _ = std::fs::remove_dir_all(&aside);
    }
    Ok(Sources {
        folder,
        version: package.version,
    })
}

/// A copy with the edits of `linux/edits.json`, our files and this library. Files are links to the originals, except
/// those that differ.
///
/// # Errors
/// Every anchor that does not match. Then nothing is changed.
pub fn ours(debians: &Sources, library: &Path, end: Instant) -> Result<Sources, String> {
    let changed = changed(debians, library)?;
    let place = place()?;
    let folder = place.join(COPY);
    let list = place.join("changed");
    if !folder.is_dir() {
        let aside = place.join("copy.tmp");
        let _ = std::fs::remove_dir_all(&aside);
        child::output(Command::new("cp").arg("-al").arg(&debians.folder).arg(&aside), end)?;
        std::fs::rename(&aside, &folder).map_err(|error| at(&folder, error))?;
    }
    for file in std::fs::read_to_string(&list).unwrap_or_default().lines() {
        if !changed.contains_key(Path::new(file)) {
            restore(&debians.folder.join(file), &folder.join(file))?;
        }
    }
    let names: String = changed.keys().map(|file| format!("{}\n", file.display())).collect();
    std::fs::write(&list, names).map_err(|error| at(&list, error))?;
    for (file, bytes) in changed {
        let file = folder.join(file);
        if std::fs::read(&file).is_ok_and(|old| old == bytes) {
            continue;
        }
        // Not through the link.
        let _ = std::fs::remove_file(&file);
        std::fs::write(&file, bytes).map_err(|error| at(&file, error))?;
    }
    Ok(Sources {
        folder,
        version: debians.version.clone(),
    })
}

/// How much is ours, in a line: edits, and lines of the glue.
///
/// # Errors
/// When a file cannot be read.
pub fn extent(debians: &Sources) -> Result<String, String> {
    let edits = edits()?;
    let files: BTreeSet<&str> = edits.iter().map(Edit::file).collect();
    let lines = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).map_err(|error| at(&path, error))?;
        Ok::<usize, String>(text.lines().count())
    };
    let root = workspace::root();
    let glue = GLUE
        .map(|file| lines(root.join(file)))
        .into_iter()
        .sum::<Result<usize, String>>()?;
    Ok(format!(
        "{} edits in {} files; glue of {glue} lines in place of {}",
        edits.len(),
        files.len(),
        lines(debians.folder.join(OURS[0].0))?
    ))
}

fn edits() -> Result<Vec<Edit>, String> {
    let list = workspace::root().join("linux/edits.json");
    let text = std::fs::read_to_string(&list).map_err(|error| at(&list, error))?;
    edits::parse(&text).map_err(|why| format!("{}: {why}", list.display()))
}

/// Every file that differs from Debian's.
pub fn changed(debians: &Sources, library: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, String> {
    let root = workspace::root();
    let read = |path: &Path| std::fs::read(path).map_err(|error| at(path, error));
    let edited = edits::apply(&edits()?, &debians.folder).map_err(|why| {
        format!(
            "linux/edits.json does not fit {PACKAGE} {}; nothing was changed:\n{why}",
            debians.version
        )
    })?;
    let mut changed: BTreeMap<PathBuf, Vec<u8>> = edited
        .into_iter()
        .map(|(file, text)| (file, text.into_bytes()))
        .collect();
    for (file, from) in OURS {
        changed.insert(file.into(), read(&root.join(from))?);
    }
    changed.insert(LIBRARY.into(), read(library)?);
    Ok(changed)
}

fn restore(original: &Path, file: &Path) -> Result<(), String> {
    let _ = std::fs::remove_file(file);
    if original.exists() {
        std::fs::hard_link(original, file).map_err(|error| at(file, error))?;
    }
    Ok(())
}

fn enough_room(place: &Path, end: Instant) -> Result<(), String> {
    let mut df = Command::new("df");
    let text = child::output(df.args(["--output=avail", "-BM"]).arg(place), end)?;
    let free: Option<u64> = text
        .lines()
        .nth(1)
        .and_then(|line| line.trim().trim_end_matches('M').parse().ok());
    match free {
        Some(free) if free < ROOM => Err(format!(
            "{} has {free} MiB of room, and the sources and builds of Linux need {ROOM}; make room, or point \
             target/linux to another disk: ln -s /other/disk target/linux",
            place.display()
        )),
        _ => Ok(()),
    }
}

pub fn make_folder(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| at(folder, error))
}

/// An error with its place.
pub fn at(path: &Path, error: std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
