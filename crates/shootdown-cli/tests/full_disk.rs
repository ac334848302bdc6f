//! A disk that is full costs the file, never the results: they are printed first, and the message names the file.
#![cfg(unix)]

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program where a file can hold so many blocks of 512 bytes; pipes take everything. As root or not, on any
/// file system.
fn on_a_full_disk(blocks: u32, folder: &Path, args: &[&str]) -> Output {
    Command::new("sh")
        .args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_shootdown"))
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Its table is printed whole, the file is not there, and one line on stderr says why. Returns both.
fn costs_the_file_only(args: &[&str], file: &str, printed: &str) -> (String, String) {
    with_room_for(0, args, file, printed)
}

fn with_room_for(blocks: u32, args: &[&str], file: &str, printed: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let trace = "\
        app-7  [000]  1.000000: tlb_flush: pages:1 reason:remote shootdown (1)\n\
        app-7  [001]  1.000010: tlb_flush: pages:2 reason:remote shootdown (1)\n";
    std::fs::write(folder.path().join("trace.txt"), trace).unwrap();
    let before = names(folder.path());
    let output = on_a_full_disk(blocks, folder.path(), args);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stdout.contains(printed), "{args:?}: {stdout}{stderr}");
    let last = stderr.lines().next_back().unwrap_or_default();
    assert!(
        last.starts_with("error: ") && last.contains(file) && last.contains("is not written; free some space"),
        "{args:?}: {stderr}"
    );
    assert!(
        !stdout.contains(&format!(": {file}")),
        "{args:?} names a file that is not there: {stdout}"
    );
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    let after: Vec<String> = names(folder.path())
        .into_iter()
        .filter(|name| !name.ends_with(".journal"))
        .collect();
    assert_eq!(after, before, "{args:?}");
    (stdout, stderr)
}

const SHORT: [&str; 6] = ["--on", "milan-72", "--threads", "2", "--virtual-ms", "1"];

#[test]
fn reports_and_pages() {
    let html = ["--html", "r.html"];
    let designs = ["--designs", "ipi"];
    let compare = [&["compare", "tlb_flush2"][..], &SHORT, &designs, &html].concat();
    costs_the_file_only(&compare, "r.html", "\nstale translations: ");
    costs_the_file_only(&[&compare[..], &["--json"]].concat(), "r.html", "\"ops_per_s\"");
    let explain = [&["explain", "tlb_flush2"][..], &SHORT, &html].concat();
    costs_the_file_only(&explain, "r.html", "tlb_flush2 on milan-72");
    let timeline = [&["timeline", "tlb_flush2"][..], &SHORT, &html].concat();
    costs_the_file_only(&timeline, "r.html", "One shootdown");
    let walkers = ["walkers", "--on", "milan-72", "--frees", "1000", "--virtual-ms", "1"];
    costs_the_file_only(&[&walkers[..], &html].concat(), "r.html", "milan-72");
}

#[test]
fn the_runs_of_a_sweep() {
    let sweep = [
        &["sweep", "tlb_flush2"][..],
        &SHORT,
        &["--designs", "ipi", "-o", "s.csv"],
    ]
    .concat();
    // The journal begins, and then cannot take the run.
    let (_, stderr) = with_room_for(1, &sweep, "s.csv", "ipi");
    assert!(
        stderr.contains("s.csv.journal: ") && stderr.contains("runs go on"),
        "{stderr}"
    );
}

#[test]
fn an_imported_recording() {
    costs_the_file_only(&["import", "trace.txt"], "trace.parquet", "2 events");
}

#[test]
fn a_counterexample() {
    let check = ["check", "flush", "--designs", "none", "--record", "story.txt"];
    costs_the_file_only(&check, "story.txt", "none");
}

#[test]
#[cfg(target_os = "linux")]
fn stdout_that_takes_nothing_is_no_bad_usage() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .arg("list")
        .stdout(full)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.starts_with("error: standard output: No space left on device"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
