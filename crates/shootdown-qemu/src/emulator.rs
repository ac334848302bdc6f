//! QEMU: whether it is installed and new enough.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::arch::Arch;
use crate::plugin::Plugin;
use crate::version::Version;

/// The program.
pub const BINARY: &str = "qemu-system-x86_64";
/// Its Debian and Ubuntu package.
pub const PACKAGE: &str = "qemu-system-x86";
/// The command for its installation.
pub const INSTALL: &str = "apt-get install -y --no-install-recommends qemu-system-x86";
/// The oldest tested version: Debian 12's.
pub const OLDEST: Version = Version(7, 2);

/// A QEMU that can be used.
#[derive(Debug, Clone)]
pub struct Emulator {
    pub(crate) program: PathBuf,
    pub(crate) arch: Arch,
    /// The suffix of the board's name.
    pub(crate) board: &'static str,
    /// A processor other than the one with all features.
    pub(crate) processor: Option<&'static str>,
    /// What counts instructions, if any.
    pub(crate) plugin: Option<Plugin>,
    /// Its version.
    pub version: Version,
}

impl Emulator {
    /// Asks the QEMU on the search path.
    ///
    /// # Errors
    /// One line with the package, the version and the command that installs it.
    pub fn find() -> Result<Emulator, String> {
        Emulator::of(Arch::X86_64)
    }

    /// Queries the QEMU of that instruction set on the search path.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn of(arch: Arch) -> Result<Emulator, String> {
        Emulator::probed(arch, PathBuf::from(arch.binary()))
    }

    /// With this option of the board, in QEMU's syntax: `,virtualization=on`.
    pub fn with_board(self, board: &'static str) -> Emulator {
        Emulator { board, ..self }
    }

    /// With this processor under translation, in QEMU's syntax.
    pub fn with_processor(self, name: &'static str) -> Emulator {
        Emulator {
            processor: Some(name),
            ..self
        }
    }

    /// With this plugin in runs that count instructions.
    pub fn with_plugin(self, plugin: Plugin) -> Emulator {
        Emulator {
            plugin: Some(plugin),
            ..self
        }
    }

    /// Asks the QEMU at `program`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn at(program: PathBuf) -> Result<Emulator, String> {
        Emulator::probed(Arch::X86_64, program)
    }

    fn probed(arch: Arch, program: PathBuf) -> Result<Emulator, String> {
        let (package, install) = (arch.package(), arch.install());
        let probed = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
        let answer = probed.map_err(|error| {
            format!(
                "{} cannot be run ({error}): install package {package} {OLDEST} or newer: sudo {install}",
                program.display()
            )
        })?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let first = text.lines().next().unwrap_or_default();
        match version(first) {
            Some(version) if version >= OLDEST => Ok(Emulator {
                program,
                arch,
                board: "",
                processor: None,
                plugin: None,
                version,
            }),
            Some(version) => Err(format!(
                "{} is version {version}; {OLDEST} or newer is needed: a newer package {package} (sudo {install})",
                program.display()
            )),
            None => Err(format!(
                "{} does not say its version, but {:?}; expected QEMU {OLDEST} or newer, package {package}",
                program.display(),
                first
            )),
        }
    }
}

/// Reads `QEMU emulator version 7.2.22 (Debian ...)`.
fn version(line: &str) -> Option<Version> {
    let rest = line.split_once("version ")?.1;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some(Version(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared_as_numbers() {
        let of = |line| version(line).expect("a version");
        assert_eq!(of("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"), Version(7, 2));
        assert_eq!(of("QEMU emulator version 10.0.2"), Version(10, 0));
        assert!(Version(10, 0) > Version(7, 2));
        assert_eq!(version("no such thing"), None);
    }

    #[test]
    fn missing_qemu_error_names_package_version_and_command() {
        let error = Emulator::at("/nowhere/qemu-system-x86_64".into()).expect_err("there is none");
        for word in [PACKAGE, "7.2", INSTALL] {
            assert!(error.contains(word), "{error}");
        }
    }
}
