//! Debian's kernel packages: the newest for an instruction set, downloaded and unpacked, not installed.
//!
//! For x86-64 they come from the archive that this machine is set up for. For the others `apt-get` gets lists of its
//! own below target/, so that this machine's setting does not change, and no root is needed: Debian 12 for Arm; RISC-V
//! is in Debian 13 and later.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use shootdown_qemu::{Arch, is_there};

use super::child;
use crate::{debian, workspace};

/// Its archive, and the keys of its releases.
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A package that can be downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The version that would be downloaded.
    pub version: String,
}

/// Where packages of one instruction set come from.
pub struct Archive {
    /// Debian's name of it.
    suffix: &'static str,
    /// The release, if it is not that of this machine.
    suite: Option<&'static str>,
}

impl Archive {
    /// The one for `arch`.
    pub fn of(arch: Arch) -> Archive {
        let (suffix, suite) = match arch {
            Arch::X86_64 => ("amd64", None),
            Arch::Aarch64 => ("arm64", Some("bookworm")),
            Arch::Riscv64 => ("riscv64", Some("trixie")),
        };
        Archive { suffix, suite }
    }

    /// The package of that name, or the newest kernel for ordinary machines.
    ///
    /// # Errors
    /// When the lists are missing and cannot be fetched, or name no kernel.
    pub fn find(&self, named: Option<&str>, end: Instant) -> Result<Package, String> {
        if !is_there("apt-cache") {
            return Err("apt-cache was not found: the kernel package comes from Debian's archive".into());
        }
        if self.suite.is_some() && !self.folder().join("fetched").exists() {
            self.fetch(end)?;
        }
        if let Some(name) = named {
            return self.package(name, end);
        }
        if let Some(found) = self.newest(end)? {
            return Ok(found);
        }
        if debian::root() && self.suite.is_none() {
            debian::update(end)?;
        }
        self.newest(end)?.ok_or_else(|| {
            format!(
                "the package lists name no linux-image-*-{}; run: \
                 sudo apt-get update (on Debian), or name a package by --kernel",
                self.suffix
            )
        })
    }

    fn folder(&self) -> PathBuf {
        workspace::built()
            .join("linux-baseline")
            .join(format!("apt-{}", self.suffix))
    }

