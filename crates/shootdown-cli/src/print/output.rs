//! Where results go: stdout, and files that only get their name once they are complete.

use std::env;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::{Builder, NamedTempFile};

use super::terminal;
use crate::failure::Failure;

/// File name of the report when none was chosen.
const DEFAULT_REPORT: &str = "shootdown-report.html";

/// Prints text for people: as [`print`], with lines that are longer than the terminal broken between words.
///
/// # Errors
/// As [`print`].
pub fn show(text: &str) -> Result<(), Failure> {
    print(&terminal::fit(text, terminal::get()))
}

/// Prints a document for programs as it is, text for people as [`show`] does.
///
/// # Errors
/// As [`print`].
pub fn print_as(document: bool, text: &str) -> Result<(), Failure> {
    if document { print(text) } else { show(text) }
}

/// Prints to stdout as it is, for programs; a reader that has gone away is not an error.
///
/// # Errors
/// One line when stdout cannot take it for another reason, such as a full disk.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Input(format!("stdout: {error}"))),
        _ => Ok(()),
    }
}

/// Says something that is no result, on stderr; nobody listening is no error.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A file that can be written, checked before anything is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    shown: PathBuf,
    path: PathBuf,
}

impl Destination {
    /// Checks that `path`, given with the option `option`, can be written.
    ///
    /// # Errors
    /// One line naming the option, the path, and what is in the way.
    pub fn new(option: &str, path: &Path) -> Result<Self, Failure> {
        let fail = |reason: String| Failure::Input(format!("{option} {}: {reason}", path.display()));
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
        let destination = Self {
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
        destination.temporary().map_err(|error| {
            fail(format!(
                "cannot write in `{}` ({}); choose another path",
                folder.display(),
                reason(&error)
            ))
        })?;
        Ok(destination)
    }

    /// As [`new`](Self::new), where `path` must not be that of one of `inputs`: what was read would be lost. An input may be any
    /// word, also one that names no file.
    ///
    /// # Errors
    /// As [`new`](Self::new), and one line when it is an input.
    pub fn apart_from(option: &str, path: &Path, inputs: &[&Path]) -> Result<Self, Failure> {
        let destination = Self::new(option, path)?;
        // A file that exists is canonical already.
        let is_input = |input: &&Path| fs::canonicalize(input).is_ok_and(|input| input == destination.path);
        if inputs.iter().any(is_input) {
            let path = path.display();
            return Err(Failure::Input(format!(
                "{option} {path}: is what is read; choose another path"
            )));
        }
        Ok(destination)
    }

    /// The first writable place for a report nobody chose a place for: the build folder of the Cargo workspace around
    /// the current folder, the current folder, the folder for temporary files.
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
            match Self::new("report", &shown) {
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

    /// Writes `content` to a temporary file beside the destination, then renames it: nobody ever sees half of it.
    ///
    /// # Errors
    /// One line naming the path; [`Failure::Interrupted`] when `stop` was set before the file was complete.
    pub fn write(&self, content: impl AsRef<[u8]>, stop: &AtomicBool) -> Result<(), Failure> {
        self.write_by(stop, |file| {
            let fail = |error: io::Error| Failure::Input(format!("{}: {error}", self.shown()));
            file.write_all(content.as_ref()).map_err(fail)
        })
    }

    /// As [`write`](Self::write), with `produce` writing the content bit by bit; returns what it returns.
    ///
    /// # Errors
    /// As [`write`](Self::write), and what `produce` fails with: then there is no file.
    pub fn write_by<T>(
        &self,
        stop: &AtomicBool,
        produce: impl FnOnce(&mut fs::File) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let fail = |error: io::Error| Failure::Input(format!("{}: {error}", self.shown()));
        let mut file = self.temporary().map_err(fail)?;
        let produced = produce(file.as_file_mut())?;
        file.as_file().sync_all().map_err(fail)?;
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        file.persist(&self.path).map_err(|error| fail(error.error))?;
        Ok(produced)
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// A temporary file in the same folder (renaming works only within a file system), removed unless persisted.
    fn temporary(&self) -> io::Result<NamedTempFile> {
        let mut builder = Builder::new();
        builder.prefix(".shootdown-").suffix(".tmp");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // As any program creates files; the process's umask still applies.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        builder.tempfile_in(self.folder())
    }
}

/// Why, without the name of the temporary file, which nobody asked for.
fn reason(error: &io::Error) -> String {
    io::Error::from(error.kind()).to_string()
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
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn checking_a_destination_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        Destination::new("--html", &folder.path().join("r.html")).unwrap();
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn writing_replaces_the_whole_file_and_leaves_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.html");
        fs::write(&path, "old and longer").unwrap();
        let destination = Destination::new("--html", &path).unwrap();
        destination.write("new", &AtomicBool::new(false)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(folder.path()), ["r.html"]);
    }

    #[test]
    fn an_interrupt_leaves_the_old_file_and_no_partial_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.html");
        fs::write(&path, "old").unwrap();
        let destination = Destination::new("--html", &path).unwrap();
        assert_eq!(
            destination.write("new", &AtomicBool::new(true)),
            Err(Failure::Interrupted)
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["r.html"]);
    }

    #[test]
    #[cfg(unix)]
    fn through_a_link_the_target_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("real.html"), "old").unwrap();
        let link = folder.path().join("link.html");
        std::os::unix::fs::symlink("real.html", &link).unwrap();
        Destination::new("--html", &link)
            .unwrap()
            .write("new", &AtomicBool::new(false))
            .unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(folder.path().join("real.html")).unwrap(), "new");
    }

    #[test]
    fn folders_and_missing_folders_are_refused_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let text = |path: &Path| Destination::new("--html", path).unwrap_err().to_string();
        assert!(text(folder.path()).ends_with(": is a folder; name a file in it"));
        assert!(text(&folder.path().join("no/r.html")).ends_with("create it or choose another path"));
    }

    #[test]
    fn what_is_read_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let (input, link) = (folder.path().join("in.txt"), folder.path().join("link"));
        fs::write(&input, "recorded").unwrap();
        std::os::unix::fs::symlink(&input, &link).unwrap();
        let over = |path: &Path| Destination::apart_from("--html", path, &[Path::new("milan-72"), &input]);
        for path in [&input, &link] {
            let line = over(path).unwrap_err().to_string();
            assert!(line.ends_with(": is what is read; choose another path"), "{line}");
        }
        over(&folder.path().join("out.html")).unwrap();
    }

    #[test]
    fn the_build_folder_is_that_of_the_workspace_around() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("crates/a");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("Cargo.toml"), "[package]\n").unwrap();
        fs::write(folder.path().join("Cargo.toml"), "[workspace]\n").unwrap();
        let expected = env::var_os("CARGO_TARGET_DIR").map_or_else(|| folder.path().join("target"), PathBuf::from);
        assert_eq!(build_folder(&inner), Some(expected));
    }
}
