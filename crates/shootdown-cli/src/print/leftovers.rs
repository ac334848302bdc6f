//! Temporary files: their names, and the removal of those of killed processes.
//!
//! A name contains the number of the process: `.shootdown-PID-`, random letters and `.tmp`. The process holds a lock on
//! the file, which is visible from other PID namespaces too. A file without a living process or a lock is removed by
//! the next command that writes into the folder.

use std::fs::File;
use std::path::Path;

pub(super) const SUFFIX: &str = ".tmp";

const NAME: &str = ".shootdown-";

/// Prefix of the names of this process's temporary files.
pub(super) fn prefix() -> String {
    format!("{NAME}{}-", std::process::id())
}

/// Removes temporary files in `folder` whose process has ended. Errors are ignored.
pub(super) fn remove(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_left = name.to_str().and_then(owner).is_some_and(|process| !is_alive(process));
        if is_left && File::open(entry.path()).is_ok_and(|file| lock(&file)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The process that made a temporary file of this name.
fn owner(name: &str) -> Option<i32> {
    let (process, _) = name.strip_prefix(NAME)?.strip_suffix(SUFFIX)?.split_once('-')?;
    process.parse().ok()
}

/// Locks a temporary file until it is closed. False when another process has; true where there are no locks, as on some
/// network file systems.
#[cfg(unix)]
pub(super) fn lock(file: &File) -> bool {
    use rustix::fs::{FlockOperation, flock};
    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(rustix::io::Errno::WOULDBLOCK)
}

#[cfg(not(unix))]
pub(super) fn lock(_file: &File) -> bool {
    true
}

#[cfg(unix)]
fn is_alive(process: i32) -> bool {
    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};
    // A process of another user may not be signalled, but it exists.
    Pid::from_raw(process).is_none_or(|process| test_kill_process(process) != Err(Errno::SRCH))
}

#[cfg(not(unix))]
fn is_alive(_process: i32) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn only_files_of_ended_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        // No system has so many processes.
        let names = [
            format!("{NAME}{}-abc{SUFFIX}", i32::MAX),
            format!("{}abc{SUFFIX}", prefix()),
            format!("{NAME}old{SUFFIX}"),
            "mine.tmp".to_string(),
            format!("{NAME}{}-locked{SUFFIX}", i32::MAX),
        ];
        for name in &names {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let used = File::open(folder.path().join(&names[4])).unwrap();
        assert!(lock(&used));
        remove(folder.path());
        let there = names.map(|name| folder.path().join(name).exists());
        assert_eq!(there, [false, true, true, true, true]);
    }
}
