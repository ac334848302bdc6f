//! `cargo xtask stack`: the most stack that each call of the engine takes, for several policies that are fixed at
//! compile time, on three instruction sets, with CPU sets of one word or of more.
//!
//! It is computed, not observed. The frame of each function and the functions it calls come from the assembly of
//! `xtask/size/` (`assembly.rs`); from these follows the deepest call chain (`depth.rs`). The stack of a hook comes on
//! top.

mod assembly;
mod depth;

use std::time::Instant;

pub use assembly::Isa;
use comfy_table::{CellAlignment, Table, presets};

use super::{child, workspace};

const TARGETS: [(Isa, &str); 3] = [
    (Isa::X86, "x86_64-unknown-none"),
    (Isa::Arm, "aarch64-unknown-none"),
    (Isa::RiscV, "riscv64gc-unknown-none-elf"),
];

/// Policies for which `xtask/size/src/stack.rs` has functions; `any`: the policy is chosen at boot.
const POLICIES: [&str; 6] = ["ipi", "broadcast", "arm_ipi", "arm_broadcast", "adaptive", "any"];

/// The calls.
const CALLS: [&str; 6] = ["flush", "flush_kernel", "switch_to", "on_ipi", "poll", "engine_init"];

/// What each call may take under any policy, in bytes. `flush` has no room to spare on RISC-V; the others have about
/// 5 % for other versions of the compiler.
const LIMITS: [u64; 6] = [512, 560, 320, 320, 272, 256];

/// The same with sets of several words, which take more on the stack: so much, and so much for each word after the
/// first. Found with 2, 4, 16 and 128 words.
const LIMITS_OF_SEVERAL: [u64; 6] = [512, 560, 320, 320, 272, 864];
const EACH_FURTHER_WORD: [u64; 6] = [128, 56, 0, 0, 0, 5];

/// What each call may take with CPU sets of so many words, in bytes.
fn limits(words: u64) -> [u64; 6] {
    match words {
        1 => LIMITS,
        _ => std::array::from_fn(|call| LIMITS_OF_SEVERAL[call] + EACH_FURTHER_WORD[call] * (words - 1)),
    }
}

/// Bytes of the deepest chain of each of these functions in assembly of the compiler.
///
/// # Errors
/// If functions are recursive, or an instruction is not known.
pub fn deepest<const N: usize>(isa: Isa, assembly: &str, names: &[String; N]) -> Result<[u64; N], String> {
    let functions = assembly::functions(isa, assembly);
    let mut depths = depth::Depths::of(isa, &functions);
    let mut bytes = [0; N];
    for (bytes, name) in bytes.iter_mut().zip(names) {
        *bytes = depths.deepest(name)?.bytes;
    }
    Ok(bytes)
}

/// The words of a CPU set that the user asks for.
///
/// # Errors
/// If it is no number from 1 to 128.
pub fn words(text: &str) -> Result<u64, String> {
    let words = text.parse().ok().filter(|words| (1..=128).contains(words));
    words.ok_or_else(|| format!("{text}: not a number of 64-bit words of a CPU set, 1 to 128"))
}

/// Builds for CPU sets of so many words, measures and prints a table; with `why` also the deepest chain of each call.
///
/// # Errors
/// If a build fails, an instruction is not known, or a call exceeds its limit.
pub fn run(words: u64, why: bool, end: Instant) -> Result<(), String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["arch", "policy"].into_iter().chain(CALLS));
    let (limits, mut above) = (limits(words), Vec::new());
    for (isa, target) in TARGETS {
        let functions = assembly::functions(isa, &assemble(target, words, end)?);
        let mut depths = depth::Depths::of(isa, &functions);
        for policy in POLICIES {
            let mut row = vec![arch(target).to_string(), policy.to_string()];
            for (call, limit) in CALLS.into_iter().zip(limits) {
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
    let cells = ["limit", ""].map(str::to_string).into_iter();
    table.add_row(cells.chain(limits.map(|limit| limit.to_string())));
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!(
        "Bytes of stack that a call takes at most, its hooks not counted (--release), up to {} CPUs\n{table}",
        64 * words
    );
    if above.is_empty() {
        Ok(())
    } else {
        Err(format!("above the limit: {}", above.join("; ")))
    }
}

/// The first part of the target's name.
fn arch(target: &str) -> &str {
    target.split('-').next().unwrap_or(target)
}

/// The assembly of `xtask/size/` for CPU sets of so many words.
fn assemble(target: &str, words: u64, end: Instant) -> Result<String, String> {
    let folder = workspace::root().join("xtask/size");
    // A folder for each number of words too: otherwise each build would replace the assembly's time stamp of the other.
    let out = format!("target/stack-{words}");
    // A file for each target: Cargo does not know it, and writes it only when it compiles.
    let file = format!("target/stack-{target}-{words}.s");
    let mut build = workspace::cargo();
    build
        .current_dir(&folder)
        .env_remove("RUSTFLAGS")
        .env("SHOOTDOWN_CPU_WORDS", words.to_string());
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
        .arg(&out)
        // As kernels are linked, and so that hooks are called by name: a call by a register could go to any closure.
        .args(["--", "-C", "relocation-model=static", "--emit"])
        .arg(format!("asm={file}"));
    child::output(&mut build, end).map_err(|why| format!("xtask/size does not build for {target}: {why}"))?;
    let path = folder.join(file);
    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_set_are_1_to_128() {
        assert_eq!((words("1"), words("128")), (Ok(1), Ok(128)));
        for wrong in ["0", "129", "-1", "why not"] {
            let why = words(wrong).expect_err(wrong);
            assert_eq!(
                why,
                format!("{wrong}: not a number of 64-bit words of a CPU set, 1 to 128")
            );
        }
    }

    #[test]
    fn further_words_widen_the_limits_of_calls_that_hold_sets() {
        assert_eq!(limits(1), LIMITS);
        assert_eq!(limits(3), [512 + 2 * 128, 560 + 2 * 56, 320, 320, 272, 864 + 2 * 5]);
    }

    #[test]
    fn book_has_the_stack_limits() {
        let book = std::fs::read_to_string(workspace::root().join("docs/src/embedding/rust.md")).expect("it is there");
        let cells = LIMITS.map(|limit| format!(" {limit} |")).concat();
        let row = format!("| any policy, any instruction set |{cells}");
        assert!(book.contains(&row), "no row {row}");
    }
}
