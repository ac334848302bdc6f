//! Sweeps on the real simulator: killed and resumed, spread over shards as by batch systems, and refused when invalid.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const SWEEP: [&str; 10] = [
    "tlb_flush2",
    "--designs",
    "ipi,adaptive",
    "--threads",
    "2,4",
    "--set",
    "costs.ipi_send=200..800:log:3",
    "--virtual-ms",
    "0.2",
    "--json",
];

fn shootdown(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shootdown"));
    command.arg("sweep").current_dir(folder);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn passed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/sweep")
        .join(name)
}

/// Starts a sweep with enough runs to be interrupted, and waits until its journal has some.
#[cfg(unix)]
fn started(folder: &Path, args: &[&str]) -> (std::process::Child, PathBuf) {
    let mut child = shootdown(folder)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let journal = folder.join("s.csv.journal");
    let lines = || std::fs::read(&journal).map_or(0, |bytes| bytes.iter().filter(|&&byte| byte == b'\n').count());
    // The header and three runs; the timeout is for a busy host.
    for _ in 0..6000 {
        if lines() >= 4 {
            return (child, journal);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("no run was finished in a minute");
}

#[cfg(unix)]
const LONG: [&str; 12] = [
    "tlb_flush2",
    "--designs",
    "ipi",
    "--threads",
    "2",
    "--runs",
    "40",
    "--virtual-ms",
    "20",
    "--jobs=1",
    "-o",
    "s.csv",
];

#[test]
#[cfg(unix)]
fn killed_sweep_keeps_its_journal() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, journal) = started(folder.path(), &LONG);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(folder.path()), ["s.csv.journal"], "no half-written results");
    let kept = std::fs::read_to_string(&journal).unwrap();
    // Whole lines only: the last may have been torn.
    let whole = kept.matches('\n').count() - 1;
    let seconds = |line: &str| -> String {
        let rest = line.split("[\"host_time_ns\",").nth(1).unwrap();
        // As the table prints it: without a zero fraction.
        let time: f64 = rest[..rest.find(']').unwrap()].parse().unwrap();
        time.to_string()
    };
    let kept: Vec<String> = kept.lines().skip(1).take(whole).map(seconds).collect();

    let output = shootdown(folder.path()).args(LONG).output().unwrap();
    passed(&output);
    let told = text(&output.stderr);
    assert!(
        told.contains(&format!("40 runs: {} now, {whole} before", 40 - whole)),
        "{told}"
    );
    assert_eq!(names(folder.path()), ["s.csv"]);
    // Host time differs from run to run, so a repeated run would show.
    let results = std::fs::read_to_string(folder.path().join("s.csv")).unwrap();
    for seconds in kept {
        assert!(results.contains(&seconds), "{seconds} is gone:\n{results}");
    }
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_the_journal_and_names_the_resume_command() {
    let folder = tempfile::tempdir().unwrap();
    let (child, _) = started(folder.path(), &LONG);
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let told = text(&output.stderr);
    assert!(
        told.contains("of 40 runs finished, in s.csv.journal; repeat the command to resume"),
        "{told}"
    );
    assert_eq!(names(folder.path()), ["s.csv.journal"]);
}

/// Rows of JSON without the fields that differ from run to run.
fn rows(json: &str) -> Vec<serde_json::Value> {
    let mut document: serde_json::Value = serde_json::from_str(json).unwrap();
    let rows = document["runs"].as_array_mut().unwrap();
    for row in rows.iter_mut() {
        row["host_time_ns"] = serde_json::Value::Null;
    }
    rows.clone()
}

#[test]
#[cfg(unix)]
fn slurm_script_shards_merge_to_the_sweep() {
    let folder = tempfile::tempdir().unwrap();
    for task in ["1", "2", "3"] {
        let output = Command::new("sh")
            .arg(example("slurm.sh"))
            .args(SWEEP)
            .env("SHOOTDOWN", env!("CARGO_BIN_EXE_shootdown"))
            .env("SLURM_ARRAY_TASK_ID", task)
            .env("SLURM_ARRAY_TASK_COUNT", "3")
            .env("RESULTS", "r")
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(rows(&passed(&output)).len(), 4);
    }
    let merge = ["--merge", "r/part-1.csv", "r/part-2.csv", "r/part-3.csv"];
    let merged = shootdown(folder.path())
        .args(merge)
        .args(["-o", "all.parquet", "--json"])
        .output()
        .unwrap();
    let whole = shootdown(folder.path()).args(SWEEP).output().unwrap();
    assert_eq!(rows(&passed(&merged)), rows(&passed(&whole)));
    assert_eq!(rows(&text(&whole.stdout)).len(), 12);

    let output = shootdown(folder.path())
        .args(&merge[..3])
        .args(["-o", "some.csv"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("in none of the files: 4 of 12 points"));
    assert!(!folder.path().join("some.csv").exists());

    let unset = Command::new("sh")
        .arg(example("slurm.sh"))
        .env_remove("SLURM_ARRAY_TASK_ID")
        .output()
        .unwrap();
    assert!(!unset.status.success() && text(&unset.stderr).contains("submit with sbatch --array"));
}

/// Runs only where Ray is installed: `cargo test -- --ignored`, with PYTHON naming an interpreter that has it.
#[test]
#[ignore = "needs Ray (pip install ray); set PYTHON to an interpreter that has it"]
fn ray_script_shards_merge_to_the_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_string());
    let output = Command::new(python)
        .arg(example("ray_sweep.py"))
        .args([
            "--shootdown",
            env!("CARGO_BIN_EXE_shootdown"),
            "--shards",
            "3",
            "--results",
            "r",
            "--",
        ])
        .args(&SWEEP[..9])
        .current_dir(folder.path())
        .output()
        .unwrap();
    passed(&output);
    let csv = std::fs::read_to_string(folder.path().join("r/all.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 12);
}

#[test]
fn mistakes_are_one_line_with_place_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine.csv"), "a,b\n1,2\n").unwrap();
    for (args, expected) in [
        (vec![], "<WORKLOAD,..>"),
        (
            vec!["w", "-o", "s.txt"],
            "-o s.txt: expected the name of a file ending in .csv or .parquet",
        ),
        (vec!["w", "-o", "no/s.csv"], "there is no folder `no`"),
        (
            vec!["tlb_flush2", "-o", "mine.csv", "--threads", "2"],
            "mine.csv: exists and is no table of a sweep",
        ),
        (
            vec!["tlb_flush2", "--set", "costs.rmw=9..3"],
            "--set costs.rmw: 9..3: expected a range that rises",
        ),
        (
            vec!["tlb_flush2", "--set", "costs.rmw=1..3:root"],
            "expected log, lin or a number of points after `:`",
        ),
        (
            vec!["tlb_flush2", "--shard", "4/3"],
            "expected I/N with I from 1 to N, for example 1/8",
        ),
        (
            vec!["tlb_flush2", "--sample", "3", "--one-at-a-time"],
            "cannot be used with",
        ),
        (vec!["--merge", "mine.csv", "-o", "all.csv"], "mine.csv: has no column"),
        (vec!["--merge", "gone.csv", "-o", "all.csv"], "gone.csv: "),
    ] {
        let output = shootdown(folder.path()).args(&args).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
        assert!(message.contains(expected), "{args:?}: {message}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(names(folder.path()), ["mine.csv"]);
}
