//! The plugin that counts executed instructions (`xtask/plugin`): compiled for the QEMU that is installed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

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
        let (status, said) = program::run(&mut compiler, stop)?;
        if !status.success() {
            return Err(NotDone::Failed(format!("cannot compile {}: {said}", source.display())));
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

    /// What it wrote in the last run: a line of JSON for each window. Its file is removed.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn take(&self) -> Result<String, String> {
        let text = std::fs::read_to_string(&self.out).map_err(|error| format!("{}: {error}", self.out.display()));
        let _ = std::fs::remove_file(&self.out);
        text
    }
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
    fn each_qemu_is_asked_for_an_interface_that_it_has() {
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
