//! The files of a guest: init, the programs, the plan, the names of the functions to locate.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, ModeFileType, trailer};

use super::spans;

/// One run of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The program.
    pub workload: String,
    /// Its threads.
    pub threads: u32,
    /// Its arguments: `2 --ops 2000`.
    pub arguments: String,
}

impl Planned {
    /// The line of /plan.
    fn line(&self) -> String {
        format!("/{} {}\n", self.workload, self.arguments)
    }
}

/// A file of the guest, executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFile {
    /// Its path there, without the first slash.
    pub path: String,
    /// Where its content is.
    pub from: PathBuf,
}

/// The archive, uncompressed.
///
/// # Errors
/// When a program cannot be read.
pub fn archive(programs: &Path, plan: &[Planned], files: &[GuestFile]) -> Result<Vec<u8>, String> {
    let mut archive = Vec::new();
    let mut add = |name: &str, kind: ModeFileType, mode: u32, device: (u32, u32), content: &[u8]| {
        let entry = Builder::new(name)
            .mode(mode)
            .set_mode_file_type(kind)
            .rdev_major(device.0)
            .rdev_minor(device.1);
        let mut writer = entry.write(&mut archive, content.len() as u32);
        writer
            .write_all(content)
            .and_then(|()| writer.finish().map(drop))
            .map_err(|error| format!("{name}: {error}"))
    };
    let folders: BTreeSet<&Path> = files
        .iter()
        .flat_map(|file| Path::new(&file.path).ancestors().skip(1))
        .collect();
    let folders = folders.iter().filter_map(|folder| folder.to_str());
    for folder in ["dev", "proc"]
        .into_iter()
        .chain(folders.filter(|folder| !folder.is_empty()))
    {
        add(folder, ModeFileType::Directory, 0o755, (0, 0), &[])?;
    }
    for (name, device) in [("dev/console", (5, 1)), ("dev/null", (1, 3)), ("dev/ttyS1", (4, 65))] {
        add(name, ModeFileType::Char, 0o600, device, &[])?;
    }
    let mut names: Vec<&str> = plan.iter().map(|run| run.workload.as_str()).chain(["init"]).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| files.iter().all(|file| file.path != *name));
    let programs = names.into_iter().map(|name| (name, programs.join(name)));
    let files = files.iter().map(|file| (file.path.as_str(), file.from.clone()));
    for (name, from) in programs.chain(files) {
        let content = std::fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?;
        add(name, ModeFileType::Regular, 0o755, (0, 0), &content)?;
    }
    let lines: String = plan.iter().map(Planned::line).collect();
    add("plan", ModeFileType::Regular, 0o644, (0, 0), lines.as_bytes())?;
    let symbols = spans::SYMBOLS.join("\n") + "\n";
    add("symbols", ModeFileType::Regular, 0o644, (0, 0), symbols.as_bytes())?;
    trailer(archive).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_lists_programs_with_arguments() {
        let run = Planned {
            workload: "mmap".into(),
            threads: 2,
            arguments: "2 --ops 100".into(),
        };
        assert_eq!(run.line(), "/mmap 2 --ops 100\n");
    }

    #[test]
    fn missing_program_is_named() {
        let run = Planned {
            workload: "mmap".into(),
            threads: 2,
            arguments: "2 --ops 100".into(),
        };
        assert!(archive(Path::new("/nowhere"), &[run], &[]).is_err_and(|why| why.contains("/nowhere/init")));
    }
}
