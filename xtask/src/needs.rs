//! Requirements of a step: what is missing, the command that installs it, and running that command.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use shootdown_qemu::{Arch, BARE_TARGET, BINARY, BOCHS_NEEDS, Emulator, ISO_NEEDS, PACKAGE};

use super::publish::OLDEST;
use super::{c_library, c_machine, child, debian, iso, workloads, workspace};

const GET_RUSTUP: &str = "install rustup (curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh)";

/// A requirement of a step.
#[derive(Clone, Copy)]
pub enum Need {
    /// A cargo subcommand: its name, its rustup component and its Debian package.
    Subcommand(&'static str, &'static str, &'static str),
    /// The standard library for this target, or the part that exists.
    Target(&'static str),
    /// The one for [`BARE_TARGET`], QEMU, and the tools that make and boot images.
    Kernel,
    /// The one for [`BARE_TARGET`], QEMU, Bochs, and the image tools.
    Bochs,
    /// The target of the kernel, QEMU, and a C compiler that links statically.
    Programs(Arch),
    /// The targets of the minimal kernels, and their emulators.
    Embed,
    /// The target of the kernel for another instruction set, and its emulator.
    Port(Arch),
    /// Cross compilers, their Rust targets and those of kernels, what builds the library for them, and QEMU for
    /// programs of other instruction sets.
    CMachine,
    /// The targets of the minimal kernels, and the oldest supported Rust.
    Publish,
    /// What builds Linux, and the library for it.
    Linux,
    /// Miri, which only nightly toolchains have.
    Miri,
    /// [`BARE_TARGETS`] alone.
    BareTargets,
}

/// The emulators of the minimal kernels, and firmware, each with its package.
const EMULATORS: [(&str, &str); 3] = [
    ("qemu-system-aarch64", "qemu-system-arm"),
    ("qemu-system-riscv64", "qemu-system-misc"),
    FIRMWARE[0],
];

/// What QEMU starts on RISC-V.
const FIRMWARE: [(&str, &str); 1] = [("/usr/share/qemu/opensbi-riscv64-generic-fw_dynamic.bin", "opensbi")];

/// Targets of the minimal kernels, and the others that `shootdown-cpu` is built for.
const BARE_TARGETS: [&str; 5] = [
    BARE_TARGET,
    "aarch64-unknown-none",
    "aarch64-unknown-none-softfloat",
    "riscv64gc-unknown-none-elf",
    "riscv64imac-unknown-none-elf",
];

/// Targets of the library for C: programs of other instruction sets, and kernels.
const C_TARGETS: [&str; 5] = [
    c_machine::TARGETS[0],
    c_machine::TARGETS[1],
    c_library::ARCHES[0].2,
    c_library::ARCHES[1].2,
    c_library::ARCHES[2].2,
];

/// What a build of Linux runs, each with its package.
const LINUX: [(&str, &str); 8] = [
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("perl", "perl"),
    ("xz", "xz-utils"),
    ("/usr/include/libelf.h", "libelf-dev"),
];

impl Need {
    /// Programs and files, each with the Debian package that holds it.
    fn packages(self) -> Vec<(&'static str, &'static str)> {
        let mut all = Vec::new();
        if Emulator::find().is_err() {
            all.push((BINARY, PACKAGE));
        }
        match self {
            Need::Kernel => all.extend(ISO_NEEDS.iter().chain([&iso::FIRMWARE])),
            Need::Bochs => all.extend(BOCHS_NEEDS.iter().chain(&ISO_NEEDS)),
            Need::Programs(arch) => {
                all = Need::Port(arch).packages();
                all.extend(workloads::tools(arch));
                all.push(("gcc", "gcc"));
            }
            Need::Embed => all.extend(EMULATORS.iter().chain(&c_machine::PACKAGES).chain(&c_library::PACKAGES)),
            Need::Port(arch) => {
                let mut needed = vec![(arch.binary(), arch.package())];
                if arch == Arch::Riscv64 {
                    needed.extend(FIRMWARE);
                }
                all = needed;
            }
            Need::Linux => all.extend(LINUX.iter().chain(workloads::tools(Arch::X86_64))),
            Need::CMachine => all = [&c_machine::PACKAGES[..], &c_library::PACKAGES].concat(),
            Need::Subcommand(..) | Need::Target(_) | Need::Publish | Need::Miri | Need::BareTargets => all.clear(),
        }
        all
    }

    /// The missing items that rustup adds: its arguments, and the remedy without rustup.
    fn rustup(self) -> Vec<(Vec<&'static str>, String)> {
        let port;
        let targets: &[&'static str] = match &self {
            Need::Subcommand(name, component, package) => {
                let present = quiet(workspace::cargo().args([*name, "--version"]));
                let add = (
                    vec!["component", "add", component],
                    format!("or: sudo apt-get install {package}"),
                );
                return if present { Vec::new() } else { vec![add] };
            }
            Need::Miri => {
                let present = ["run", "nightly", "cargo", "miri", "--version"];
                if quiet(Command::new("rustup").args(present)) {
                    return Vec::new();
                }
                let install = ["toolchain", "install", "nightly", "--profile", "minimal"];
                let components = ["--component", "miri", "--component", "rust-src"];
                let all = install.into_iter().chain(components).collect();
                return vec![(all, "Miri exists for nightly toolchains of rustup only".into())];
            }
            Need::Target(target) => &[*target],
            Need::Kernel | Need::Bochs | Need::Linux => &[BARE_TARGET],
            Need::Port(arch) | Need::Programs(arch) => {
                port = [arch.target()];
                &port
            }
            Need::Embed | Need::Publish | Need::BareTargets => &BARE_TARGETS,
            Need::CMachine => &C_TARGETS,
        };
        let missing = targets.iter().filter(|target| !is_installed(target));
        let add = |target: &&'static str| {
            (
                vec!["target", "add", *target],
                "distribution packages of Rust do not carry this target".to_string(),
            )
        };
        let mut all: Vec<_> = missing.map(add).collect();
        let oldest = ["run", OLDEST, "cargo", "--version"];
        if matches!(self, Need::Publish) && !quiet(Command::new("rustup").args(oldest)) {
            let install = vec!["toolchain", "install", OLDEST, "--profile", "minimal"];
            all.push((install, "without rustup the oldest Rust is not checked".into()));
        }
        if matches!(self, Need::CMachine | Need::Linux) && !has_source() {
            let add = vec!["component", "add", "rust-src"];
            all.push((add, "or: sudo apt-get install rust-src".into()));
        }
        all
    }

    /// The commands that install the missing items; none when all are present.
    pub fn missing(self) -> Vec<String> {
        let rustup = self.rustup().into_iter();
        let rustup = rustup.map(|(arguments, _)| format!("rustup {}", arguments.join(" ")));
        rustup.chain(debian::install_command(&self.packages())).collect()
    }

    /// Installs the missing items.
    ///
    /// # Errors
    /// What to install by hand, and how.
    pub fn meet(self, end: Instant) -> Result<(), String> {
        for (arguments, otherwise) in self.rustup() {
            let shown = format!("rustup {}", arguments.join(" "));
            if !quiet(Command::new("rustup").arg("--version")) {
                return Err(format!(
                    "rustup is not installed; {GET_RUSTUP} and run `{shown}`; {otherwise}"
                ));
            }
            eprintln!("== installing: {shown}");
            child::patiently(end, || child::run(Command::new("rustup").args(&arguments), end))
                .map_err(|why| format!("`{shown}` failed ({why}); check the network and run it by hand"))?;
        }
        debian::programs(&self.packages(), end)
    }
}

/// Whether a command runs and succeeds; shows nothing.
fn quiet(command: &mut Command) -> bool {
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}

/// Whether the core library's source is there, to build it anew.
fn has_source() -> bool {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let Ok(answer) = output else { return false };
    let folder = PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim());
    folder.join("lib/rustlib/src/rust/library/core").exists()
}

fn is_installed(target: &str) -> bool {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .output();
    let Ok(answer) = output else { return false };
    let folder = PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim());
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .into_iter()
        .any(|file| file.file_name().to_string_lossy().starts_with("libcore-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_need_is_shown_as_its_install_command() {
        let target = Need::Target("no-such-target");
        assert_eq!(target.missing(), ["rustup target add no-such-target"]);
        let subcommand = Need::Subcommand("no-such-subcommand", "a-component", "a-package");
        assert_eq!(subcommand.missing(), ["rustup component add a-component"]);
    }
}
