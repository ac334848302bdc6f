//! The engine inside OSTD, a Rust framework for kernels, stock beside ours: `cargo xtask ostd`.
//!
//! The package comes from the registry and is copied below `target/ostd`. `examples/ostd/edits.json` has the edits
//! of each variant, each found by a short anchor. Nothing is built unless every anchor of every variant is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use shootdown_qemu::{Emulator, Plugin};

use super::edits::{self, Edit};
use super::embed::code_lines;
use super::{child, workspace};

/// The toolchain: the package uses features of the compiler that are not stable.
const TOOLCHAIN: &str = "nightly-2026-07-15";
const TARGET: &str = "x86_64-unknown-none";
/// The package and its version, as `examples/ostd/Cargo.toml` names it.
const PACKAGE: &str = "ostd";
/// The limit of one run.
const RUN: Duration = Duration::from_secs(300);

/// What is built: its name in `edits.json`, its name in the table, and whether stale reads are expected.
const VARIANTS: [(&str, &str, bool); 3] = [
    ("none", "no flush", true),
    ("stock", "stock", false),
    ("ours", "the engine", false),
];

/// What is counted, and the function's name in the package: what the requester does until the interrupt is sent and its
/// own part is done, and after that, without waiting.
const SPANS: [(&str, &str); 2] = [("dispatch", "dispatch_tlb_flush"), ("wait", "sync_tlb_flush")];

/// Builds and runs each variant, and prints the table.
///
/// # Errors
/// What is missing, an anchor that does not match, a build that fails, or reads that should not be stale.
pub fn run(end: Instant) -> Result<(), String> {
    let folder = root()?.join("examples/ostd");
    let edits = parse(&read(&folder.join("edits.json"))?, &root()?.display().to_string())?;
    install(end)?;
    let package = package(&folder, end)?;
    let changes = VARIANTS.map(|(variant, ..)| changed(&package, variant, &edits));
    let plugins = root()?.join("target/ostd");
    let qemu = Emulator::find()?.version;
    let plugin = Plugin::build(&root()?, qemu, &plugins, &AtomicBool::new(false))?;
    let mut rows = Vec::new();
    let changes = changes.into_iter().collect::<Result<Vec<_>, _>>()?;
    for ((variant, name, stale), changed) in VARIANTS.into_iter().zip(changes) {
        println!("== {name}: building and running");
        let kernel = build(&prepare(&folder, &package, variant, &changed)?, end)?;
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
    let added: usize = edits["ours"].iter().map(|edit| code_lines(&edit.added())).sum();
    println!("\n\nlines: glue.rs {}, edits {added}", code_lines(&glue));
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

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))
}

/// The edits by variant; `all` are those of every variant. `@checkout@` stands for the checkout.
fn parse(text: &str, checkout: &str) -> Result<BTreeMap<String, Vec<Edit>>, String> {
    serde_json::from_str(&text.replace("@checkout@", checkout))
        .map_err(|why| format!("examples/ostd/edits.json: {why}"))
}

/// The files that a variant changes, with their new text.
fn changed(
    package: &Path,
    variant: &str,
    edits: &BTreeMap<String, Vec<Edit>>,
) -> Result<BTreeMap<PathBuf, String>, String> {
    let edits = ["all", variant]
        .into_iter()
        .filter_map(|name| edits.get(name))
        .flatten();
    edits::apply(edits, package).map_err(|why| {
        format!("examples/ostd/edits.json does not fit {PACKAGE}, variant {variant}; nothing was built:\n{why}")
    })
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
fn prepare(
    folder: &Path,
    package: &Path,
    variant: &str,
    changed: &BTreeMap<PathBuf, String>,
) -> Result<PathBuf, String> {
    let root = root()?;
    let kernel = root.join("target/ostd").join(variant);
    let copy = kernel.join("ostd");
    let _ = fs::remove_dir_all(&kernel);
    copy_folder(package, &copy)?;
    for (file, text) in changed {
        write(&copy.join(file), text)?;
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
    let windows = plugin.take()?;
    let median = |name: &str| {
        let spans = windows
            .iter()
            .flat_map(|window| &window.cpus)
            .flat_map(|cpu| &cpu.spans);
        let most_often = spans.filter(|span| span.name == name).max_by_key(|span| span.times);
        most_often.map_or(0, |span| span.median)
    };
    Ok(SPANS.iter().map(|(name, _)| median(name)).collect())
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

    #[test]
    fn edits_of_ostd_have_known_variants_and_reasons() {
        let text = read(&workspace::root().join("examples/ostd/edits.json")).expect("there");
        let edits = parse(&text, "/here").expect("well formed");
        assert_eq!(edits.keys().collect::<Vec<_>>(), ["all", "none", "ours"]);
        assert!(edits.values().flatten().all(Edit::is_complete));
        let added: Vec<String> = edits["ours"].iter().map(Edit::added).collect();
        assert!(added.iter().any(|text| text.contains("/here/crates/shootdown-cpu")));
    }

    #[test]
    fn edit_that_does_not_apply_names_variant_and_file() {
        let edits = r#"{"all": [], "ours": [{"why": "", "file": "a.rs", "anchor": "fn a()", "before": ""}]}"#;
        let edits = parse(edits, "").expect("well formed");
        let empty = Path::new("no such folder");
        assert!(changed(empty, "stock", &edits).is_ok_and(|files| files.is_empty()));
        let why = changed(empty, "ours", &edits).expect_err("no file");
        assert!(why.contains("variant ours") && why.contains("a.rs"), "{why}");
    }
}
