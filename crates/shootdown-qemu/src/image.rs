//! The kernel's image: built from the checkout, or given.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use crate::arch::Arch;
use crate::program::{self, NotDone};

/// The target that the kernel is built for.
pub const BARE_TARGET: &str = "x86_64-unknown-none";

/// The kernel's place, and how it is built.
#[derive(Debug, Clone)]
pub struct Image {
    folder: PathBuf,
    faults: bool,
    arch: Arch,
}

impl Image {
    /// The kernel of the checkout around `start`.
    ///
    /// # Errors
    /// One line, when there is none.
    pub fn around(start: &Path) -> Result<Image, String> {
        let found = start.ancestors().find(|folder| {
            let manifest = std::fs::read_to_string(folder.join("kernel/Cargo.toml"));
            manifest.is_ok_and(|text| text.contains("name = \"shootdown-kernel\""))
        });
        match found {
            Some(folder) => Ok(Image {
                folder: folder.join("kernel"),
                faults: false,
                arch: Arch::X86_64,
            }),
            None => Err(format!(
                "no kernel/ in or above {}: run this inside a checkout of the project",
                start.display()
            )),
        }
    }

    /// With the engine that holds the known bugs.
    pub fn with_faults(self) -> Image {
        Image { faults: true, ..self }
    }

    /// For that instruction set.
    pub fn of(self, arch: Arch) -> Image {
        Image { arch, ..self }
    }

    /// The command that builds it. Its output is Cargo's.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args([
                "build",
                "--release",
                "--locked",
                "--target",
                self.arch.target(),
                "--target-dir",
            ])
            .arg(self.target())
            .current_dir(&self.folder)
            // They would replace the flags of the kernel's own configuration.
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("CARGO_BUILD_TARGET");
        if self.faults {
            command.args(["--features", "known-bugs"]);
        }
        command
    }

    /// Builds it, quietly unless that fails, and ends Cargo with its children when `stop` is set.
    ///
    /// # Errors
    /// Cargo's output, and what to install when the target is missing; [`NotDone::Stopped`].
    pub fn build(&self, stop: &AtomicBool) -> Result<PathBuf, NotDone> {
        let (status, text) = program::run(&mut self.command(), stop)?;
        if status.success() {
            return Ok(self.path());
        }
        if text.contains("can't find crate for `core`") {
            return Err(NotDone::Failed(format!(
                "the target {target} is not installed: rustup target add {target}",
                target = self.arch.target()
            )));
        }
        Err(NotDone::Failed(format!(
            "building {} failed:\n{text}",
            self.folder.display()
        )))
    }

    /// Its path once it is built.
    pub fn path(&self) -> PathBuf {
        self.target().join(self.arch.target()).join("release/shootdown-kernel")
    }

    /// The checkout that it is in.
    pub fn checkout(&self) -> &Path {
        self.folder.parent().expect("it is kernel/ of a checkout")
    }

    /// In separate folders, or each build would undo the other's.
    fn target(&self) -> PathBuf {
        self.folder.join(if self.faults { "target/faults" } else { "target" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_is_found_only_within_the_checkout() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let image = Image::around(here).expect("this is the checkout");
        assert!(
            image
                .path()
                .starts_with(here.join("../../kernel").canonicalize().unwrap())
        );
        assert_ne!(image.path(), image.clone().with_faults().path());
        assert!(Image::around(Path::new("/")).is_err_and(|error| error.contains("checkout")));
    }
}
