//! Programs of Debian's packages for the guest, with the shared libraries that they need.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use shootdown_qemu::Arch;

use super::sources::{self, make_folder};
use crate::child;
use crate::linux_baseline::initramfs::GuestFile;
use crate::linux_baseline::kernel_package::{Archive, Package};

/// The folders of shared libraries in a package.
const FOLDERS: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// What loads them, and its path in the guest.
const LOADER: &str = "ld-linux-x86-64.so.2";
const LOADERS_FOLDER: &str = "lib64";

/// The folder of a package: downloaded and unpacked, not installed.
///
/// # Errors
/// When it cannot be downloaded.
pub fn unpacked(name: &str, end: Instant) -> Result<PathBuf, String> {
    let archive = Archive::of(Arch::X86_64);
    fetch(&archive, &find(&archive, name, end)?, end)
}

fn find(archive: &Archive, name: &str, end: Instant) -> Result<Package, String> {
    archive
        .find(Some(name), end)
        .map_err(|_| format!("no package {name} in Debian's lists; run: sudo apt-get update"))
}

fn fetch(archive: &Archive, package: &Package, end: Instant) -> Result<PathBuf, String> {
    let folder = sources::place()?.join("packages");
    make_folder(&folder)?;
    archive.unpacked(package, &folder, end)
}

/// A program of a package, and its shared libraries, at the paths that they have on Debian.
///
/// # Errors
/// When a package cannot be downloaded, or no package that is depended on holds a library.
pub fn program(package: &str, path: &str, end: Instant) -> Result<Vec<GuestFile>, String> {
    let archive = Archive::of(Arch::X86_64);
    let first = find(&archive, package, end)?;
    let from = fetch(&archive, &first, end)?.join(path);
    let mut wanted = needed(&from, end)?;
    wanted.push(LOADER.into());
    let mut libraries = Libraries {
        archive,
        known: BTreeSet::from([first.name.clone()]),
        last: vec![first],
        files: BTreeMap::new(),
    };
    let path = path.to_string();
    let mut files = vec![GuestFile { path, from }];
    while let Some(name) = wanted.pop() {
        let folder = if name == LOADER { LOADERS_FOLDER } else { FOLDERS[0] };
        let path = format!("{folder}/{name}");
        if files.iter().any(|file| file.path == path) {
            continue;
        }
        let from = libraries
            .find(&name, end)
            .map_err(|why| format!("{package} needs {name}: {why}"))?;
        wanted.extend(needed(&from, end)?);
        files.push(GuestFile { path, from });
    }
    Ok(files)
}

/// The shared libraries of the packages that a program's package depends on.
struct Libraries {
    archive: Archive,
    /// The packages that were unpacked, by name.
    known: BTreeSet<String>,
    /// Those of them that were unpacked last.
    last: Vec<Package>,
    files: BTreeMap<String, PathBuf>,
}

impl Libraries {
    /// The file of a library. Packages are unpacked only as far as libraries are missing: some depend on much that only
    /// other programs of theirs need.
    fn find(&mut self, name: &str, end: Instant) -> Result<PathBuf, String> {
        loop {
            if let Some(file) = self.files.get(name) {
                return Ok(file.clone());
            }
            let packages = std::mem::take(&mut self.last);
            if packages.is_empty() {
                return Err("none of the packages that it depends on holds it".into());
            }
            for package in &packages {
                self.unpack_what_it_needs(package, end)?;
            }
        }
    }

    fn unpack_what_it_needs(&mut self, package: &Package, end: Instant) -> Result<(), String> {
        for name in self.archive.depends(package, end)? {
            // Of alternatives some may not exist.
            let Ok(package) = find(&self.archive, &name, end) else {
                continue;
            };
            if self.known.insert(name) {
                self.add(&fetch(&self.archive, &package, end)?);
                self.last.push(package);
            }
        }
        Ok(())
    }

    fn add(&mut self, folder: &Path) {
        for place in FOLDERS {
            for file in std::fs::read_dir(folder.join(place)).into_iter().flatten().flatten() {
                let name = file.file_name().to_string_lossy().into_owned();
                // Also links, unless they lead out of the package.
                if name.contains(".so") && file.path().is_file() {
                    self.files.insert(name, file.path());
                }
            }
        }
    }
}

/// The shared libraries that a program or library names.
fn needed(file: &Path, end: Instant) -> Result<Vec<String>, String> {
    let listing = child::output(Command::new("readelf").arg("-dW").arg(file), end)?;
    Ok(names(&listing))
}

/// The names in `readelf -d`.
fn names(listing: &str) -> Vec<String> {
    let needed = listing.lines().filter(|line| line.contains("(NEEDED)"));
    needed
        .filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_libraries_are_parsed_from_readelf() {
        let listing = " 0x0000000000000001 (NEEDED)             Shared library: [libm.so.6]\n\
                       0x000000000000000e (SONAME)             Library soname: [libz.so.1]\n\
                       0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n";
        assert_eq!(names(listing), ["libm.so.6", "libc.so.6"]);
    }
}
