//! `cargo xtask size`: bytes of code of an embedded engine with all its calls, with one policy fixed at compile time.
//!
//! `xtask/size/` is a static library that holds the engine and one function for each call. Its hooks are external
//! functions. The measure is the sum of the executable sections of its largest object: the compiler's own routines
//! (`memcpy`), which a kernel has anyway, are in other objects.

use std::path::Path;
use std::time::Instant;

use comfy_table::{CellAlignment, Table, presets};
use elf::endian::AnyEndian;

use super::{child, workspace};

/// One target for each instruction set.
const TARGETS: [&str; 3] = [
    "x86_64-unknown-none",
    "aarch64-unknown-none",
    "riscv64gc-unknown-none-elf",
];

/// A build: its name, the features of `xtask/size/` for it, and its size limit in bytes.
const BUILDS: [(&str, &str, u64); 4] = [
    ("ipi", "", 20 << 10),
    ("ipi-gather", "gather", 26 << 10),
    ("adaptive", "adaptive", 55 << 10),
    ("adaptive-gather", "adaptive,gather", 55 << 10),
];

/// Length of the header of an archive member, and the position of the member's size in it.
const HEADER: usize = 60;
const SIZE: std::ops::Range<usize> = 48..58;
/// The first bytes of an archive.
const MAGIC: &[u8] = b"!<arch>\n";

/// Builds, measures and prints a table.
///
/// # Errors
/// When a build fails, or a size exceeds its limit.
pub fn run(end: Instant) -> Result<(), String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["build", "target", "code, KiB", "limit, KiB"]);
    let mut above = Vec::new();
    for (name, features, limit) in BUILDS {
        for target in TARGETS {
            let bytes = measure((name, features), target, end)?;
            let kib = |bytes: u64| format!("{:.1}", bytes as f64 / 1024.0);
            table.add_row([name.into(), target.into(), kib(bytes), kib(limit)]);
            if bytes > limit {
                above.push(format!("{name} on {target}: {} KiB, limit {}", kib(bytes), kib(limit)));
            }
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("Code of an engine with all its calls and its policy fixed at compile time (--release)\n{table}");
    if above.is_empty() {
        Ok(())
    } else {
        Err(format!("above the limit: {}", above.join("; ")))
    }
}

fn measure((name, features): (&str, &str), target: &str, end: Instant) -> Result<u64, String> {
    let folder = workspace::root().join("xtask/size");
    let mut build = workspace::cargo();
    build.current_dir(&folder);
    build.args([
        "build",
        "--release",
        "--quiet",
        "--target",
        target,
        "--features",
        features,
    ]);
    // A folder for each build, because each would rebuild the other's.
    let out = Path::new("target").join(name);
    build.arg("--target-dir").arg(&out);
    child::output(&mut build, end).map_err(|why| format!("xtask/size does not build for {target}: {why}"))?;
    let path = folder.join(out).join(target).join("release/libengine_size.a");
    let archive = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    largest(&archive).ok_or_else(|| format!("{}: no archive of objects", path.display()))
}

/// Bytes of code of the largest member, which contains all of the engine.
fn largest(archive: &[u8]) -> Option<u64> {
    let mut rest = archive.strip_prefix(MAGIC)?;
    let mut most = None;
    while let Some(header) = rest.get(..HEADER) {
        let size: usize = std::str::from_utf8(&header[SIZE]).ok()?.trim().parse().ok()?;
        let member = rest.get(HEADER..HEADER + size)?;
        most = most.max(code(member));
        // Members begin at even offsets.
        rest = rest.get(HEADER + size.next_multiple_of(2)..).unwrap_or_default();
    }
    most
}

/// Bytes in executable sections; `None` if it is not an object file.
fn code(object: &[u8]) -> Option<u64> {
    let object = elf::ElfBytes::<AnyEndian>::minimal_parse(object).ok()?;
    let executable = u64::from(elf::abi::SHF_EXECINSTR);
    let sections = object.section_headers()?.iter();
    let code = sections.filter(|section| section.sh_flags & executable != 0);
    Some(code.map(|section| section.sh_size).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_archive_has_no_size() {
        assert_eq!(largest(b"no archive"), None);
        let mut archive = MAGIC.to_vec();
        archive.extend(format!("{:48}{:<10}`\n", "name/", 5).bytes());
        assert_eq!(largest(&archive), None, "cut off");
        archive.extend(b"hello\n");
        assert_eq!(largest(&archive), None, "no object");
    }
}
