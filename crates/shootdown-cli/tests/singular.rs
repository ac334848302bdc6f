//! A count of one is printed in the singular, in the output of every command.

mod rows;

use std::path::Path;
use std::process::Command;

/// The nouns that are counted in tables and messages.
const NOUNS: [&str; 30] = [
    "threads",
    "runs",
    "CPUs",
    "rows",
    "events",
    "operations",
    "targets",
    "requests",
    "pages",
    "designs",
    "cells",
    "lines",
    "points",
    "states",
    "steps",
    "samples",
    "flushes",
    "processes",
    "workloads",
    "machines",
    "translations",
    "interrupts",
    "others",
    "explorations",
    "races",
    "preemptions",
    "switches",
    "spaces",
    "loops",
    "accesses",
];

fn said(folder: &Path, arguments: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .current_dir(folder)
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_ne!(output.status.code(), Some(2), "{arguments}: {}", text(&output.stderr));
    text(&output.stdout) + &text(&output.stderr)
}

/// Places where `text` has the plural after one.
fn plurals(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    // A heading ends in a colon.
    let bare = |word: &str| word.trim_end_matches([',', '.', ';', ')']).to_string();
    let wrong = words
        .windows(3)
        .filter(|pair| pair[1] == "1" || pair[1] == "(1")
        // A row of a table is `1 2 4 ..`, not a sentence.
        .filter(|pair| NOUNS.contains(&bare(pair[2]).as_str()));
    wrong.map(|pair| pair.join(" ")).collect()
}

#[test]
fn the_search_finds_a_wrong_plural() {
    assert_eq!(plurals("tlb_flush2 at 1 threads, seed 1"), ["at 1 threads,"]);
    assert!(plurals("at 1 thread, 2 threads, 11 threads").is_empty());
}

#[test]
fn singular_counts_have_no_plural() {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows::row("tlb_flush2", 1, "kloops_per_s = 500");
    std::fs::write(folder.path().join("rows.toml"), rows).unwrap();
    let line = "  cc1-7   (      5) [000] d..2. 2.000001: tlb_flush: pages:1 reason:local MM shootdown (3)\n";
    std::fs::write(folder.path().join("one.txt"), line).unwrap();
    for arguments in [
        "compare tlb_flush2 --designs ipi,adaptive,none --threads 1 --virtual-ms 0.2 --jobs 1",
        "compare tlb_flush2 --designs ipi --threads 1 --virtual-ms 0.05 --jobs 1",
        "explain tlb_flush2 --threads 1 --virtual-ms 0.2",
        "timeline tlb_flush2 --threads 2",
        "sweep tlb_flush2 --designs ipi --threads 1 --virtual-ms 0.2",
        "scoreboard --on zen5-vm-2 --workloads tlb_flush2 --virtual-ms 0.1",
        "evidence --rows rows.toml --virtual-ms 0.2",
        "check flush --designs ipi",
        "check flush --designs ipi --preemptions 1",
        "import one.txt -o one.parquet",
        "replay one.parquet --designs ipi",
        "list",
    ] {
        let text = said(folder.path(), arguments);
        assert_eq!(plurals(&text), Vec::<String>::new(), "shootdown {arguments}\n{text}");
    }
}
