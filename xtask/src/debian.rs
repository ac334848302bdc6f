//! Programs and files from Debian's packages: installed as root, otherwise the command is printed.

use std::process::{Command, Stdio};
use std::time::Instant;

use shootdown_qemu::is_there;

use super::child;

/// The options of `apt-get` that installs packages.
const INSTALL: [&str; 4] = ["install", "-y", "-q", "--no-install-recommends"];

/// Those of `needs` that are missing.
fn missing<'a>(needs: &[(&'a str, &'a str)]) -> (Vec<&'a str>, Vec<&'a str>) {
    let missing: Vec<_> = needs.iter().filter(|(program, _)| !is_there(program)).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    (missing.iter().map(|(program, _)| *program).collect(), packages)
}

/// The command that installs the missing ones of these programs and files; `None` when all are present.
pub fn install_command(needs: &[(&str, &str)]) -> Option<String> {
    let (_, packages) = missing(needs);
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
pub fn programs(needs: &[(&str, &str)], end: Instant) -> Result<(), String> {
    let (names, packages) = missing(needs);
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

fn apt_get(arguments: &[&str], end: Instant) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    // Its output is not ours.
    child::output(&mut command, end).map(drop)
}

/// Fetches the lists of packages.
///
/// # Errors
/// When they cannot be fetched.
pub fn update(end: Instant) -> Result<(), String> {
    eprintln!("== installing: apt-get update");
    apt_get(&["update", "-q"], end)
}

/// Whether this runs as root.
pub fn root() -> bool {
    let id = Command::new("id").arg("-u").stderr(Stdio::null()).output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_packages_are_installed() {
        assert_eq!(programs(&[("sh", "no-such-package")], Instant::now()), Ok(()));
        assert_eq!(install_command(&[("sh", "no-such-package")]), None);
        let command = install_command(&[("sh", "a"), ("no-such-program", "b"), ("/no/such/file", "b")]).unwrap();
        assert!(
            command.ends_with("apt-get install -y -q --no-install-recommends b"),
            "{command}"
        );
    }
}
