//! The programs of `workloads/`, built as static programs that need nothing but system calls.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use shootdown_qemu::Arch;

use super::{child, debian, workspace};

/// The programs, in the order of the tables.
pub const ALL: [&str; 11] = [
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
    "process_churn",
];

/// The compiler for `arch`, and what it needs, each with its package. On x86-64 musl, elsewhere glibc.
pub fn tools(arch: Arch) -> &'static [(&'static str, &'static str)] {
    match arch {
        Arch::X86_64 => &[("musl-gcc", "musl-tools"), ("make", "make")],
        Arch::Aarch64 => &[
            ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
            ("/usr/aarch64-linux-gnu/lib/libc.a", "libc6-dev-arm64-cross"),
            ("make", "make"),
        ],
        Arch::Riscv64 => &[
            ("riscv64-linux-gnu-gcc", "gcc-riscv64-linux-gnu"),
            ("/usr/riscv64-linux-gnu/lib/libc.a", "libc6-dev-riscv64-cross"),
            ("make", "make"),
        ],
    }
}

/// Builds them all for `arch`; returns their folder.
///
/// # Errors
/// When the compiler is missing or refuses.
pub fn build(arch: Arch, end: Instant) -> Result<PathBuf, String> {
    debian::programs(tools(arch), end)?;
    let out = workspace::built().join("workloads").join(arch.name());
    std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    make(arch, &out, &[], end)?;
    Ok(out)
}

/// Builds programs of another folder of the checkout into `out`, with the same loop, compiler and options.
///
/// # Errors
/// When the compiler refuses.
pub fn build_others(arch: Arch, folder: &str, programs: &[&str], out: &Path, end: Instant) -> Result<(), String> {
    let targets = programs.iter().map(|name| out.join(name).display().to_string());
    let arguments: Vec<String> = std::iter::once(format!("VPATH=../{folder}")).chain(targets).collect();
    make(arch, out, &arguments, end)
}

fn make(arch: Arch, out: &Path, arguments: &[String], end: Instant) -> Result<(), String> {
    let mut make = Command::new("make");
    make.args(["--silent", "-C"]).arg(workspace::root().join("workloads"));
    make.arg(format!("CC={}", tools(arch)[0].0));
    make.arg(format!("OUT={}", out.display())).args(arguments);
    child::output(&mut make, end).map_err(|why| format!("`make -C workloads` failed: {why}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_workload_program_is_listed() {
        let files = std::fs::read_dir(super::workspace::root().join("workloads")).expect("the folder of the workloads");
        let programs: BTreeSet<String> = files
            .filter_map(|file| Some(file.ok()?.file_name().to_str()?.strip_suffix(".c")?.to_string()))
            .filter(|name| !["init", "measured_loop", "misbehave", "together"].contains(&name.as_str()))
            .collect();
        assert_eq!(programs, super::ALL.map(String::from).into());
    }
}