    /// A program of APT, with this archive's lists.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        if self.suite.is_some() {
            let folder = self.folder();
            let place = |name: &str| folder.join(name).display().to_string();
            command
                .arg("-o")
                .arg(format!("Dir::Etc::SourceList={}", place("sources.list")));
            command.args(["-o", "Dir::Etc::SourceParts=-", "-o", "Dir::State::status=/dev/null"]);
            command.arg("-o").arg(format!("Dir::State::Lists={}", place("lists")));
            command.arg("-o").arg(format!("Dir::Cache={}", place("cache")));
            command.arg("-o").arg(format!("APT::Architectures::={}", self.suffix));
        }
        // The `_apt` user may not have access to our folder.
        command.args(["-o", "APT::Sandbox::User=root"]);
        command
    }

    /// Fetches lists of its own.
    fn fetch(&self, end: Instant) -> Result<(), String> {
        let (folder, suffix, suite) = (self.folder(), self.suffix, self.suite.unwrap_or_default());
        if !is_there(KEYS) {
            return Err(format!("{KEYS} is missing: install package debian-archive-keyring"));
        }
        let place = |error: std::io::Error| format!("{}: {error}", folder.display());
        for name in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(folder.join(name)).map_err(place)?;
        }
        let source = format!("deb [signed-by={KEYS} arch={suffix}] {MIRROR} {suite} main\n");
        std::fs::write(folder.join("sources.list"), source).map_err(place)?;
        eprintln!("== fetching the list of Debian's packages for {suffix} ({suite})");
        child::output(self.command("apt-get").args(["update", "-q"]), end).map_err(|why| {
            format!("the list of {MIRROR} {suite} ({suffix}) cannot be fetched ({why}); check the network")
        })?;
        std::fs::write(folder.join("fetched"), "").map_err(place)
    }

    /// The name as APT wants it.
    fn qualified(&self, name: &str) -> String {
        match self.suite {
            Some(_) => format!("{name}:{}", self.suffix),
            None => name.to_owned(),
        }
    }

    fn newest(&self, end: Instant) -> Result<Option<Package>, String> {
        let names = child::output(self.command("apt-cache").args(["pkgnames", "linux-image-"]), end)?;
        let release = |name| Some((release(name, self.suffix)?, name));
        let mut kernels: Vec<(Vec<u64>, &str)> = names.lines().filter_map(release).collect();
        kernels.sort();
        // Lists also name packages that no longer exist.
        Ok(kernels.iter().rev().find_map(|(_, name)| self.package(name, end).ok()))
    }

    fn package(&self, name: &str, end: Instant) -> Result<Package, String> {
        let policy = child::output(self.command("apt-cache").args(["policy", &self.qualified(name)]), end)?;
        let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
        match version {
            Some(version) if version != "(none)" => Ok(Package {
                name: name.into(),
                version: version.into(),
            }),
            _ => Err(format!(
                "no package {name:?} in Debian's lists; see: apt-cache search linux-image"
            )),
        }
    }

    /// The folder of a package below `folder`: downloaded and unpacked, unless that was done before.
    ///
    /// # Errors
    /// When it cannot be downloaded or unpacked.
    pub fn unpacked(&self, package: &Package, folder: &Path, end: Instant) -> Result<PathBuf, String> {
        let place = folder.join(format!("{}_{}", package.name, package.version.replace(':', "_")));
        if place.is_dir() {
            return Ok(place);
        }
        eprintln!("== downloading {} {}", package.name, package.version);
        // Whole or not at all: unpacked aside, then renamed.
        let aside = folder.join(format!("{}.tmp", std::process::id()));
        std::fs::create_dir_all(&aside).map_err(|error| format!("{}: {error}", aside.display()))?;
        let unpacked = self
            .unpack(package, &aside, end)
            .and_then(|()| std::fs::rename(&aside, &place).map_err(|error| format!("{}: {error}", place.display())));
        if unpacked.is_err() {
            let _ = std::fs::remove_dir_all(&aside);
        }
        unpacked.map(|()| place)
    }

    /// The packages that this one depends on, by name; of alternatives all.
    ///
    /// # Errors
    /// When the lists do not name the package.
    pub fn depends(&self, package: &Package, end: Instant) -> Result<Vec<String>, String> {
        let mut list = self.command("apt-cache");
        list.args(["depends", "--important", &self.qualified(&package.name)]);
        let text = child::output(&mut list, end)?;
        let names = text
            .lines()
            .filter_map(|line| line.trim_start_matches([' ', '|']).strip_prefix("Depends: "));
        Ok(names.filter(|name| !name.starts_with('<')).map(String::from).collect())
    }

    /// Downloads a package and unpacks it into `folder`, which must exist. Nothing is installed.
    ///
    /// # Errors
    /// When it cannot be downloaded or unpacked.
    pub fn unpack(&self, package: &Package, folder: &Path, end: Instant) -> Result<(), String> {
        let exact = format!("{}={}", self.qualified(&package.name), package.version);
        let mut download = self.command("apt-get");
        download.args(["download", "-q", &exact]);
        child::output(download.current_dir(folder), end)
            .map_err(|why| format!("`apt-get download {exact}` failed ({why}); check the network"))?;
        let files = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let archive = files
            .filter_map(|file| Some(file.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .ok_or_else(|| format!("`apt-get download {exact}` left no package in {}", folder.display()))?;
        child::output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(folder), end)?;
        std::fs::remove_file(&archive).map_err(|error| format!("{}: {error}", archive.display()))
    }
}

/// The numbers of the release in the name of a kernel package for ordinary machines: `linux-image-6.1.0-56-amd64`.
fn release(name: &str, suffix: &str) -> Option<Vec<u64>> {
    let release = name
        .strip_prefix("linux-image-")?
        .strip_suffix(suffix)?
        .strip_suffix('-')?;
    if !release.starts_with(|first: char| first.is_ascii_digit())
        || release.ends_with("-rt")
        || release.ends_with("-cloud")
    {
        return None;
    }
    let numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let numbers: Vec<u64> = numbers.filter_map(|digits| digits.parse().ok()).collect();
    // `linux-image-6.12-amd64` only depends on the newest of its line.
    (numbers.len() > 2).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_sort_by_version_and_exclude_special_kernels() {
        let names = [
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.1.0-56-amd64",
            "linux-image-6.12.99+deb12-amd64",
        ];
        let mut releases: Vec<_> = names
            .iter()
            .map(|name| (release(name, "amd64").unwrap(), name))
            .collect();
        releases.sort();
        assert_eq!(releases.last().unwrap().1, &names[0]);
        for other in [
            "linux-image-amd64",
            "linux-image-6.12-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-56-rt-amd64",
            "linux-image-6.1.0-56-amd64-unsigned",
            "linux-image-6.1.0-56-amd64-dbg",
            "linux-image-6.1.0-56-arm64",
        ] {
            assert_eq!(release(other, "amd64"), None, "{other}");
        }
        assert!(release("linux-image-6.12.117+deb13-riscv64", "riscv64").is_some());
    }
}
