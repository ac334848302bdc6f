//! The minimal kernels of `examples/`: built and run in QEMU, with the engine and without, and the size of each
//! integration.
//!
//! One CPU remaps a page while the other reads it. A kernel prints how often it read a free frame. With flushes that
//! must be never, or the flush is wrong; without flushes at least once, or the kernel could not detect it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};

use super::{child, minimal_c, stack, workspace};

/// The language of a kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Rust,
    C,
}

/// A kernel and its machine.
struct Minimal {
    /// Its instruction set; the folder is `examples/minimal-` and this.
    arch: &'static str,
    target: &'static str,
    emulator: &'static str,
    machine: &'static [&'static str],
    /// How instructions are counted where CPUs run in turn.
    in_turn: &'static str,
    /// Builds, the negative control first.
    builds: &'static [Build],
}

/// One way to build it: the feature, and its meaning.
#[derive(Clone, Copy)]
struct Build {
    feature: Option<&'static str>,
    name: &'static str,
    /// Whether CPUs that run in turn come to an end.
    in_turn: bool,
}

const WITHOUT: Build = Build {
    feature: Some("without"),
    name: "no flush",
    in_turn: true,
};
const INTERRUPTS: Build = Build {
    feature: None,
    name: "interrupts",
    in_turn: true,
};
const BROADCAST: Build = Build {
    feature: Some("broadcast"),
    name: "broadcast",
    in_turn: true,
};

const KERNELS: [Minimal; 3] = [
    Minimal {
        arch: "aarch64",
        target: "aarch64-unknown-none-softfloat",
        emulator: "qemu-system-aarch64",
        machine: &["-M", "virt,gic-version=3", "-cpu", "max"],
        in_turn: "shift=0,sleep=off",
        builds: &[WITHOUT, INTERRUPTS, BROADCAST],
    },
    Minimal {
        arch: "riscv64",
        target: "riscv64imac-unknown-none-elf",
        emulator: "qemu-system-riscv64",
        machine: &["-M", "virt"],
        // A turn lasts until a tick, here 7800 instructions.
        in_turn: "shift=7,sleep=off",
        builds: &[
            WITHOUT,
            INTERRUPTS,
            Build {
                // The firmware waits with interrupts off, and so for a whole turn of seconds.
                in_turn: false,
                ..BROADCAST
            },
        ],
    },
    Minimal {
        arch: "x86_64",
        target: "x86_64-unknown-none",
        emulator: "qemu-system-x86_64",
        machine: &["-cpu", "max"],
        in_turn: "shift=0,sleep=off",
        // QEMU's processors have no INVLPGB.
        builds: &[WITHOUT, INTERRUPTS],
    },
];

/// The instruction sets of [`KERNELS`], as the book names them.
const NAMES: [&str; 3] = ["AArch64", "RISC-V", "x86-64"];

/// Common settings of all kernels.
const COMMON: [&str; 9] = [
    "-smp",
    "2",
    "-m",
    "64M",
    "-nodefaults",
    "-nographic",
    "-no-reboot",
    "-serial",
    "stdio",
];

/// How the CPUs run.
#[derive(Clone, Copy)]
enum Clock {
    /// One after the other, by one thread that counts instructions: the same every time.
    InTurn,
    /// A thread for each.
    AtOnce,
}

/// Most lines of Rust in a kernel, its boot code aside.
const MOST_LINES: usize = 150;
/// Most lines of these that are there for the engine.
const MOST_GLUE: usize = 60;
/// Longest run, on a busy host.
const MOST: Duration = Duration::from_secs(90);

/// Counts of a kernel.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    rounds: u64,
    reads: u64,
    stale: u64,
}

impl Counts {
    /// From the line that a kernel prints last: `rounds=200 reads=600 stale=0`.
    fn parse(text: &str) -> Option<Counts> {
        // Firmware may have printed on the same line.
        let line = text[text.find("rounds=")?..].lines().next()?;
        let value = |name: &str| {
            let word = line.split(' ').find_map(|word| word.strip_prefix(name))?;
            word.trim().parse().ok()
        };
        Some(Counts {
            rounds: value("rounds=")?,
            reads: value("reads=")?,
            stale: value("stale=")?,
        })
    }

    /// Errors in the counts, with or without flushes.
    fn problem(&self, flushes: bool) -> Option<&'static str> {
        if self.rounds == 0 || self.reads < self.rounds {
            Some("the page was read too rarely")
        } else if flushes && self.stale > 0 {
            Some("a freed frame was read after its flush had returned")
        } else if !flushes && self.stale == 0 {
            Some("the negative control was not noticed")
        } else {
            None
        }
    }
}

