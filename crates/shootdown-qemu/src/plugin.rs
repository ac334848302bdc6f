//! The plugin that counts executed instructions (`xtask/plugin`): compiled for the QEMU that is installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use serde::Deserialize;

use crate::needs;
use crate::program::{self, NotDone};
use crate::version::Version;

/// The compiler, with its package.
const COMPILER: [(&str, &str); 1] = [("gcc", "gcc")];

/// A compiled plugin.
#[derive(Debug, Clone)]
pub struct Plugin {
    file: PathBuf,
    out: PathBuf,
}

/// What it counted between two marks of the guest.
#[derive(Debug, Clone, Deserialize)]
pub struct Window {
    /// Executions on all CPUs of each instruction of a shootdown, by name: `tlbi_broadcast`, `dsb`, `sgi`, ...
    pub operations: BTreeMap<String, u64>,
    /// Each CPU.
    pub cpus: Vec<CpuCounts>,
}

/// The counts of one CPU.
#[derive(Debug, Clone, Deserialize)]
pub struct CpuCounts {
    /// Its number.
    pub cpu: u32,
    /// Executed instructions, without those of RISC-V's machine mode.
    pub instructions: u64,
    /// Those of machine mode.
    pub firmware: u64,
    /// Each span that it executed.
    pub spans: Vec<SpanCounts>,
}

/// The counts of one span on one CPU, instructions.
#[derive(Debug, Clone, Deserialize)]
pub struct SpanCounts {
    /// As the argument names it.
    pub name: String,
    /// Executions.
    pub times: u64,
    /// Sum of all, without waiting.
    pub sum: u64,
    /// Executions with a PAUSE (YIELD, WFI): those in which the CPU waited, even for a single look.
    pub waits: u64,
    /// Sum in wait loops.
    pub waiting: u64,
    /// Sum in machine mode.
    pub firmware: u64,
    /// The least.
    pub least: u64,
    /// The median.
    pub median: u64,
    /// The most.
    pub most: u64,
}

impl Plugin {
    /// Compiles it from the checkout `root` for QEMU of that version, into `folder`.
    ///
    /// # Errors
    /// What to install; the compiler's message; [`NotDone::Stopped`].
    pub fn build(root: &Path, version: Version, folder: &Path, stop: &AtomicBool) -> Result<Plugin, NotDone> {
        needs::are_met(&COMPILER, "apt-get install -y --no-install-recommends gcc libc6-dev")?;
        let source = root.join("xtask/plugin/spans.c");
        let place = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(place)?;
        let folder = folder.canonicalize().map_err(place)?;
        // Whole or not at all, because another run may have it open.
        let (file, aside) = (
            folder.join("spans.so"),
            folder.join(format!("{}.tmp", std::process::id())),
        );
        let mut compiler = Command::new("gcc");
        compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden"]);
        compiler.arg(format!("-DPLUGIN_VERSION={}", interface(version)));
        compiler.arg("-o").arg(&aside).arg(&source);
        let (status, stderr) = program::run(&mut compiler, stop)?;
        if !status.success() {
            return Err(NotDone::Failed(format!(
                "cannot compile {}: {stderr}",
                source.display()
            )));
        }
        std::fs::rename(&aside, &file).map_err(place)?;
        let out = folder.join(format!("{}.jsonl", std::process::id()));
        Ok(Plugin { file, out })
    }

    /// QEMU's argument for it, with the spans that it counts.
    pub fn argument(&self, spans: &[String]) -> String {
        let spans: String = spans.iter().map(|span| format!(",{span}")).collect();
        format!("{},out={}{spans}", self.file.display(), self.out.display())
    }

    /// The windows of the last run. Its file is removed.
    ///
    /// # Errors
    /// When the file cannot be read, or is not what the plugin writes.
    pub fn take(&self) -> Result<Vec<Window>, String> {
        let place = |error: &dyn std::fmt::Display| format!("{}: {error}", self.out.display());
        let text = std::fs::read_to_string(&self.out).map_err(|error| place(&error))?;
        let _ = std::fs::remove_file(&self.out);
        windows(&text).map_err(|error| place(&error))
    }
}

/// Reads a line of JSON for each window.
fn windows(text: &str) -> serde_json::Result<Vec<Window>> {
    text.lines().map(serde_json::from_str).collect()
}

/// The requested version of the plugin interface: each QEMU accepts a range.
fn interface(qemu: Version) -> u32 {
    match qemu {
        Version(..=8, _) => 1,
        Version(9, 0) => 2,
        Version(9.., _) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plugin_line_is_a_window() {
        let line = r#"{"operations":{"dsb":4},"cpus":[{"cpu":1,"instructions":9,"firmware":0,"spans":[]}]}"#;
        let found = windows(&format!("{line}\n{line}\n")).expect("two windows");
        assert_eq!(
            (found.len(), found[1].operations["dsb"], found[0].cpus[0].instructions),
            (2, 4, 9)
        );
        assert!(windows("").is_ok_and(|none| none.is_empty()));
        assert!(windows("no").is_err());
    }

    #[test]
    fn plugin_interface_matches_the_qemu_version() {
        for (qemu, version) in [
            (Version(7, 2), 1),
            (Version(8, 2), 1),
            (Version(9, 0), 2),
            (Version(9, 1), 3),
            (Version(10, 0), 3),
        ] {
            assert_eq!(interface(qemu), version);
        }
    }
}
