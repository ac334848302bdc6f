//! Every command at 80 and at 60 columns: no line of text for people is longer than the terminal, and nothing is cut.
//!
//! `record` and `calibrate` need rights on the host's kernel and `qemu` needs an emulator; they print by the same table
//! printer, and their help is measured here. `scoreboard` takes minutes, and its table has a test beside it.

use std::path::Path;
use std::process::{Command, Output};

use unicode_width::UnicodeWidthStr;

const WIDTHS: [usize; 2] = [80, 60];

fn shootdown(columns: usize, words: &str, folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(words.split_whitespace())
        .env("COLUMNS", columns.to_string())
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The text that a command prints, after a look at its width. A single word may be longer than the terminal.
fn measured(columns: usize, words: &str, folder: &Path) -> String {
    let output = shootdown(columns, words, folder);
    let text = String::from_utf8(output.stdout).unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words}: {text}{message}");
    assert!(!text.is_empty(), "{words} prints nothing");
    for line in text.lines().filter(|line| line.trim().contains(' ')) {
        assert!(
            line.width() <= columns,
            "`{words}` at {columns} columns has {}:\n{line}",
            line.width()
        );
    }
    text
}

/// A folder with a recording that comes with the sources, and one published row.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shootdown-trace/tests/data/go_gc.txt.gz");
    std::fs::copy(recording, folder.path().join("go.txt.gz")).unwrap();
    let row = "[[row]]\ntable = \"lab\"\nworkload = \"madvise_spin\"\nmachine = \"milan-72\"\ndesign = \"ipi\"\nthreads = 2\n\
               ns_per_op = 2100\nsource = \"madvise loop, two CPUs, median of 5\"\n";
    std::fs::write(folder.path().join("rows.toml"), row).unwrap();
    folder
}

#[test]
fn what_every_command_prints_fits_the_terminal() {
    let folder = folder();
    for columns in WIDTHS {
        for words in [
            "compare tlb_flush2 --threads 1,4,72 --virtual-ms 0.2 --jobs 2",
            "compare tlb_flush2 --threads 2,16 --runs 3 --virtual-ms 0.2 --jobs 2 --latencies --legend --verbose",
            "compare tlb_flush2 --on generic-riscv-64 --designs arm-broadcast,arm-local-first --threads 2 --virtual-ms 0.2",
            "compare trace:go.txt.gz --threads 2,4 --jobs 2 --legend",
            "sweep tlb_flush2 --threads 2,4 --set costs.ipi_send=range:2 --virtual-ms 0.2 --jobs 2 --legend",
            "import go.txt.gz -o go.parquet --legend",
            "replay go.txt.gz --on milan-72 --jobs 2 --legend",
            "replay go.txt.gz --on zen5-vm-2 --jobs 2",
            "timeline tlb_flush2 --threads 8",
            "explain tlb_flush2 --threads 8 --virtual-ms 1",
            "walkers --frees 0,1000 --virtual-ms 0.2 --jobs 2 --legend",
            "check flush twice --designs ipi,adaptive --legend",
            "evidence --runs 1 --virtual-ms 0.2 --legend --rows rows.toml",
            "list",
        ] {
            measured(columns, words, folder.path());
            std::fs::remove_file(folder.path().join("go.parquet")).ok();
        }
    }
}

#[test]
fn help_fits_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let help = String::from_utf8(shootdown(80, "--help", folder.path()).stdout).unwrap();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| {
        line.strip_prefix("  ")?
            .split(' ')
            .next()
            .filter(|name| !name.is_empty())
    });
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 12 && names.contains(&"scoreboard"), "{names:?}");
    for columns in WIDTHS {
        measured(columns, "--help", folder.path());
        for name in &names {
            measured(
                columns,
                &format!("{name} --help").replace("help --help", "--help"),
                folder.path(),
            );
        }
    }
}

#[test]
fn the_legend_explains_each_column_once() {
    let folder = tempfile::tempdir().unwrap();
    let words = "compare tlb_flush2 --threads 2 --virtual-ms 0.2 --jobs 2 --latencies";
    let text = measured(80, words, folder.path());
    assert!(!text.contains("Columns\n"), "a pipe has no legend unasked: {text}");
    let text = measured(80, &format!("{words} --legend"), folder.path());
    for heading in [
        "threads",
        "loops/s",
        "time per loop",
        "flush p99",
        "IPIs per loop",
        "median",
    ] {
        assert_eq!(
            text.matches(&format!("\n  {heading}: ")).count(),
            1,
            "{heading}: {text}"
        );
    }
}
