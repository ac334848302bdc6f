//! A full disk loses the file, never the results: they are printed first, and the message names the file.
#![cfg(unix)]

mod rows;

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program where a file can hold this many blocks of 512 bytes; pipes are unlimited. As root or not, on any
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

/// Its table is printed whole, the file does not exist, and one line on stderr says why. Returns both.
fn costs_the_file_only(args: &[&str], file: &str, printed: &str) -> (String, String) {
    with_room_for(0, args, file, printed)
}

fn with_room_for(blocks: u32, args: &[&str], file: &str, printed: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let trace = "\
        app-7  (  7)  [000]  1.000000: tlb_flush: pages:1 reason:remote shootdown (1)\n\
        app-8  (  7)  [001]  1.000010: tlb_flush: pages:2 reason:remote shootdown (1)\n";
    std::fs::write(folder.path().join("trace.txt"), trace).unwrap();
    let row = rows::row("madvise_spin", 2, "ns_per_op = 9000");
    std::fs::write(folder.path().join("rows.toml"), row).unwrap();
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
fn full_disk_fails_reports_by_name() {
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
fn full_disk_fails_evidence_and_replay_pages_by_name() {
    let page = ["--html", "p.html"];
    let evidence = ["evidence", "--rows", "rows.toml", "--runs", "1", "--virtual-ms", "0.2"];
    costs_the_file_only(&[&evidence[..], &page].concat(), "p.html", "stale translations: 0");
    let replay = ["replay", "trace.txt", "--designs", "ipi"];
    let (stdout, _) = costs_the_file_only(
        &[&replay[..], &page].concat(),
        "p.html",
        "Interrupts, and CPU time lost",
    );
    assert!(stdout.contains("stale translations in"), "{stdout}");
}

/// A kernel that needs no building, in a QEMU that prints a kernel's output.
#[test]
fn full_disk_fails_qemu_pages_by_name() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("kernel")).unwrap();
    std::fs::write(folder.path().join("kernel/Cargo.toml"), "name = \"shootdown-kernel\"\n").unwrap();
    let qemu = folder.path().join("qemu-system-x86_64");
    let line = concat!(
        r#"{"ops":10,"ops_per_s":5.0,"ipis_per_op":1.5,"interrupts_per_op":1.5,"stale":0,"accesses_checked":10,"#,
        r#""broadcast":"emulated","broadcasts_per_op":0.5,"requester_instructions":500.0,"target_instructions":null}"#,
    );
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'QEMU emulator version 8.2.0' && exit\necho '{line}'\nexit 33\n"
    );
    std::fs::write(&qemu, script).unwrap();
    std::fs::set_permissions(&qemu, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let command = "trap '' XFSZ; ulimit -f 0; exec \"$0\" qemu --designs ipi --threads 1 --html q.html";
    let output = Command::new("sh")
        .args(["-c", command, env!("CARGO_BIN_EXE_shootdown")])
        .env("PATH", path)
        .env("CARGO", "true")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    assert!(
        stdout.contains("tlb_flush2 on the bare-metal kernel") && stdout.contains("1.50"),
        "{stdout}"
    );
    assert!(
        stderr.contains("q.html") && stderr.contains("is not written; free some space"),
        "{stderr}"
    );
    // `target` is for the plugin that counts instructions, whose source is not here.
    assert_eq!(names(folder.path()), ["kernel", "qemu-system-x86_64", "target"]);
}

#[test]
#[cfg(target_os = "linux")]
fn full_disk_fails_a_calibrated_model_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let words = [
        "calibrate",
        "-o",
        "mine.toml",
        "--seconds",
        "0.05",
        "--runs",
        "1",
        "--busy-host",
    ];
    let output = on_a_full_disk(0, folder.path(), &words);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("simulated"), "{stdout}");
    assert!(
        stderr.contains("mine.toml") && stderr.contains("is not written; free some space"),
        "{stderr}"
    );
    assert!(names(folder.path()).is_empty());
}

#[test]
fn full_disk_fails_a_sweep_by_name() {
    let sweep = [
        &["sweep", "tlb_flush2"][..],
        &SHORT,
        &["--designs", "ipi", "-o", "s.csv"],
    ]
    .concat();
    // The journal begins, and then has no space for the run.
    let (_, stderr) = with_room_for(1, &sweep, "s.csv", "ipi");
    assert!(
        stderr.contains("s.csv.journal: ") && stderr.contains("runs continue"),
        "{stderr}"
    );
}

#[test]
fn full_disk_fails_an_import_by_name() {
    costs_the_file_only(&["import", "trace.txt"], "trace.parquet", "2 events");
}

#[test]
fn full_disk_fails_a_counterexample_by_name() {
    let check = ["check", "flush", "--designs", "none", "--record", "story.txt"];
    costs_the_file_only(&check, "story.txt", "none");
}

#[test]
#[cfg(target_os = "linux")]
fn full_stdout_is_not_reported_as_bad_usage() {
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
