//! The programs of `workloads/`, built as static programs that need nothing but system calls.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::needs::COMPILER;
use super::{child, debian, workspace};

/// The programs, in the order of the tables.
pub const ALL: [&str; 10] = [
    "madvise_spin",
    "madvise_empty",
    "tlb_flush1",
    "tlb_flush2",
    "tlb_flush3",
    "drop_shared",
    "mprotect_all",
    "gup",
    "page_fault",
    "mmap",
];

/// Builds them all; returns their folder.
///
/// # Errors
/// When the compiler is missing or refuses.
pub fn build(end: Instant) -> Result<PathBuf, String> {
    debian::programs(&COMPILER, end)?;
    let root = workspace::root();
    let out = root.join("target/workloads");
    std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let out = out
        .canonicalize()
        .map_err(|error| format!("{}: {error}", out.display()))?;
    let mut make = Command::new("make");
    make.args(["--silent", "-C"]).arg(root.join("workloads"));
    make.arg(format!("OUT={}", out.display()));
    child::output(&mut make, end).map_err(|why| format!("`make -C workloads` failed: {why}"))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_program_of_the_folder_is_listed() {
        let files = std::fs::read_dir(super::workspace::root().join("workloads")).expect("the folder of the workloads");
        let programs: BTreeSet<String> = files
            .filter_map(|file| Some(file.ok()?.file_name().to_str()?.strip_suffix(".c")?.to_string()))
            .filter(|name| !["init", "measured_loop", "misbehave", "together"].contains(&name.as_str()))
            .collect();
        assert_eq!(programs, super::ALL.map(String::from).into());
    }
}
