//! `shootdown host` and `shootdown calibrate` from a user's point of view, on any machine. No rate is expected.
#![cfg(target_os = "linux")]

mod valid;

use std::path::Path;
use std::process::{Command, Output};

fn shootdown(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn measured_runs_have_the_form_of_simulated_ones() {
    let folder = tempfile::tempdir().unwrap();
    let text = good(&shootdown(
        folder.path(),
        &[
            "host",
            "tlb_flush2",
            "mprotect_all",
            "--threads",
            "1",
            "--seconds",
            "0.05",
            "--runs",
            "2",
            "--json",
        ],
    ));
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    valid::assert_valid("host", &document);
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4);
    for run in runs {
        assert_eq!(
            (run["target"].as_str(), run["threads"].as_u64()),
            (Some("linux"), Some(1))
        );
        assert!(run["ops_per_s"].as_f64().unwrap() > 0.0);
        assert!(run["published"].is_null() && run["error"].is_null());
    }
    assert_eq!(runs[0]["stale"], 0);
    assert!(runs[0]["accesses_checked"].as_u64().unwrap() > 0);
    assert!(runs[2]["stale"].is_null(), "mprotect_all checks nothing");
    assert_eq!((runs[0]["seed"].as_u64(), runs[1]["seed"].as_u64()), (Some(1), Some(2)));
}

#[test]
fn process_confined_to_one_cpu_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let cpu = shootdown_linux::cpus::allowed().unwrap()[0].to_string();
    // Elsewhere there may be no `taskset`; then the test itself sets the affinity of its children.
    let mut command = Command::new(env!("CARGO_BIN_EXE_shootdown"));
    command
        .current_dir(folder.path())
        .args(["host", "madvise_spin", "--seconds", "0.05", "--runs", "1"]);
    let confined = std::thread::spawn(move || {
        shootdown_linux::cpus::pin(cpu.parse().unwrap()).unwrap();
        command.output().unwrap()
    });
    let output = confined.join().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("one CPU: nothing can be shot down"), "{message}");
    assert!(good(&output).contains("madvise_spin"));
}

#[test]
fn mistakes_name_valid_values() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (
            &["host", "gup"][..],
            "use tlb_flush2, madvise_spin, mprotect_all, context_switch",
        ),
        (&["host", "--threads", "0"], "--threads 0: this process may use"),
        (&["host", "--threads", "99999"], "one thread a CPU"),
        (&["host", "--runs", "0"], "--runs 0: expected 1 to"),
        (&["host", "--seconds", "-1"], "--seconds -1: expected"),
        (&["calibrate", "-o", "mine.txt"], "for example machines/mine.toml"),
        (&["calibrate", "-o", "no/mine.toml"], "there is no folder `no`"),
    ] {
        let output = shootdown(folder.path(), arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
}

#[test]
fn calibrated_machine_simulates_and_every_parameter_has_provenance() {
    let folder = tempfile::tempdir().unwrap();
    let text = good(&shootdown(
        folder.path(),
        &[
            "calibrate",
            "-o",
            "mine.toml",
            "--seconds",
            "0.05",
            "--runs",
            "1",
            "--busy-host",
            "--json",
        ],
    ));
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    valid::assert_valid("calibrate", &document);
    assert_eq!(document["machine"], "mine");
    let rows = document["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["fitted"] == true) && rows.iter().any(|row| row["fitted"] == false));
    assert!(rows.iter().all(|row| row["relative_error"].as_f64().unwrap() > -1.0));

    let model = shootdown_sim::model::Model::load(&folder.path().join("mine.toml")).unwrap();
    let of = |path| model.parameter(path).unwrap().provenance.to_string();
    assert!(of("kernel.syscall").starts_with("measured on this machine by `shootdown calibrate`"));
    assert!(of("kernel.fault").contains("fitted on tlb_flush2 at 1 on this machine"));
    let machine = shootdown_linux::cpus::Machine::read().unwrap();
    assert!(model.topology.cpus() >= machine.cpus.len());

    let run = [
        "compare",
        "tlb_flush2",
        "--on",
        "./mine.toml",
        "--designs",
        "ipi",
        "--threads",
        "1",
        "--json",
    ];
    let compared: serde_json::Value = serde_json::from_str(&good(&shootdown(folder.path(), &run))).unwrap();
    assert_eq!(compared["runs"][0]["target"], "mine");
}

#[test]
fn busy_host_is_refused_or_recorded_in_the_model() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("loadavg"), "0.10 0.10 0.10 4/200 4711\n").unwrap();
    std::fs::write(folder.path().join("stat"), "cpu  100 0 50 1000 5 0 1 10 0 0\n").unwrap();
    let measure = [
        "calibrate",
        "-o",
        "mine.toml",
        "--proc",
        ".",
        "--seconds",
        "0.05",
        "--runs",
        "1",
    ];
    let refused = shootdown(folder.path(), &measure);
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{printed}");
    assert!(
        printed.contains("3.0 other tasks run or are ready to run") && printed.contains("--busy-host"),
        "{printed}"
    );
    assert!(!folder.path().join("mine.toml").exists());

    let printed = good(&shootdown(folder.path(), &[&measure[..], &["--busy-host"]].concat()));
    assert!(
        printed.contains("measured on a busy machine (3.0 other tasks"),
        "{printed}"
    );
    let model = std::fs::read_to_string(folder.path().join("mine.toml")).unwrap();
    let description = model.lines().find(|line| line.starts_with("description")).unwrap();
    assert!(
        description.contains("measured while 3.0 other tasks run"),
        "{description}"
    );
}
