//! What is booted: a kernel file and its command line.

use std::path::PathBuf;
use std::time::Instant;

use super::debian;
use crate::steps;

/// A kernel that runs the programs.
#[derive(Debug)]
pub struct Guest {
    /// The file for `-kernel`.
    pub kernel: PathBuf,
    /// The command line.
    pub append: &'static str,
    /// The package and version that it is from.
    pub package: String,
}

/// What every Linux is booted with: no workarounds for processor bugs (`mitigations=off`), small pages only, as the
/// simulator's workloads have them, and functions at the addresses of the symbol table.
const LINUX: &str =
    "console=ttyS0 quiet panic=-1 mitigations=off transparent_hugepage=never nokaslr norandmaps rdinit=/init";

impl Guest {
    /// Debian's kernel, downloaded unless it is there already.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn linux(named: Option<&str>, end: Instant) -> Result<Guest, String> {
        let package = match named {
            Some(name) => debian::package(name, end)?,
            None => debian::newest_kernel(end)?,
        };
        let folder = steps::root().join("target/linux-baseline");
        let place = folder.join(format!("{}_{}", package.name, package.version.replace(':', "_")));
        if !place.is_dir() {
            eprintln!("== downloading {} {}", package.name, package.version);
            // Whole or not at all: unpacked aside, then renamed.
            let aside = folder.join(format!("{}.tmp", std::process::id()));
            std::fs::create_dir_all(&aside).map_err(|error| format!("{}: {error}", aside.display()))?;
            let unpacked = debian::unpack(&package, &aside, end).and_then(|()| {
                std::fs::rename(&aside, &place).map_err(|error| format!("{}: {error}", place.display()))
            });
            if unpacked.is_err() {
                let _ = std::fs::remove_dir_all(&aside);
            }
            unpacked?;
        }
        let boot = place.join("boot");
        let files = std::fs::read_dir(&boot).map_err(|error| format!("{}: {error}", boot.display()))?;
        let kernel = files
            .filter_map(|file| Some(file.ok()?.path()))
            .find(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
            })
            .ok_or_else(|| format!("{} holds no vmlinuz; name a kernel package by --kernel", boot.display()))?;
        Ok(Guest {
            kernel,
            append: LINUX,
            package: format!("{} {}", package.name, package.version),
        })
    }
}
