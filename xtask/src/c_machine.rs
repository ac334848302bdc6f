//! The machine written in C (`crates/shootdown-c/tests/machine.c`) on the instruction sets that are not this host's:
//! built by cross compilers, run by QEMU as Linux programs. The test of `shootdown-c` runs it on this host.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{child, workspace};

/// An instruction set.
struct Arch {
    name: &'static str,
    target: &'static str,
    compiler: &'static str,
    emulator: &'static str,
    /// Path of the loader and the libraries of its Linux.
    libraries: &'static str,
}

const ARCHES: [Arch; 2] = [
    Arch {
        name: "aarch64",
        target: "aarch64-unknown-linux-gnu",
        compiler: "aarch64-linux-gnu-gcc",
        emulator: "qemu-aarch64",
        libraries: "/usr/aarch64-linux-gnu",
    },
    Arch {
        name: "riscv64",
        target: "riscv64gc-unknown-linux-gnu",
        compiler: "riscv64-linux-gnu-gcc",
        emulator: "qemu-riscv64",
        libraries: "/usr/riscv64-linux-gnu",
    },
];

/// Rust targets, for [`super::needs`].
pub const TARGETS: [&str; 2] = [ARCHES[0].target, ARCHES[1].target];

/// Programs and files, each with its Debian package, for [`super::needs`].
pub const PACKAGES: [(&str, &str); 6] = [
    (ARCHES[0].compiler, "gcc-aarch64-linux-gnu"),
    (ARCHES[1].compiler, "gcc-riscv64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/include/stdio.h", "libc6-dev-arm64-cross"),
    ("/usr/riscv64-linux-gnu/include/stdio.h", "libc6-dev-riscv64-cross"),
    (ARCHES[0].emulator, "qemu-user"),
    (ARCHES[1].emulator, "qemu-user"),
];

/// Designs, and the exit status of the machine under each: 3 where stale translations were used.
const DESIGNS: [(&str, i32); 5] = [
    ("ipi", 0),
    ("arm-broadcast", 0),
    ("arm-local-first", 0),
    ("adaptive", 0),
    ("none", 3),
];

/// Longest run.
const MOST: Duration = Duration::from_secs(60);

/// Builds and runs every one.
///
/// # Errors
/// Build errors, and every run with an unexpected exit status.
pub fn run(end: Instant) -> Result<(), String> {
    let mut failures = Vec::new();
    for arch in ARCHES {
        let program = arch.build(end)?;
        for (design, expected) in DESIGNS {
            let mut command = Command::new(arch.emulator);
            let end = end.min(Instant::now() + MOST);
            let (status, text) = child::outcome(command.args(["-L", arch.libraries]).arg(&program).arg(design), end)?;
            println!("  {:<8} {}", arch.name, text.trim());
            if status.code() != Some(expected) {
                failures.push(format!("{}, {design}: {status}, not {expected}", arch.name));
            }
        }
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

impl Arch {
    /// Builds the library for this instruction set, and the machine linked to it; returns the program.
    fn build(&self, end: Instant) -> Result<PathBuf, String> {
        let target = ["--target", self.target, "--target-dir", "target/c-machine"];
        let mut library = workspace::cargo();
        library.args(["rustc", "--quiet", "-p", "shootdown-c", "--crate-type", "staticlib"]);
        child::run(library.args(target), end)?;
        let built = workspace::root()
            .join("target/c-machine")
            .join(self.target)
            .join("debug");
        let program = built.join("machine");
        let source = workspace::root().join("crates/shootdown-c");
        let mut compiler = Command::new(self.compiler);
        compiler
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
            .arg(source.join("include"))
            .arg(source.join("tests/machine.c"))
            .arg(built.join("libshootdown_c.a"))
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(&program);
        child::run(&mut compiler, end)?;
        Ok(program)
    }
}
