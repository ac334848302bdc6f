//! `shootdown record` against a folder that behaves as the kernel's trace file system does, so that it needs no rights.
#![cfg(target_os = "linux")]

mod kernel;
#[path = "../valid/mod.rs"]
mod valid;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kernel::{Kernel, TRACED};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use shootdown_trace::columns::Reader;
use shootdown_trace::{Event, What};

fn record(kernel: &Kernel, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shootdown"));
    command
        .current_dir(kernel.folder())
        .args(["record", "--tracefs", "tracefs", "-o", "r.parquet", "--json"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn json(output: &Output) -> serde_json::Value {
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", errors(output)));
    valid::assert_valid("record", &document);
    document
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn events(file: &Path, mut each: impl FnMut(&Event<'_>)) -> Reader<fs::File> {
    let reader = Reader::open(fs::File::open(file).unwrap()).expect("a recording");
    reader
        .for_each(|event| {
            each(event);
            true
        })
        .expect("readable to its end");
    reader
}

#[test]
fn command_is_recorded_and_the_instance_removed() {
    let kernel = Kernel::start(kernel::lines(100));
    let outside = kernel.outside();
    let output = record(&kernel, &["--", "sleep", "0.5"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let said = json(&output);
    assert_eq!(said["events"], 100);
    assert_eq!(said["metadata"]["command"], "sleep 0.5");
    assert_eq!(said["metadata"]["clock"], "mono");
    assert_eq!(said["metadata"]["incomplete"], false);
    assert_eq!(said["metadata"]["one_program"], true);
    assert_eq!(
        said["metadata"]["lost_events"],
        7 + 8,
        "overrun and dropped of its one CPU"
    );
    let names: Vec<_> = said["metadata"]["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        TRACED[..2],
        "only events that this kernel has were enabled, and no page faults"
    );
    let took = said["command_time_ns"].as_f64().unwrap();
    assert!((0.4e9..60e9).contains(&took), "{took}");

    let seen = kernel.seen_at_the_end();
    assert_eq!(seen["trace_clock"], "mono");
    assert_eq!(seen["options/event-fork"], "1");
    let recorded: u32 = seen["set_event_pid"].trim().parse().expect("one process, the command");
    assert_ne!(recorded, std::process::id());
    for event in &TRACED[..2] {
        assert_eq!(seen[&format!("events/{event}/enable")], "1", "{event}");
    }
    assert_eq!(kernel.instances(), ["another-tool"]);
    assert_eq!(kernel.outside(), outside, "tracing of other tools is untouched");
    let mut found = 0;
    events(&kernel.folder().join("r.parquet"), |_| found += 1);
    assert_eq!(found, 100);
}

#[test]
fn faults_option_records_page_faults() {
    let kernel = Kernel::start(kernel::lines(10));
    let output = record(&kernel, &["--faults", "--", "sleep", "0.3"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let seen = kernel.seen_at_the_end();
    assert_eq!(seen[&format!("events/{}/enable", TRACED[2])], "1");
    assert!(json(&output)["metadata"]["events"].to_string().contains(TRACED[2]));
}

#[test]
fn ctrl_c_keeps_the_recording_and_removes_the_instance() {
    let kernel = Kernel::start(kernel::lines(50));
    let child = record(&kernel, &["--", "sleep", "600"]).spawn().unwrap();
    kernel.wait_until_fed();
    let begun = Instant::now();
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60), "the command got SIGTERM");
    assert_eq!(output.status.code(), Some(130), "{}", errors(&output));
    assert_eq!(json(&output)["events"], 50);
    assert_eq!(json(&output)["metadata"]["incomplete"], true);
    assert!(errors(&output).contains("marked incomplete"), "{}", errors(&output));
    assert_eq!(kernel.instances(), ["another-tool"]);
}

#[test]
fn whole_system_is_recorded_until_ctrl_c_without_the_recorder() {
    let kernel = Kernel::start(kernel::lines(50));
    let child = record(&kernel, &[]).spawn().unwrap();
    let recorder = child.id().to_string();
    kernel.wait_until_fed();
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(json(&output)["metadata"]["incomplete"], false, "that is how it ends");
    assert!(json(&output)["metadata"]["command"].is_null());
    assert_eq!(json(&output)["metadata"]["one_program"], false);
    let seen = kernel.seen_at_the_end();
    assert!(seen["set_event_notrace_pid"].split(' ').any(|task| task == recorder));
    assert_eq!(seen["set_event_pid"], "");
}

#[test]
fn seconds_end_the_recording_and_pid_follows_all_tasks() {
    let kernel = Kernel::start(kernel::lines(50));
    let ours = std::process::id().to_string();
    let output = record(&kernel, &["--pid", &ours, "--seconds", "0.5"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(
        json(&output)["metadata"]["command"]
            .as_str()
            .unwrap()
            .starts_with(&format!("process {ours} "))
    );
    let seen = kernel.seen_at_the_end();
    assert!(
        seen["set_event_pid"].split_whitespace().any(|task| task == ours),
        "{}",
        seen["set_event_pid"]
    );
}

#[test]
fn instance_of_a_killed_recorder_is_removed_by_the_next() {
    let kernel = Kernel::start(kernel::lines(50));
    let mut child = record(&kernel, &[]).spawn().unwrap();
    kernel.wait_until_fed();
    child.kill().unwrap();
    child.wait().unwrap();
    let left: Vec<_> = kernel
        .instances()
        .into_iter()
        .filter(|name| name.starts_with("shootdown-"))
        .collect();
    assert_eq!(left.len(), 1);
    // The kernel removes an instance with all its content; an ordinary folder has to be empty.
    kernel.empty(&left[0]);
    let output = record(&kernel, &["--", "true"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(
        errors(&output).contains(&format!("removed trace instance {}", left[0])),
        "{}",
        errors(&output)
    );
    assert_eq!(kernel.instances(), ["another-tool"]);
    let files = fs::read_dir(kernel.folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
    files.sort();
    assert_eq!(
        files,
        ["r.parquet", "tracefs"],
        "nor is a file left that was never complete"
    );
}

#[test]
fn full_disk_leaves_a_marked_readable_recording() {
    const MOST: u64 = 17 << 20;
    let fed = 300_000;
    let kernel = Kernel::start(kernel::lines(fed));
    let mut command = record(&kernel, &[]);
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| {
            let limit = Rlimit {
                current: Some(MOST),
                maximum: Some(MOST),
            };
            setrlimit(Resource::Fsize, limit).map_err(Into::into)
        });
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(errors(&output).contains("marked incomplete"), "{}", errors(&output));
    assert!(errors(&output).contains("r.parquet"), "{}", errors(&output));
    assert!(
        json(&output)["events"].as_u64() > Some(60_000),
        "the summary says what was recorded"
    );
    let file = kernel.folder().join("r.parquet");
    let mut addresses = Vec::new();
    let reader = events(&file, |event| {
        if let What::Fault { address } = event.what {
            addresses.push(address);
        }
    });
    assert!(reader.metadata().incomplete);
    assert!(addresses.len() > 60_000 && addresses.len() < fed, "{}", addresses.len());
    assert!(
        addresses
            .iter()
            .copied()
            .eq((0..).map(kernel::address).take(addresses.len())),
        "nothing is missing before"
    );
    assert!(
        fs::metadata(&file).unwrap().len() < 8 << 20,
        "room that was not used is given back"
    );
    assert_eq!(kernel.instances(), ["another-tool"]);
}

#[test]
fn lack_of_disk_space_is_reported_before_recording() {
    let kernel = Kernel::start(kernel::lines(10));
    let mut command = record(&kernel, &["--", "true"]);
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| {
            let limit = Rlimit {
                current: Some(1 << 20),
                maximum: Some(1 << 20),
            };
            setrlimit(Resource::Fsize, limit).map_err(Into::into)
        });
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("no room"), "{}", errors(&output));
    assert!(!kernel.folder().join("r.parquet").exists());
    assert_eq!(kernel.instances(), ["another-tool"]);
}

#[test]
fn mistakes_leave_no_instance_and_no_file() {
    for (arguments, words) in [
        (&["--", "/no/such/program"][..], "cannot be started"),
        (&["--pid", "0"], "--pid 0"),
        (&["--seconds", "-1"], "above 0"),
        (&["--buffer-mib", "0"], "1 to 4096 MiB"),
        (&["--pid", "1", "--", "true"], "cannot be used with"),
    ] {
        let kernel = Kernel::start(kernel::lines(1));
        let output = record(&kernel, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(words), "{arguments:?}: {}", errors(&output));
        assert_eq!(errors(&output).lines().count(), 1, "{}", errors(&output));
        assert_eq!(kernel.instances(), ["another-tool"], "{arguments:?}");
        assert!(!kernel.folder().join("r.parquet").exists(), "{arguments:?}");
    }
}