/// Builds and runs all, and prints a table.
///
/// # Errors
/// Every failure, a line each.
pub fn run(end: Instant) -> Result<(), String> {
    let mut failures = Vec::new();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "kernel", "build", ".text", "engine", "CPUs run", "rounds", "reads", "stale",
    ]);
    (2..8).for_each(|column| {
        let column = table.column_mut(column).expect("there are eight");
        column.set_cell_alignment(CellAlignment::Right);
    });
    println!("Lines that an embedder writes\n| instruction set | Rust | C |\n| --- | --- | --- |");
    for row in rows()? {
        println!("{row}");
    }
    let kernels = KERNELS.iter().map(|kernel| (kernel, Language::Rust));
    for (kernel, language) in kernels.chain(KERNELS.iter().map(|kernel| (kernel, Language::C))) {
        let name = kernel.name(language);
        let (glue, own) = kernel.lines(language)?;
        println!("{name}: {glue} lines for the engine, {own} in all");
        if own >= MOST_LINES || glue + kernel.machine_lines(language)? > MOST_GLUE {
            failures.push(format!("{name}: more than {MOST_GLUE} or {MOST_LINES} lines"));
        }
        let mut bare = 0;
        for build in kernel.builds {
            let image = kernel.build(language, *build, end)?;
            let text = text_size(&image)?;
            if build.feature == WITHOUT.feature {
                bare = text;
            }
            for clock in [Clock::InTurn, Clock::AtOnce] {
                if matches!(clock, Clock::InTurn) && !build.in_turn {
                    continue;
                }
                let counts = kernel.boot(&image, clock, end)?;
                let clock = match clock {
                    Clock::InTurn => "in turn",
                    Clock::AtOnce => "at once",
                };
                if let Some(why) = counts.problem(build.feature != WITHOUT.feature) {
                    failures.push(format!("{name}, {}, CPUs {clock}: {why}", build.name));
                }
                let cells = [
                    text,
                    text.saturating_sub(bare),
                    counts.rounds,
                    counts.reads,
                    counts.stale,
                ];
                let [text, added, rounds, reads, stale] = cells.map(|cell| cell.to_string());
                table.add_row([&name, build.name, &text, &added, clock, &rounds, &reads, &stale]);
            }
        }
    }
    println!("{table}");
    let counts = KERNELS[2].boot(&minimal_c::build_by_cmake(end)?, Clock::AtOnce, end)?;
    if let Some(why) = counts.problem(true) {
        failures.push(format!("C, built by CMake: {why}"));
    }
    for words in [1, 16] {
        if let Err(why) = stack::run(words, false, end) {
            failures.push(why);
        }
    }
    println!("engine: bytes of .text more than without. stale: reads of a frame after the flush that freed it.");
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

/// The first cells of the book's table of what an embedder writes: instruction set, lines of Rust, lines of C. The
/// latter are those of every machine, and the machine's own.
fn rows() -> Result<Vec<String>, String> {
    let row = |(kernel, name): (&Minimal, &str)| {
        let ((rust, _), (c, _)) = (kernel.lines(Language::Rust)?, kernel.lines(Language::C)?);
        Ok(format!(
            "| {name} | {rust} | {c} + {} |",
            kernel.machine_lines(Language::C)?
        ))
    };
    KERNELS.iter().zip(NAMES).map(row).collect()
}

impl Minimal {
    fn folder(&self) -> PathBuf {
        workspace::root()
            .join("examples")
            .join(format!("minimal-{}", self.arch))
    }

    fn name(&self, language: Language) -> String {
        match language {
            Language::Rust => self.arch.into(),
            Language::C => format!("{}, C", self.arch),
        }
    }

    /// Lines: those for the engine, and all of the kernel except its boot code.
    fn lines(&self, language: Language) -> Result<(usize, usize), String> {
        if language == Language::C {
            return minimal_c::lines();
        }
        let count = |file: &str| {
            let path = self.folder().join("src").join(file);
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<usize, String>(code_lines(&text))
        };
        let glue = count("glue.rs")?;
        Ok((glue, glue + count("main.rs")?))
    }

