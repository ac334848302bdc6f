//! The engine inside OSTD, a Rust framework for kernels, stock beside ours: `cargo xtask ostd`.
//!
//! The package comes from the registry and is copied below `target/ostd`. `examples/ostd/edits.txt` has the edits, each
//! found by a short anchor. Nothing is written unless every anchor is there exactly once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use shootdown_qemu::{Emulator, Plugin};

use super::{child, workspace};

/// The toolchain: the package uses features of the compiler that are not stable.
const TOOLCHAIN: &str = "nightly-2026-07-15";
const TARGET: &str = "x86_64-unknown-none";
/// The package and its version, as `examples/ostd/Cargo.toml` names it.
const PACKAGE: &str = "ostd";
/// The limit of one run.
const RUN: Duration = Duration::from_secs(300);

/// What is built: its name in `edits.txt`, its name in the table, and whether stale reads are expected.
const VARIANTS: [(&str, &str, bool); 3] = [
    ("none", "no flush", true),
    ("stock", "stock", false),
    ("ours", "the engine", false),
];

/// What is counted, and the function's name in the package: what the requester does until the interrupt is sent and its
/// own part is done, and after that, without waiting.
const SPANS: [(&str, &str); 2] = [("dispatch", "dispatch_tlb_flush"), ("wait", "sync_tlb_flush")];

/// One edit of `edits.txt`.
struct Edit<'a> {
    variant: &'a str,
    file: &'a str,
    anchor: &'a str,
    place: &'a str,
    text: &'a str,
}

/// Builds and runs each variant, and prints the table.
///
/// # Errors
/// What is missing, an anchor that does not match, a build that fails, or reads that should not be stale.
pub fn run(end: Instant) -> Result<(), String> {
    let folder = root()?.join("examples/ostd");
    let edits = read(&folder.join("edits.txt"))?;
    let edits = parse(&edits)?;
    install(end)?;
    let package = package(&folder, end)?;
    let plugins = root()?.join("target/ostd");
    let qemu = Emulator::find()?.version;
    let plugin = Plugin::build(&root()?, qemu, &plugins, &AtomicBool::new(false))?;
    let mut rows = Vec::new();
    for (variant, name, stale) in VARIANTS {
        println!("== {name}: building and running");
        let kernel = build(&prepare(&folder, &package, variant, &edits)?, end)?;
        let row = measure(&kernel, end)?;
        // Without flushes there is nothing to count.
        let counts = if stale {
            Vec::new()
        } else {
            instructions(&kernel, &plugin, end)?
        };
        rows.push((row, counts));
    }
    println!("\n{:50} instructions", "");
    print!(
        "{:12} {:>7} {:>10} {:>9} {:>7}",
        "", "remaps", "interrupts", "reads", "stale"
    );
    SPANS.iter().for_each(|(name, _)| print!(" {name:>8}"));
    for ((_, name, _), (row, instructions)) in VARIANTS.iter().zip(&rows) {
        let Counts {
            remaps,
            interrupts,
            reads,
            stale,
        } = row;
        print!("\n{name:12} {remaps:>7} {interrupts:>10} {reads:>9} {stale:>7}");
        instructions.iter().for_each(|count| print!(" {count:>8}"));
    }
    let glue = read(&folder.join("glue.rs"))?;
    let added: usize = edits
        .iter()
        .filter(|edit| edit.variant == "ours")
        .map(|edit| code(edit.text))
        .sum();
    println!("\n\nlines: glue.rs {}, edits {added}", code(&glue));
    for ((_, name, expected), (row, _)) in VARIANTS.iter().zip(&rows) {
        if (row.stale > 0) != *expected {
            return Err(format!("{name}: {} stale reads", row.stale));
        }
    }
    Ok(())
}

/// The checkout, as an absolute path: commands run in other folders.
fn root() -> Result<PathBuf, String> {
    let root = workspace::root();
    root.canonicalize().map_err(|why| format!("{}: {why}", root.display()))
}

