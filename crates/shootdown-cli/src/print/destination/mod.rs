//! Output files: checked before anything runs, and given their name only once they are complete.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::{Builder, NamedTempFile};

use super::leftovers;
use crate::failure::{Failure, reason};

pub use kind::{Kind, allow_overwriting, may_overwrite};

mod kind;

/// Default file name of the report.
const DEFAULT_REPORT: &str = "shootdown-report.html";

/// A file that can be written, checked before anything is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The option that named it.
    option: String,
    shown: PathBuf,
    path: PathBuf,
}

impl Destination {
    /// Checks that `path`, given with the option `option`, can be written, and removes the temporary files that killed
    /// runs left beside it. An existing file must be of this kind, or `--force` be given.
    ///
    /// # Errors
    /// One line with the option, the path and the obstacle.
    pub fn new(option: &str, path: &Path, kind: Kind) -> Result<Self, Failure> {
        let fail = |reason: String| Failure::Input(format!("{option} {}: {reason}", path.display()));
        if path == Path::new("-") {
            let what = "a file is written, not standard output; name a file (./- if that is its name)";
            return Err(fail(what.to_string()));
        }
        // Through a symbolic link the target is replaced, not the link.
        let target = match fs::metadata(path) {
            Ok(data) if data.is_dir() => {
                return Err(fail("is a folder; name a file in it".to_string()));
            }
            Ok(data) if !data.is_file() => {
                return Err(fail("is not a regular file; choose another path".to_string()));
            }
            Ok(_) => fs::canonicalize(path).map_err(|error| fail(error.to_string()))?,
            Err(_) if path.file_name().is_none() => {
                return Err(fail("is not the name of a file".to_string()));
            }
            Err(_) => path.to_path_buf(),
        };
        if !kind.may_replace(&target) {
            return Err(fail(format!(
                "exists and is no {kind} of this program; choose another path, or add --force to overwrite it"
            )));
        }
        let destination = Self {
            option: option.to_string(),
            shown: path.to_path_buf(),
            path: target,
        };
        let folder = destination.folder();
        if !folder.is_dir() {
            return Err(fail(format!(
                "there is no folder `{}`; create it or choose another path",
                folder.display()
            )));
        }
        leftovers::remove(folder);
        destination.temporary().map_err(|error| {
            fail(format!(
                "cannot write in `{}` ({}); choose another path",
                folder.display(),
                reason(&error)
            ))
        })?;
        Ok(destination)
    }

    /// As [`new`](Self::new), where `path` must not be one of `inputs`, which would be lost. An input may be any word,
    /// also one that is no file name.
    ///
    /// # Errors
    /// As [`new`](Self::new), and one line when it is an input.
    pub fn apart_from(option: &str, path: &Path, kind: Kind, inputs: &[&Path]) -> Result<Self, Failure> {
        let target = fs::canonicalize(path).ok();
        let is_input = |input: &&Path| target.is_some() && fs::canonicalize(input).ok() == target;
        if inputs.iter().any(is_input) {
            let path = path.display();
            return Err(Failure::Input(format!(
                "{option} {path}: is what is read; choose another path"
            )));
        }
        Self::new(option, path, kind)
    }

    /// The first writable place for a report without a given path: the build folder of the Cargo workspace around the
    /// current folder, the current folder, the folder for temporary files.
    ///
    /// # Errors
    /// One line when none of them can be written.
    pub fn default_report() -> Result<Self, Failure> {
        let current = env::current_dir().unwrap_or_default();
        let build = build_folder(&current).filter(|folder| fs::create_dir_all(folder).is_ok());
        let mut failure = None;
        for folder in [build, Some(PathBuf::new()), Some(env::temp_dir())]
            .into_iter()
            .flatten()
        {
            let path = folder.join(DEFAULT_REPORT);
            let shown = path.strip_prefix(&current).map(Path::to_path_buf).unwrap_or(path);
            match Self::new("report", &shown, Kind::Page) {
                Ok(destination) => return Ok(destination),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("there were places to try"))
    }

    /// The path as it is shown to people.
    pub fn shown(&self) -> String {
        self.shown.display().to_string()
    }

    /// The file itself: the target, where the path is a symbolic link.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error when it cannot be written.
    pub fn unwritten(&self, why: &str) -> Failure {
        Failure::Output(format!(
            "{} {}: {why}; the file is not written; free some space, or choose another path",
            self.option,
            self.shown()
        ))
    }

    /// Writes `content` to a temporary file beside the destination, then renames it: no reader ever sees half of it.
    ///
    /// # Errors
    /// One line naming the path; [`Failure::Interrupted`] when `stop` was set before the file was complete.
    pub fn write(&self, content: impl AsRef<[u8]>, stop: &AtomicBool) -> Result<(), Failure> {
        self.write_by(stop, |file| {
            file.write_all(content.as_ref())
                .map_err(|error| self.unwritten(&reason(&error)))
        })
    }

    /// As [`write`](Self::write), with `produce` writing the content in pieces; returns its result.
    ///
    /// # Errors
    /// As [`write`](Self::write), and the errors of `produce`: then there is no file.
    pub fn write_by<T>(
        &self,
        stop: &AtomicBool,
        produce: impl FnOnce(&mut fs::File) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let fail = |error: io::Error| self.unwritten(&reason(&error));
        let mut file = self.temporary().map_err(fail)?;
        let produced = produce(file.as_file_mut())?;
        file.as_file().sync_all().map_err(fail)?;
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        file.persist(&self.path).map_err(|error| fail(error.error))?;
        Ok(produced)
    }

    /// Lets `look` use a temporary file in the same folder, which is removed afterwards.
    ///
    /// # Errors
    /// When there can be none, and the errors of `look`.
    pub fn try_out<T>(&self, look: impl FnOnce(&mut fs::File) -> io::Result<T>) -> io::Result<T> {
        look(self.temporary()?.as_file_mut())
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// A temporary file in the same folder (renaming works only within a file system), removed unless persisted.
    fn temporary(&self) -> io::Result<NamedTempFile> {
        let prefix = leftovers::prefix();
        let mut builder = Builder::new();
        builder.prefix(&prefix).suffix(leftovers::SUFFIX);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // As any program creates files; the process's umask still applies.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let file = builder.tempfile_in(self.folder())?;
        // No other process has the file yet.
        leftovers::lock(file.as_file());
        Ok(file)
    }
}

/// The build folder of the nearest Cargo workspace that holds `current`, if there is one.
fn build_folder(current: &Path) -> Option<PathBuf> {
    let root = current.ancestors().find(|folder| {
        fs::read_to_string(folder.join("Cargo.toml"))
            .is_ok_and(|text| text.lines().any(|line| line.trim() == "[workspace]"))
    })?;
    Some(env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from))
}

#[cfg(test)]
mod tests;
