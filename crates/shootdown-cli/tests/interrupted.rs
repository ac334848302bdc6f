//! Long commands from a user's point of view: the remaining work is reported within seconds, also where stderr is no
//! terminal, and Ctrl-C loses only incomplete runs.
#![cfg(unix)]

mod rows;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time until the first progress line; it comes after two seconds, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(300);

fn start(arguments: &str, folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

/// The output on both, and the exit status.
struct Ended {
    stdout: String,
    stderr: String,
    status: Option<i32>,
}

/// Interrupts the command once `until` finds its line on stderr, and waits for its end.
fn interrupted(arguments: &str, folder: &Path, until: impl Fn(&str) -> bool) -> Ended {
    let mut child = start(arguments, folder);
    let begun = Instant::now();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut stderr = String::new();
    for line in lines.by_ref() {
        let line = line.unwrap();
        stderr += &format!("{line}\n");
        if until(&line) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{arguments}: {stderr}");
    }
    interrupt(&child);
    lines.for_each(|line| stderr += &format!("{}\n", line.unwrap()));
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    Ended {
        stdout,
        stderr,
        status: child.wait().unwrap().code(),
    }
}

/// A progress line, with this many parts done.
fn has_done(line: &str, least: usize) -> bool {
    let done = line.split(' ').next().and_then(|count| count.parse::<usize>().ok());
    line.contains(" left") && done.is_some_and(|done| done >= least)
}

/// One long run among short ones: the longest starts first, so a second host thread does the others.
const LONG: &str = "compare tlb_flush2 --designs ipi,broadcast --threads 1,2,72 --jobs 2";

/// Interrupts the command once `done` of its parts are reported done. Lines come up to ten seconds apart, so all parts
/// may be over before the line that reports them: then it is tried with four times the virtual time, and with sixteen.
fn interrupted_after(done: usize, command: &str, virtual_ms: u64, folder: &Path) -> Ended {
    let attempt = |times| {
        let arguments = format!("{command} --virtual-ms {}", virtual_ms * times);
        interrupted(&arguments, folder, |line| has_done(line, done))
    };
    for times in [1, 4] {
        let ended = attempt(times);
        let misses_parts = ended.stdout.contains("INTERRUPTED: ") || ended.stdout.contains("missing_runs");
        if ended.status != Some(0) && misses_parts {
            return ended;
        }
        for report in std::fs::read_dir(folder).unwrap() {
            let path = report.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "html") {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
    attempt(16)
}

#[test]
fn interrupted_command_prints_complete_results_without_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let arguments = "sweep tlb_flush2 --designs ipi --threads 1,2,72 --virtual-ms 2000 --runs 40 --jobs 1";
    let ended = interrupted(arguments, folder.path(), |line| line.contains(" left"));
    assert!(begun.elapsed() >= Duration::from_secs(1), "at once: {}", ended.stderr);
    assert!(ended.stderr.contains(" of 120 runs, 0:0"), "{}", ended.stderr);
    assert_eq!(ended.status, Some(130), "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn interrupted_comparison_prints_complete_rows_and_the_missing() {
    let folder = tempfile::tempdir().unwrap();
    let ended = interrupted_after(2, &format!("{LONG} --html r.html"), 400, folder.path());
    assert_eq!(ended.status, Some(130), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("loops/s"), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("INTERRUPTED: ") && ended.stdout.contains("of 6 runs did not end and are missing above"),
        "{}",
        ended.stdout
    );
    assert!(ended.stderr.ends_with("no file is written\n"), "{}", ended.stderr);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn interrupted_json_is_valid_and_counts_missing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let ended = interrupted_after(2, &format!("{LONG} --json"), 400, folder.path());
    assert_eq!(ended.status, Some(130), "{}", ended.stderr);
    let value: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let (runs, missing) = (
        value["runs"].as_array().unwrap().len(),
        value["missing_runs"].as_u64().unwrap(),
    );
    assert!(runs >= 2 && runs as u64 + missing == 6, "{runs} and {missing}");
}

/// Interrupts a command that takes minutes as soon as it reports time left; it says last that it was interrupted.
fn at_first_estimate(arguments: &str) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let ended = interrupted(arguments, folder.path(), |line| line.contains(" left"));
    assert_says_interrupted(arguments, &ended);
    ended
}

fn assert_says_interrupted(arguments: &str, ended: &Ended) {
    assert_eq!(ended.status, Some(130), "{arguments}: {}{}", ended.stdout, ended.stderr);
    let last = ended.stderr.lines().next_back().unwrap_or_default();
    assert!(last.starts_with("interrupted: "), "{arguments}: {}", ended.stderr);
}

#[test]
fn interrupted_single_run_says_that_nothing_is_complete() {
    for command in ["explain", "timeline"] {
        let ended = at_first_estimate(&format!("{command} tlb_flush2 --threads 72 --virtual-ms 5000"));
        assert!(ended.stderr.contains("0 of 1 runs"), "{}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
        assert!(
            ended.stderr.contains("a shorter run: --virtual-ms N"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn interrupted_reports_print_complete_runs() {
    let folder = tempfile::tempdir().unwrap();
    let row = |threads| rows::row("tlb_flush2", threads, "ns_per_op = 9000");
    std::fs::write(folder.path().join("rows.toml"), row(1) + &row(72)).unwrap();
    for (command, virtual_ms, done, printed) in [
        ("scoreboard --jobs 2", 2, 20, "adaptive beside the best preset"),
        (
            "evidence --rows rows.toml --runs 1 --jobs 2",
            1000,
            2,
            "stale translations: 0 in",
        ),
        ("walkers --jobs 2", 5, 12, "gup on gup-64"),
    ] {
        let ended = interrupted_after(done, command, virtual_ms, folder.path());
        assert_says_interrupted(command, &ended);
        assert_prints_complete_runs(command, &ended, printed);
    }
}

#[test]
fn interrupted_check_prints_complete_races() {
    let folder = tempfile::tempdir().unwrap();
    let command = "check --jobs 1 --three";
    let ended = interrupted(command, folder.path(), |line| has_done(line, 2));
    assert_says_interrupted(command, &ended);
    assert_prints_complete_runs(command, &ended, "races");
}

fn assert_prints_complete_runs(command: &str, ended: &Ended, printed: &str) {
    assert!(
        ended.stdout.contains(printed)
            && ended.stdout.contains("INTERRUPTED: ")
            && ended.stdout.contains("did not end"),
        "{command}: {}{}",
        ended.stdout,
        ended.stderr
    );
}

#[test]
#[cfg(target_os = "linux")]
fn interrupted_host_prints_measured_rows() {
    let folder = tempfile::tempdir().unwrap();
    let command = "host --threads 1 --seconds 3 --runs 1";
    let ended = interrupted(command, folder.path(), |line| has_done(line, 1));
    assert_says_interrupted(command, &ended);
    assert!(
        ended.stdout.contains("interrupts per op") && ended.stdout.contains("of 4 rows did not end"),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
}

/// A recording of a program whose threads request flushes of each other's CPUs, with process numbers.
fn long_recording(path: &Path) {
    let mut text = String::from("# tracer: nop\n#\n");
    for event in 0..100_000_u64 {
        let (cpu, us) = (event % 4, event * 7);
        text += &format!(
            "  app-{}  ( 7)  [00{cpu}]  {}.{:06}: tlb_flush: pages:1 reason:local mm shootdown (3)\n",
            7 + cpu,
            us / 1_000_000,
            us % 1_000_000
        );
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn replay_can_be_interrupted_while_reading_and_running() {
    let folder = tempfile::tempdir().unwrap();
    long_recording(&folder.path().join("r.txt"));
    let ended = interrupted("replay r.txt --jobs 1 --scale 8", folder.path(), |line| {
        line.contains(" left")
    });
    assert_eq!(ended.status, Some(130), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("interrupted: "), "{}", ended.stderr);
}

#[test]
fn second_ctrl_c_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // The flag is not polled while a recording is waited for.
    let mut child = start("import - -o r.parquet", folder.path());
    let _open = child.stdin.take();
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    let begun = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(10));
}