/// Lines that are neither empty nor comments.
fn code(text: &str) -> usize {
    let counts = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    text.lines().filter(counts).count()
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))
}

/// The edits: `@ VARIANT FILE`, `<<<`, the anchor, `>>> before|after|instead`, the text.
fn parse(text: &str) -> Result<Vec<Edit<'_>>, String> {
    let mut edits = Vec::new();
    for block in text.split("\n@ ").skip(1) {
        let parts = block.split_once("\n<<<\n").and_then(|(head, rest)| {
            let (variant, file) = head.split_once(' ')?;
            let (anchor, rest) = rest.split_once("\n>>> ")?;
            let (place, text) = rest.split_once('\n')?;
            let text = text.trim_end_matches('\n');
            Some(Edit {
                variant,
                file,
                anchor,
                place,
                text,
            })
        });
        edits.push(parts.ok_or_else(|| format!("examples/ostd/edits.txt: not an edit: @ {block}"))?);
    }
    Ok(edits)
}

/// `text` with the edit.
fn edited(text: &str, edit: &Edit<'_>, checkout: &str) -> Result<String, String> {
    let Edit {
        anchor, place, file, ..
    } = edit;
    let found = text.matches(anchor).count();
    if found != 1 {
        return Err(format!(
            "{file}: found {found} times instead of once:\n{anchor}\nNothing was written. Is it another version of \
             {PACKAGE}? Adapt examples/ostd/edits.txt"
        ));
    }
    let new = edit.text.replace("@checkout@", checkout);
    let new = match *place {
        "before" => format!("{new}\n{anchor}"),
        "after" => format!("{anchor}\n{new}"),
        "instead" => new,
        other => {
            return Err(format!(
                "examples/ostd/edits.txt: {other:?}: before, after or instead was expected"
            ));
        }
    };
    Ok(text.replacen(anchor, &new, 1))
}

/// Installs the toolchain, unless it is there.
fn install(end: Instant) -> Result<(), String> {
    let words = [
        "toolchain",
        "install",
        TOOLCHAIN,
        "--profile",
        "minimal",
        "--component",
        "rust-src",
        "--no-self-update",
    ];
    let why = |why| {
        format!(
            "`rustup {}` failed ({why}); check the network and that rustup is installed",
            words.join(" ")
        )
    };
    child::patiently(end, || {
        child::run(
            Command::new("rustup")
                .args(words)
                .stderr(Stdio::null())
                .stdout(Stdio::null()),
            end,
        )
    })
    .map_err(why)
}

fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command
        .arg(format!("+{TOOLCHAIN}"))
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .env_remove("RUSTC");
    command
}

/// The folder of the package, which cargo downloads.
fn package(folder: &Path, end: Instant) -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        TARGET,
        "--manifest-path",
    ]);
    let text = child::output(command.arg(folder.join("Cargo.toml")), end)?;
    let metadata: serde_json::Value = serde_json::from_str(&text).map_err(|why| format!("cargo metadata: {why}"))?;
    let manifest = metadata["packages"]
        .as_array()
        .and_then(|all| all.iter().find(|package| package["name"] == PACKAGE))
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or_else(|| format!("cargo metadata names no package {PACKAGE}"))?;
    Ok(Path::new(manifest).parent().unwrap_or(Path::new(manifest)).to_owned())
}

