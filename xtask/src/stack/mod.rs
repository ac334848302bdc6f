//! `cargo xtask stack`: the most stack that each call of the engine takes, for several policies that are fixed at
//! compile time, on three instruction sets, with CPU sets of one word.
//!
//! It is computed, not observed. The frame of each function and the functions it calls come from the assembly of
//! `xtask/size/` (`assembly.rs`); from these follows the deepest call chain (`depth.rs`). The stack of a hook comes on
//! top.

mod assembly;
mod depth;

use std::path::Path;
use std::time::Instant;

use assembly::Isa;
use comfy_table::{CellAlignment, Table, presets};

use super::{child, workspace};

const TARGETS: [(Isa, &str); 3] = [
    (Isa::X86, "x86_64-unknown-none"),
    (Isa::Arm, "aarch64-unknown-none"),
    (Isa::RiscV, "riscv64gc-unknown-none-elf"),
];

/// Policies for which `xtask/size/src/stack.rs` has functions; `any`: the policy is chosen at boot.
const POLICIES: [&str; 6] = ["ipi", "broadcast", "arm_ipi", "arm_broadcast", "adaptive", "any"];

/// The calls, and the limit of each in bytes.
const CALLS: [(&str, u64); 6] = [
    ("flush", 2304),
    ("flush_kernel", 2048),
    ("switch_to", 832),
    ("on_ipi", 768),
    ("poll", 768),
    ("engine_init", 512),
];

/// Builds, measures and prints a table; with `why` also the deepest chain of each call.
///
/// # Errors
/// If a build fails, an instruction is not known, or a call exceeds its limit.
pub fn run(why: bool, end: Instant) -> Result<(), String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["target", "policy"].into_iter().chain(CALLS.map(|(call, _)| call)));
    let mut above = Vec::new();
    for (isa, target) in TARGETS {
        let functions = assembly::functions(isa, &assemble(target, end)?);
        let mut depths = depth::Depths::of(isa, &functions);
        for policy in POLICIES {
            let mut row = vec![target.to_string(), policy.to_string()];
            for (call, limit) in CALLS {
                let name = format!("stack.{policy}.{call}");
                let deepest = depths.deepest(&name).map_err(|why| format!("{target}: {why}"))?;
                if why {
                    println!("{target} {policy} {call}: {}", deepest.chain());
                }
                if deepest.bytes > limit {
                    above.push(format!(
                        "{call} under {policy} on {target}: {} of {limit}",
                        deepest.bytes
                    ));
                }
                row.push(deepest.bytes.to_string());
            }
            table.add_row(row);
        }
    }
    table.add_row(
        ["limit", ""]
            .map(str::to_string)
            .into_iter()
            .chain(CALLS.map(|(_, limit)| limit.to_string())),
    );
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("Bytes of stack that a call takes at most, its hooks not counted (--release)\n{table}");
    if above.is_empty() {
        Ok(())
    } else {
        Err(format!("above the limit: {}", above.join("; ")))
    }
}

/// The assembly of `xtask/size/`.
fn assemble(target: &str, end: Instant) -> Result<String, String> {
    let folder = workspace::root().join("xtask/size");
    let out = Path::new("target/stack");
    let mut build = workspace::cargo();
    build.current_dir(&folder).env_remove("RUSTFLAGS");
    build.args([
        "rustc",
        "--release",
        "--quiet",
        "--features",
        "stack",
        "--target",
        target,
    ]);
    build
        .arg("--target-dir")
        .arg(out)
        .args(["--", "--emit", "asm=target/stack.s"]);
    child::output(&mut build, end).map_err(|why| format!("xtask/size does not build for {target}: {why}"))?;
    let path = folder.join("target/stack.s");
    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_has_the_limits() {
        let book = std::fs::read_to_string(workspace::root().join("docs/src/embedding/rust.md")).expect("it is there");
        for (call, limit) in CALLS {
            let row = book.lines().find(|line| line.starts_with("| bytes at most |"));
            let row = row.expect("there is a row");
            assert!(row.contains(&format!(" {limit} ")), "{call} may take {limit}: {row}");
        }
    }
}
