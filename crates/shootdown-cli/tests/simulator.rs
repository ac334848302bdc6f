//! The program on the real simulator, with runs as short as they can be. Everything here needs `shootdown_sim::run`.

use std::path::Path;
use std::process::{Command, Output};

const TINY: [&str; 4] = ["--virtual-ms", "0.2", "--jobs", "2"];

fn shootdown(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(args)
        .args(TINY)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_listed_design_and_workload_runs() {
    let folder = tempfile::tempdir().unwrap();
    let list: serde_json::Value = serde_json::from_slice(
        &Command::new(env!("CARGO_BIN_EXE_shootdown"))
            .args(["list", "--json"])
            .output()
            .unwrap()
            .stdout,
    )
    .unwrap();
    let names = |kind: &str| -> Vec<String> {
        list[kind]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["name"].as_str().unwrap().to_string())
            .collect()
    };
    let recording = concat!(
        "trace:",
        env!("CARGO_MANIFEST_DIR"),
        "/../shootdown-trace/tests/data/go_gc.txt.gz"
    );
    for workload in names("workloads") {
        let workload = workload.replace("trace:FILE", recording);
        let designs = names("designs").join(",");
        let output = shootdown(
            &["compare", &workload, "--designs", &designs, "--threads", "2", "--json"],
            folder.path(),
        );
        assert_eq!(
            output.status.code(),
            Some(0),
            "{workload}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn stdout_is_only_json_and_deterministic_except_host_time() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "compare",
        "tlb_flush2",
        "--designs",
        "ipi,ipi",
        "--threads",
        "1,2,2",
        "--runs",
        "2",
        "--json",
    ];
    let parse = || -> serde_json::Value {
        let output = shootdown(&args, folder.path());
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for run in value["runs"].as_array_mut().unwrap() {
            run["host_time_ns"] = serde_json::Value::Null;
        }
        value
    };
    let first = parse();
    assert_eq!(first["runs"].as_array().unwrap().len(), 4, "duplicates count once");
    assert_eq!(first, parse());
}

#[test]
fn compare_prints_its_verdict_and_writes_only_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "compare",
        "tlb_flush2",
        "--designs",
        "ideal,ipi,broadcast",
        "--threads",
        "1,4",
        "--html",
        "r.html",
    ];
    let output = shootdown(&args, folder.path());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("stale translations: 0 in ") && text.contains("(ideal, ipi, broadcast)"),
        "{text}"
    );
    assert!(text.contains("control: `none` on tlb_shared caught after "), "{text}");
    assert!(
        text.contains("\nbroadcast vs ipi: ") && text.ends_with("\nreport: r.html\n"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "colours in a pipe: {text}");
    assert!(
        text.lines()
            .all(|line| line.starts_with("    ") || line.chars().count() <= 100),
        "{text}"
    );
    assert_eq!(names(folder.path()), ["r.html"]);
}

#[test]
fn machine_can_be_scaled_and_overridden() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "compare",
        "tlb_flush2",
        "--designs",
        "broadcast",
        "--threads",
        "100",
        "--cpus",
        "100",
        "--set",
        "costs.invlpg=200",
        "--json",
    ];
    let output = shootdown(&args, folder.path());
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["runs"][0]["target"], "milan-72 --set costs.invlpg=200 --cpus 144");
}

#[test]
fn unwritable_report_is_refused_before_any_run() {
    let folder = tempfile::tempdir().unwrap();
    // Long enough that running first would be noticed.
    let run = |path: &str| {
        let args = ["compare", "tlb_flush2", "--html", path, "--runs", "1000"];
        let output = Command::new(env!("CARGO_BIN_EXE_shootdown"))
            .args(args)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        run("no/r.html"),
        "error: --html no/r.html: there is no folder `no`; create it or choose another path\n"
    );
    assert_eq!(run("."), "error: --html .: is a folder; name a file in it\n");
}

#[test]
#[cfg(unix)]
fn ctrl_c_leaves_no_file_and_exits_with_130() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(["compare", "tlb_flush2", "--html", "r.html", "--runs", "1000"])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(names(folder.path()).is_empty());
}

#[test]
fn timeline_shows_interrupted_cpus_and_their_answers() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_shootdown"))
            .args(["timeline", "tlb_flush2", "--threads", "8"])
            .args(args)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            output.status.code(),
            Some(if message.is_empty() { 0 } else { 2 }),
            "{text}{message}"
        );
        text + &message
    };
    let value: serde_json::Value = serde_json::from_str(&run(&["--json", "--html", "t.html"])).unwrap();
    let lanes = value["lanes"].as_array().unwrap();
    let duration = value["duration_ns"].as_f64().unwrap();
    let targets: Vec<_> = lanes.iter().filter(|lane| lane["role"] == "target").collect();
    assert!(targets.len() >= 2 && lanes.len() == 8, "{value}");
    for target in targets {
        let (asked, answered) = (
            target["posted_ns"].as_f64().unwrap(),
            target["answered_ns"].as_f64().unwrap(),
        );
        assert!(0.0 < asked && asked < answered && answered <= duration, "{target}");
    }
    let parts = value["parts"].as_array().unwrap();
    let sum: f64 = parts.iter().map(|part| part["time_ns"].as_f64().unwrap()).sum();
    assert!(
        (sum - duration).abs() < 1e-6 && parts.len() >= 5,
        "{parts:?} {duration}"
    );
    assert!(
        std::fs::read_to_string(folder.path().join("t.html"))
            .unwrap()
            .ends_with("</html>\n")
    );
    let text = run(&[]);
    assert!(
        text.contains("taken answer")
            && text.contains("The last to answer is CPU")
            && text.contains("posting requests"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let text = run(&["--design", "broadcast"]);
    assert!(
        text.contains("waiting for broadcasts") && !text.contains("taken answer"),
        "{text}"
    );
    let text = run(&["--nth", "1000000"]);
    assert!(
        text.contains("error: --nth 1000000: the record has ") && text.lines().count() == 1,
        "{text}"
    );
}
