//! Every command at 60, 80 and 120 columns: no line of text for people is longer than the terminal, and nothing is cut.
//!
//! `record` records a folder that behaves as the kernel's trace file system does. Runs of `qemu` need a built kernel:
//! its tables are tested beside the command, its help here.

#[cfg(target_os = "linux")]
#[path = "record/kernel.rs"]
#[allow(dead_code, reason = "a part of it is enough here")]
mod kernel;
mod rows;

use std::path::Path;
use std::process::{Command, Output};

use unicode_width::UnicodeWidthStr;

const WIDTHS: [usize; 3] = [60, 80, 120];
/// Prose is not wider than this on any terminal.
const PROSE: usize = 100;

fn shootdown(columns: usize, words: &str, folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(words.split_whitespace())
        .env("COLUMNS", columns.to_string())
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The text that a command prints, after a check of its width. A single word may be longer than the terminal.
fn measured(columns: usize, words: &str, folder: &Path) -> String {
    let output = shootdown(columns, words, folder);
    let text = String::from_utf8(output.stdout).unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words}: {text}{message}");
    assert!(!text.is_empty(), "{words} prints nothing");
    fits(columns, words, &text);
    text
}

fn fits(columns: usize, words: &str, text: &str) {
    for line in text.lines().filter(|line| line.trim().contains(' ')) {
        assert!(
            line.width() <= columns,
            "`{words}` at {columns} columns has {}:\n{line}",
            line.width()
        );
    }
}

/// A folder with a recording that comes with the sources, and one published row.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shootdown-trace/tests/data/go_gc.txt.gz");
    std::fs::copy(recording, folder.path().join("go.txt.gz")).unwrap();
    let row = rows::row("madvise_spin", 2, "ns_per_op = 9000");
    std::fs::write(folder.path().join("rows.toml"), row).unwrap();
    folder
}

#[test]
fn output_of_every_command_fits_the_terminal() {
    let folder = folder();
    for columns in WIDTHS {
        for words in [
            "compare tlb_flush2 --threads 1,4,72 --virtual-ms 0.2 --jobs 2",
            "compare tlb_flush2 --threads 2,16 --runs 3 --virtual-ms 0.2 --jobs 2 --latencies --legend --verbose",
            "compare tlb_flush2 --on generic-riscv-64 \
             --designs arm-broadcast,arm-local-first --threads 2 --virtual-ms 0.2",
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
            "scoreboard --on milan-72 --workloads madvise_spin --virtual-ms 0.2 --all --legend --jobs 2",
            "list",
        ] {
            measured(columns, words, folder.path());
            std::fs::remove_file(folder.path().join("go.parquet")).ok();
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn output_of_host_fits_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    for columns in WIDTHS {
        let words = "host tlb_flush2 madvise_spin --threads 1 --seconds 0.05 --runs 2 --legend";
        assert!(measured(columns, words, folder.path()).contains("time per op"));
        let words = "calibrate -o mine.toml --seconds 0.05 --runs 1 --legend --force --busy-host";
        assert!(measured(columns, words, folder.path()).contains("fitted"));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn output_of_record_fits_the_terminal() {
    for columns in WIDTHS {
        let kernel = kernel::Kernel::start(kernel::lines(100));
        let words = "record --tracefs tracefs -o r.parquet --legend -- sleep 0.3";
        assert!(measured(columns, words, kernel.folder()).contains("100 events"));
    }
}

/// No line of the help ends early, as text that was broken by hand and then again does. Examples are left out.
fn is_wrapped_once(columns: usize, words: &str, help: &str) {
    let (text, rest) = help.split_once("Examples:\n").unwrap_or((help, ""));
    let after_examples = rest.lines().skip_while(|line| !line.is_empty());
    let lines: Vec<&str> = text.lines().chain(after_examples).collect();
    for pair in lines.windows(2) {
        let (line, next) = (pair[0], pair[1].trim_start());
        let first = next.split(' ').next().unwrap();
        // A list item has a gap after its name, a line of TOML its value; an option's name may have a line of its own.
        let is_item = next.contains("  ") || next[first.len()..].starts_with(" = ");
        let goes_on = first.starts_with(char::is_lowercase) && !is_item && !line.trim().is_empty();
        assert!(
            !goes_on || line.trim().starts_with('-') || line.width() + 1 + first.width() > columns.min(PROSE),
            "`{words}` at {columns} columns ends a line early:\n{line}\n{}",
            pair[1]
        );
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
        is_wrapped_once(columns, "--help", &measured(columns, "--help", folder.path()));
        for name in &names {
            let words = format!("{name} --help").replace("help --help", "--help");
            is_wrapped_once(columns, &words, &measured(columns, &words, folder.path()));
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
