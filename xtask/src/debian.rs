//! Programs and files from Debian's packages: installed as root, otherwise the command is printed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use shootdown_qemu::is_there;

use super::child;

/// The options of `apt-get` that installs packages.
const INSTALL: [&str; 4] = ["install", "-y", "-q", "--no-install-recommends"];

/// Those of `wanted` that are missing.
fn missing<'a>(wanted: &[(&'a str, &'a str)]) -> (Vec<&'a str>, Vec<&'a str>) {
    let missing: Vec<_> = wanted.iter().filter(|(program, _)| !is_there(program)).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    (missing.iter().map(|(program, _)| *program).collect(), packages)
}

/// The command that installs the missing ones of these programs and files; `None` when all are present.
pub fn install_command(wanted: &[(&str, &str)]) -> Option<String> {
    let (_, packages) = missing(wanted);
    let sudo = if root() { "" } else { "sudo " };
    (!packages.is_empty()).then(|| format!("{sudo}apt-get {} {}", INSTALL.join(" "), packages.join(" ")))
}

/// Whether [`programs`] can install what is missing; otherwise it only says what to run.
pub fn can_install() -> bool {
    root() && is_there("apt-get")
}

/// Ensures that these programs, and files named by their absolute path, are installed; each with its package.
///
/// # Errors
/// What to install, and the command, when it cannot be done here.
pub fn programs(wanted: &[(&str, &str)], end: Instant) -> Result<(), String> {
    let (names, packages) = missing(wanted);
    if packages.is_empty() {
        return Ok(());
    }
    let shown = format!("apt-get {} {}", INSTALL.join(" "), packages.join(" "));
    let names = names.join(", ");
    if !is_there("apt-get") {
        return Err(format!(
            "not found: {names}; install what Debian's packages {} hold",
            packages.join(", ")
        ));
    }
    if !root() {
        return Err(format!("not found: {names}; run: sudo apt-get update && sudo {shown}"));
    }
    eprintln!("== installing: {shown}");
    let installed = apt_get(&[&INSTALL[..], &packages].concat(), end).or_else(|_| {
        child::patiently(end, || {
            // The lists may be missing or outdated.
            update(end)?;
            apt_get(&[&INSTALL[..], &packages].concat(), end)
        })
    });
    installed.map_err(|why| format!("`{shown}` failed ({why}); check the network and run it by hand"))
}

/// A package that can be downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The version that would be downloaded.
    pub version: String,
}

/// The newest kernel for ordinary machines among those that Debian's lists name.
///
/// # Errors
/// When the lists are missing and cannot be fetched, or name no kernel.
pub fn newest_kernel(end: Instant) -> Result<Package, String> {
    find_newest_kernel(end)?.map_or_else(
        || {
            if root() {
                update(end)?;
            }
            find_newest_kernel(end)?.ok_or_else(|| {
                "the package lists name no linux-image-*-amd64; run: \
                 sudo apt-get update (on Debian), or name a package by --kernel"
                    .to_string()
            })
        },
        Ok,
    )
}

fn find_newest_kernel(end: Instant) -> Result<Option<Package>, String> {
    if !is_there("apt-cache") {
        return Err("apt-cache was not found: the kernel package comes from Debian's archive".into());
    }
    let names = child::output(Command::new("apt-cache").args(["pkgnames", "linux-image-"]), end)?;
    let mut kernels: Vec<(Vec<u64>, &str)> = names.lines().filter_map(|name| Some((release(name)?, name))).collect();
    kernels.sort();
    // Lists also name packages that no longer exist.
    for (_, name) in kernels.iter().rev() {
        if let Ok(package) = package(name, end) {
            return Ok(Some(package));
        }
    }
    Ok(None)
}

/// The numbers of the release in the name of a kernel package for ordinary machines: `linux-image-6.1.0-56-amd64`.
fn release(name: &str) -> Option<Vec<u64>> {
    let release = name.strip_prefix("linux-image-")?.strip_suffix("-amd64")?;
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

/// The package of this name.
///
/// # Errors
/// When the lists do not offer it.
pub fn package(name: &str, end: Instant) -> Result<Package, String> {
    let policy = child::output(Command::new("apt-cache").args(["policy", name]), end)?;
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

/// Downloads a package and unpacks it into `folder`, which must exist. Nothing is installed.
///
/// # Errors
/// When it cannot be downloaded or unpacked.
pub fn unpack(package: &Package, folder: &Path, end: Instant) -> Result<(), String> {
    let exact = format!("{}={}", package.name, package.version);
    let mut download = Command::new("apt-get");
    // The `_apt` user may not have access to our folder.
    download.args(["download", "-q", "-o", "APT::Sandbox::User=root", &exact]);
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

fn apt_get(arguments: &[&str], end: Instant) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    // Its output is not ours.
    child::output(&mut command, end).map(drop)
}

fn update(end: Instant) -> Result<(), String> {
    eprintln!("== installing: apt-get update");
    apt_get(&["update", "-q"], end)
}

fn root() -> bool {
    let id = Command::new("id").arg("-u").stderr(Stdio::null()).output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_is_last_and_special_kernels_are_left_out() {
        let names = [
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.1.0-56-amd64",
            "linux-image-6.12.99+deb12-amd64",
        ];
        let mut releases: Vec<_> = names.iter().map(|name| (release(name).unwrap(), name)).collect();
        releases.sort();
        assert_eq!(releases.last().unwrap().1, &names[0]);
        for other in [
            "linux-image-amd64",
            "linux-image-6.12-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-56-rt-amd64",
            "linux-image-6.1.0-56-amd64-unsigned",
            "linux-image-6.1.0-56-amd64-dbg",
        ] {
            assert_eq!(release(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_there_is_not_installed() {
        assert_eq!(programs(&[("sh", "no-such-package")], Instant::now()), Ok(()));
        assert_eq!(install_command(&[("sh", "no-such-package")]), None);
        let command = install_command(&[("sh", "a"), ("no-such-program", "b"), ("/no/such/file", "b")]).unwrap();
        assert!(
            command.ends_with("apt-get install -y -q --no-install-recommends b"),
            "{command}"
        );
    }
}