/// Makes the kernel of a variant and its copy of the package, below `target`.
fn prepare(folder: &Path, package: &Path, variant: &str, edits: &[Edit<'_>]) -> Result<PathBuf, String> {
    let root = root()?;
    let checkout = root.display().to_string();
    let mut changed: Vec<(&str, String)> = Vec::new();
    for edit in edits.iter().filter(|edit| ["all", variant].contains(&edit.variant)) {
        match changed.iter_mut().find(|(file, _)| *file == edit.file) {
            Some((_, text)) => *text = edited(text, edit, &checkout)?,
            None => changed.push((edit.file, edited(&read(&package.join(edit.file))?, edit, &checkout)?)),
        }
    }
    let kernel = root.join("target/ostd").join(variant);
    let copy = kernel.join("ostd");
    let _ = fs::remove_dir_all(&kernel);
    copy_folder(package, &copy)?;
    for (file, text) in changed {
        write(&copy.join(file), &text)?;
    }
    if variant == "ours" {
        fs::create_dir_all(copy.join("src/smp")).map_err(|why| format!("{}: {why}", copy.display()))?;
        write(&copy.join("src/smp/shootdown.rs"), &read(&folder.join("glue.rs"))?)?;
    }
    copy_folder(&folder.join("src"), &kernel.join("src"))?;
    let script = kernel.join("examples/ostd");
    fs::create_dir_all(&script).map_err(|why| format!("{}: {why}", script.display()))?;
    write(&script.join("link.ld"), &read(&folder.join("link.ld"))?)?;
    let manifest = read(&folder.join("Cargo.toml"))?;
    write(
        &kernel.join("Cargo.toml"),
        &format!("{manifest}\n[patch.crates-io]\nostd = {{ path = \"ostd\" }}\n"),
    )?;
    write(&kernel.join("Cargo.lock"), &read(&folder.join("Cargo.lock"))?)?;
    Ok(kernel)
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    let why = |path: &Path| {
        let path = path.display().to_string();
        move |why| format!("{path}: {why}")
    };
    fs::create_dir_all(to).map_err(why(to))?;
    for entry in fs::read_dir(from).map_err(why(from))? {
        let from = entry.map_err(why(from))?.path();
        let to = to.join(from.file_name().unwrap_or_default());
        if from.is_dir() {
            copy_folder(&from, &to)?;
        } else {
            fs::copy(&from, &to).map_err(why(&from))?;
        }
    }
    Ok(())
}

fn build(kernel: &Path, end: Instant) -> Result<PathBuf, String> {
    let target = root()?.join("target/ostd/build");
    // The linker script by a relative path, so that what was built of other packages serves all variants.
    let flags = "-Crelocation-model=static -Ccode-model=kernel -Cforce-unwind-tables=yes \
                 -Clink-arg=--no-eh-frame-hdr -Clink-arg=-T./examples/ostd/link.ld";
    let mut command = cargo();
    command.args([
        "build",
        "--release",
        "--target",
        TARGET,
        "-Zbuild-std=core,alloc,compiler_builtins",
    ]);
    command
        .args(["-Zbuild-std-features=compiler-builtins-mem", "--target-dir"])
        .arg(&target);
    command
        .current_dir(kernel)
        .env("RUSTFLAGS", flags)
        .env_remove("CARGO_TARGET_DIR");
    child::run(&mut command, end)?;
    let built = target.join(TARGET).join("release/ostd-remap");
    let kept = kernel.join("kernel.elf");
    fs::copy(&built, &kept).map_err(|why| format!("{}: {why}", built.display()))?;
    Ok(kept)
}

/// What a run counted.
struct Counts {
    remaps: u64,
    interrupts: u64,
    reads: u64,
    stale: u64,
}

/// Runs it with two CPUs at a time.
fn measure(kernel: &Path, end: Instant) -> Result<Counts, String> {
    let text = emulate(kernel, &["-accel", "tcg,thread=multi"], end)?;
    let line = text.lines().find(|line| line.starts_with("remaps "));
    let numbers = line.map(|line| {
        line.split(' ')
            .filter_map(|word| word.parse().ok())
            .collect::<Vec<u64>>()
    });
    match numbers.as_deref() {
        Some(&[remaps, interrupts, reads, stale]) => Ok(Counts {
            remaps,
            interrupts,
            reads,
            stale,
        }),
        _ => Err(format!("{}: no result; its output:\n{text}", kernel.display())),
    }
}

/// Runs it once more, CPUs in turns, and counts instructions: the median of each of [`SPANS`]; 0 where there was none.
fn instructions(kernel: &Path, plugin: &Plugin, end: Instant) -> Result<Vec<u64>, String> {
    let argument = plugin.argument(&spans(kernel)?);
    let turns = [
        "-accel",
        "tcg,thread=single",
        "-icount",
        "shift=0,sleep=off",
        "-plugin",
        &argument,
    ];
    emulate(kernel, &turns, end)?;
    let counts: serde_json::Value =
        serde_json::from_str(plugin.take()?.trim()).map_err(|why| format!("the plugin: {why}"))?;
    let cpus = counts["cpus"].as_array().into_iter().flatten();
    let found: Vec<_> = cpus
        .flat_map(|cpu| cpu["spans"].as_array().into_iter().flatten())
        .collect();
    let most = |name: &str| {
        let named = found.iter().filter(|span| span["name"] == name);
        named
            .max_by_key(|span| span["times"].as_u64())
            .and_then(|span| span["median"].as_u64())
    };
    Ok(SPANS.iter().map(|(name, _)| most(name).unwrap_or(0)).collect())
}

/// The plugin's arguments for the functions of [`SPANS`].
fn spans(kernel: &Path) -> Result<Vec<String>, String> {
    let bytes = fs::read(kernel).map_err(|why| format!("{}: {why}", kernel.display()))?;
    let wrong = |why: elf::ParseError| format!("{}: {why}", kernel.display());
    let file = elf::ElfBytes::<elf::endian::AnyEndian>::minimal_parse(&bytes).map_err(wrong)?;
    let (symbols, names) = file.symbol_table().map_err(wrong)?.ok_or("a kernel without symbols")?;
    let mut spans = Vec::new();
    for symbol in symbols
        .iter()
        .filter(|symbol| symbol.st_symtype() == elf::abi::STT_FUNC)
    {
        let symbol_name = names.get(symbol.st_name as usize).map_err(wrong)?;
        let of = SPANS.iter().filter(|(_, function)| symbol_name.contains(function));
        spans.extend(of.map(|(name, _)| format!("span={name}:call:{:x}", symbol.st_value)));
    }
    Ok(spans)
}

/// Runs it to its end; what it printed.
fn emulate(kernel: &Path, options: &[&str], end: Instant) -> Result<String, String> {
    let mut command = Command::new("qemu-system-x86_64");
    command.args([
        "-machine",
        "q35",
        "-cpu",
        "max",
        "-m",
        "3G",
        "-smp",
        "2",
        "-display",
        "none",
        "-no-reboot",
    ]);
    command.args([
        "-serial",
        "stdio",
        "-monitor",
        "none",
        "-device",
        "isa-debug-exit,iobase=0xf4,iosize=0x04",
    ]);
    command.args(options).arg("-kernel").arg(kernel).stdin(Stdio::null());
    Ok(child::outcome(&mut command, end.min(Instant::now() + RUN))?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDIT: Edit<'_> = Edit {
        variant: "ours",
        file: "src/a.rs",
        anchor: "fn a()",
        place: "before",
        text: "// @checkout@",
    };

    #[test]
    fn the_edits_are_read_and_name_known_variants() {
        let text = read(&workspace::root().join("examples/ostd/edits.txt")).expect("there");
        let edits = parse(&text).expect("well formed");
        assert!(edits.iter().all(|edit| ["all", "ours", "none"].contains(&edit.variant)));
        assert!(
            edits
                .iter()
                .all(|edit| ["before", "after", "instead"].contains(&edit.place))
        );
        assert!(
            edits
                .iter()
                .any(|edit| edit.file == "src/mm/tlb.rs" && edit.variant == "none")
        );
    }

    #[test]
    fn an_edit_is_made_where_its_anchor_is() {
        assert_eq!(
            edited("x\nfn a() {}\n", &EDIT, "/here").as_deref(),
            Ok("x\n// /here\nfn a() {}\n")
        );
    }

    #[test]
    fn an_anchor_that_is_missing_or_there_twice_is_named_with_its_file() {
        for text in ["fn b()", "fn a() fn a()"] {
            let error = edited(text, &EDIT, "/here").expect_err("not once");
            assert!(error.contains("src/a.rs") && error.contains("fn a()"), "{error}");
        }
    }
}
