//! The guests: a kernel file and its command line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use shootdown_qemu::Arch;

use super::{child, kernel_package, machine, spans};
use crate::needs::Need;
use crate::workspace;

/// A kernel that runs the programs.
#[derive(Debug)]
pub struct Guest {
    /// Its instruction set.
    pub arch: Arch,
    /// The file for `-kernel`.
    pub kernel: PathBuf,
    /// Its name in the table: `Linux`, or the design.
    pub name: String,
    /// Its package and version, or its folder.
    pub origin: String,
    /// The design of this project's kernel.
    design: Option<String>,
}

/// The shootdown interrupt of this kernel, and the one that emulates a broadcast (kernel/src/arch/x86_64/traps.rs);
/// bytes of an entry.
const VECTORS: [u64; 2] = [0xF0, 0xF1];
const ENTRY_BYTES: u64 = 16;

/// Suffix of the name of a design that is compiled in: then it is a feature of the kernel.
const ONLY: &str = "-only";

impl Guest {
    /// Debian's kernel, downloaded if missing.
    ///
    /// # Errors
    /// When it is not available.
    pub fn linux(arch: Arch, named: Option<&str>, end: Instant) -> Result<Guest, String> {
        let archive = kernel_package::Archive::of(arch);
        let package = archive.find(named, end)?;
        let folder = workspace::root().join("target/linux-baseline");
        let boot = archive.unpacked(&package, &folder, end)?.join("boot");
        let files = std::fs::read_dir(&boot).map_err(|error| format!("{}: {error}", boot.display()))?;
        let kernel = files
            .filter_map(|file| Some(file.ok()?.path()))
            .find(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("vmlinu"))
            })
            .ok_or_else(|| format!("{} holds no kernel; name a kernel package by --kernel", boot.display()))?;
        Ok(Guest {
            arch,
            kernel,
            name: "Linux".into(),
            origin: format!("{} {}", package.name, package.version),
            design: None,
        })
    }

    /// A Linux for x86-64 that was built here.
    pub fn built(kernel: PathBuf, name: &str, origin: &str) -> Guest {
        Guest {
            arch: Arch::X86_64,
            kernel,
            name: name.into(),
            origin: origin.into(),
            design: None,
        }
    }

    /// The kernel of this project under each of these designs, built if missing.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn ours(arch: Arch, designs: &[String], end: Instant) -> Result<Vec<Guest>, String> {
        if designs.is_empty() {
            return Ok(Vec::new());
        }
        Need::Target(arch.target()).meet(end)?;
        designs
            .iter()
            .map(|design| Guest::of_design(arch, design, end))
            .collect()
    }

    fn of_design(arch: Arch, name: &str, end: Instant) -> Result<Guest, String> {
        let folder = workspace::root().join("kernel");
        let mut build = workspace::cargo();
        build.args(["build", "--release", "--quiet", "--target", arch.target()]);
        build.current_dir(&folder);
        // A design that is compiled in has a separate build, or each would undo the other's.
        let (design, target) = match name.strip_suffix(ONLY) {
            Some(design) => {
                build.args(["--features", name, "--target-dir", &format!("target/{name}")]);
                (design, folder.join("target").join(name))
            }
            None => (name, folder.join("target")),
        };
        child::output(&mut build, end).map_err(|why| format!("`cargo build --release` in kernel/ failed: {why}"))?;
        Ok(Guest {
            arch,
            kernel: target.join(arch.target()).join("release/shootdown-kernel"),
            name: name.into(),
            origin: "kernel/".into(),
            design: Some(design.into()),
        })
    }

    /// Its command line.
    pub fn append(&self, counted: bool) -> String {
        let counted = if counted { " icount=0" } else { "" };
        match &self.design {
            None => machine::linux(self.arch),
            Some(design) => format!("workload=linux design={design}{counted}"),
        }
    }

    /// QEMU's exit status on success.
    pub fn good_status(&self) -> i32 {
        // This kernel ends the emulator through a device that turns n into the status 2 n + 1.
        if self.design.is_some() { 33 } else { 0 }
    }

    /// Whether it is Linux.
    pub fn is_linux(&self) -> bool {
        self.design.is_none()
    }

    /// Whether functions have to be located in the running kernel.
    pub fn reports_symbols(&self) -> bool {
        self.design.is_none() && self.arch != Arch::Aarch64
    }

    /// The counted spans, as arguments of the plugin. `symbols` are those that the running kernel reported.
    ///
    /// # Errors
    /// When it lacks a function: then a shootdown uses other functions, and the counts would be meaningless.
    pub fn spans(&self, symbols: &BTreeMap<String, u64>, end: Instant) -> Result<Vec<String>, String> {
        if self.design.is_none() {
            return spans::of_linux(self.arch, symbols);
        }
        let listing = child::output(Command::new("nm").arg(&self.kernel), end)?;
        let at = |symbol: &str| {
            let line = listing.lines().find(|line| line.ends_with(&format!(" {symbol}")));
            let address = line.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok());
            address.ok_or_else(|| format!("{} has no symbol {symbol}", self.kernel.display()))
        };
        // Where the compiler has put the engine's handler into the entry, shootdowns cannot be told from timers.
        let on_ipi = {
            let named = |line: &&str| line.contains("handler") && line.contains("6on_ipi");
            let line = listing.lines().find(named);
            line.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok())
        };
        let handlers = match self.arch {
            Arch::X86_64 => {
                let entries = at("trap_entries")?;
                VECTORS.map(|vector| (entries + vector * ENTRY_BYTES, None)).to_vec()
            }
            // From the kernel, and from user code.
            Arch::Aarch64 => {
                let vectors = at("trap_vectors")?;
                let places = [0x280, 0x480].map(|offset| vectors + offset);
                on_ipi.map_or(Vec::new(), |via| places.map(|place| (place, Some(via))).to_vec())
            }
            Arch::Riscv64 => {
                let entry = at("trap_entry")?;
                on_ipi.map_or(Vec::new(), |via| vec![(entry, Some(via))])
            }
        };
        let mut all = spans::of(at("shootdown_flush")?, &handlers);
        if self.arch == Arch::Aarch64 {
            all.push(spans::barriers());
        }
        Ok(all)
    }
}