    /// Lines for the engine that are not in its file.
    fn machine_lines(&self, language: Language) -> Result<usize, String> {
        match language {
            Language::Rust => Ok(0),
            Language::C => minimal_c::machine_lines(self.arch),
        }
    }

    /// Builds it; returns the program.
    fn build(&self, language: Language, build: Build, end: Instant) -> Result<PathBuf, String> {
        if language == Language::C {
            let design = match build.feature {
                Some("without") => None,
                Some(_) => Some("arm-broadcast"),
                None if self.arch == "x86_64" => Some("ipi"),
                None => Some("arm-ipi"),
            };
            return minimal_c::build(self.arch, design, end);
        }
        let folder = workspace::root().canonicalize().map_err(|error| error.to_string())?;
        let folder = folder.join("target/minimal");
        let mut command = workspace::cargo();
        // In its folder, where its own settings for the linker are.
        command.current_dir(self.folder()).env_remove("RUSTFLAGS");
        command.args(["build", "--quiet", "--release", "--locked", "--target-dir"]);
        command.arg(&folder);
        command.args(build.feature.iter().flat_map(|feature| ["--features", feature]));
        child::run(&mut command, end).map_err(|why| format!("{} does not build: {why}", self.folder().display()))?;
        Ok(folder
            .join(self.target)
            .join("release")
            .join(format!("minimal-{}", self.arch)))
    }

    /// Runs it; returns what it counted.
    fn boot(&self, image: &Path, clock: Clock, end: Instant) -> Result<Counts, String> {
        let mut command = Command::new(self.emulator);
        command.args(self.machine).args(COMMON).arg("-kernel").arg(image);
        match clock {
            Clock::InTurn => command.args(["-accel", "tcg,thread=single", "-icount", self.in_turn]),
            Clock::AtOnce => command.args(["-accel", "tcg,thread=multi"]),
        };
        let (status, text) = child::outcome(&mut command, end.min(Instant::now() + MOST))
            .map_err(|why| format!("{} {}: {why}", self.emulator, image.display()))?;
        Counts::parse(&text).ok_or_else(|| format!("{}: no result ({status}); it printed:\n{text}", image.display()))
    }
}

/// Lines that are neither empty nor comments.
pub fn code_lines(text: &str) -> usize {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// Bytes of code in a program.
fn text_size(path: &Path) -> Result<u64, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let wrong = |error: elf::ParseError| format!("{}: {error}", path.display());
    let file = elf::ElfBytes::<elf::endian::AnyEndian>::minimal_parse(&bytes).map_err(wrong)?;
    let section = file.section_header_by_name(".text").map_err(wrong)?;
    section
        .map(|section| section.sh_size)
        .ok_or_else(|| format!("{}: no .text", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_parsed_from_the_console() {
        let text = "SeaBIOS\r\nBooting from ROM..rounds=200 reads=600 stale=7\r\n";
        let (rounds, reads, stale) = (200, 600, 7);
        assert_eq!(Counts::parse(text), Some(Counts { rounds, reads, stale }));
        assert_eq!(Counts::parse("rounds=200 reads=x stale=0"), None);
        assert_eq!(Counts::parse("panicked at src/main.rs"), None);
    }

    #[test]
    fn stale_read_fails_the_flush_and_its_absence_fails_the_control() {
        let counts = |reads, stale| Counts {
            rounds: 200,
            reads,
            stale,
        };
        assert_eq!(counts(600, 0).problem(true), None);
        assert_eq!(counts(600, 1).problem(false), None);
        assert!(counts(600, 1).problem(true).is_some());
        assert!(counts(600, 0).problem(false).is_some());
        assert!(counts(9, 0).problem(true).is_some(), "no thread has read it");
    }

    #[test]
    fn code_lines_exclude_comments_and_blank_lines() {
        assert_eq!(code_lines("//! a\n\nfn f() {\n    // b\n    g(); // c\n}\n"), 3);
    }

    #[test]
    fn book_has_the_counted_lines_of_code() {
        let book = std::fs::read_to_string(workspace::root().join("docs/src/embedding/rust.md")).expect("it is there");
        for row in rows().expect("sources are there") {
            assert!(book.lines().any(|line| line.starts_with(&row)), "no row {row}");
        }
    }

    #[test]
    fn every_minimal_kernel_has_a_folder_and_a_control() {
        for kernel in &KERNELS {
            assert!(kernel.folder().join("Cargo.lock").exists(), "{}", kernel.arch);
            assert_eq!(kernel.builds[0].feature, Some("without"));
        }
    }
}
