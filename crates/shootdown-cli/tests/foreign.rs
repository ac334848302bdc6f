//! Recordings of other tools and of other kinds, from a user's point of view.

use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn shootdown(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shootdown"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shootdown-trace/tests/data")
        .join(name)
}

fn text_of(name: &str) -> Vec<u8> {
    let mut text = Vec::new();
    let packed = std::fs::File::open(data(name)).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut text).unwrap();
    text
}

fn replay(name: &Path) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = name.display().to_string();
    let output = shootdown(
        folder.path(),
        &["replay", &file, "--on", "zen5-vm-2", "--designs", "ipi-trim", "--json"],
    );
    assert!(
        output.status.success(),
        "{file}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// One workload, recorded once: tracefs, `trace-cmd report` by default and with -R, `perf script` by default and
/// without a task.
#[test]
fn every_trace_form_replays_alike() {
    for form in [
        "tracefs_record_tgid",
        "tracefs",
        "trace_cmd",
        "trace_cmd_raw",
        "perf",
        "perf_no_task",
    ] {
        let found = replay(&data(&format!("forms/{form}.txt.gz")));
        let design = &found["designs"][0];
        let counts = (
            &found["recorded"]["requests_queued"],
            &design["interrupts_sent"],
            &design["flushes"],
        );
        assert_eq!(counts, (&6.into(), &5.into(), &456.into()), "{form}");
    }
}

#[test]
fn recording_without_process_ids_replays_as_with_them() {
    for (name, source) in [("with", "recorded"), ("without", "rebuilt")] {
        let found = replay(&data(&format!("imports/process_numbers_{name}.txt.gz")));
        assert_eq!(found["designs"][0]["interrupts_sent"], 54, "{name}");
        assert_eq!(found["coverage"]["processes"]["source"], source, "{name}");
    }
}

#[test]
fn recording_without_distinguishable_processes_is_refused_with_the_command() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["latency_format", "perf_without_comm", "perf_task_minus_one"] {
        let file = data(&format!("imports/{name}.txt")).display().to_string();
        let output = shootdown(folder.path(), &["replay", &file]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(
            said.contains("record-tgid") && said.contains("perf script -F"),
            "{said}"
        );
        let output = shootdown(folder.path(), &["import", &file, "-o", "o.parquet", "--force"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.starts_with("processes: not recorded"),
            "{said}"
        );
    }
}

#[test]
fn lost_events_are_reported_first() {
    let folder = tempfile::tempdir().unwrap();
    for (name, lost) in [
        ("overwritten_buffer", "149,992 events"),
        ("lost_events", "77 events, and events once"),
    ] {
        let file = data(&format!("imports/{name}.txt")).display().to_string();
        let output = shootdown(folder.path(), &["import", &file, "-o", "o.parquet", "--force"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let first = said.lines().next().unwrap();
        assert!(
            first.starts_with("lost by the kernel's buffers: ") && first.contains(lost),
            "{said}"
        );
    }
}

#[test]
fn recording_without_usable_events_exits_with_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.txt");
    std::fs::write(&file, "a-7 [001] 1.000001: irq_handler_entry: irq=1\n").unwrap();
    let output = shootdown(folder.path(), &["import", "t.txt"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("irq_handler_entry (1)") && said.contains("sched:sched_switch"),
        "{said}"
    );
    assert!(!folder.path().join("t.parquet").exists());
}

#[test]
fn compressed_recordings_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = text_of("forms/perf.txt.gz");
    let zstd = ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
    // A file of Zstandard may have several frames.
    let (first, second) = text.split_at(text.iter().position(|&byte| byte == b'\n').unwrap() + 1);
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let frames = [first, second]
        .map(|part| ruzstd::encoding::compress_to_vec(part, level))
        .concat();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(&text).unwrap();
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
    xz.write_all(&text).unwrap();
    for (name, bytes) in [
        ("a.txt.zst", zstd),
        ("b.txt.zst", frames),
        ("c.txt.bz2", bzip2.finish().unwrap()),
        ("d.txt.xz", xz.finish().unwrap()),
    ] {
        std::fs::write(folder.path().join(name), &bytes).unwrap();
        let output = shootdown(folder.path(), &["import", name, "--json"]);
        assert!(
            output.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&found["events"], &found["switches"]),
            (&1787.into(), &639.into()),
            "{name}"
        );
        assert_eq!(found["output"], name.split('.').next().unwrap().to_owned() + ".parquet");
        // Cut off: used up to there, or refused with one line.
        std::fs::write(folder.path().join(name), &bytes[..bytes.len() / 2]).unwrap();
        let output = shootdown(folder.path(), &["import", name, "-o", "cut.parquet", "--force"]);
        decent(&output, name);
    }
}

/// Neither a panic nor more than one line of error.
fn decent(output: &Output, what: &str) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{what}: {said}");
    match output.status.code() {
        Some(0) => {}
        Some(1 | 2) => assert_eq!(said.trim_end().lines().count(), 1, "{what}: {said}"),
        status => panic!("{what}: {status:?}: {said}"),
    }
}

/// Numbers in a fixed sequence.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end.max(1)
    }
}

/// A recording, damaged in one of several ways.
fn spoilt(text: &[u8], way: usize, numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = text.to_vec();
    match way {
        0 => bytes.truncate(numbers.below(text.len())),
        1 => bytes.drain(..numbers.below(text.len())).for_each(drop),
        2 => {
            for _ in 0..200 {
                let at = numbers.below(bytes.len());
                bytes[at] = numbers.below(256) as u8;
            }
        }
        3 => bytes.retain(|&byte| byte != b'\n'),
        4 => bytes = text.iter().flat_map(|&byte| [byte, 0]).collect(),
        5 => bytes
            .iter_mut()
            .filter(|byte| byte.is_ascii_digit())
            .for_each(|byte| *byte = b'9'),
        6 => bytes = text.split(|&byte| byte == b'\n').rev().collect::<Vec<_>>().join(&b'\n'),
        7 => bytes.retain(|&byte| byte != b':'),
        8 => bytes.retain(|&byte| byte != b'[' && byte != b']'),
        _ => {
            let heads: [&[u8]; 8] = [
                b"PERFILE2",
                b"\x28\xb5\x2f\xfd",
                b"\xfd7zXZ\0",
                b"BZh9",
                b"\x1f\x8b\x08",
                b"PK\x03\x04",
                b"PAR1",
                b"\xff\xfe",
            ];
            bytes.splice(..0, heads[numbers.below(heads.len())].iter().copied());
        }
    }
    bytes
}

#[test]
fn mutated_recordings_end_in_a_summary_or_one_line_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut numbers = Numbers(1);
    for index in 0..150 {
        let form = ["tracefs", "trace_cmd", "perf", "tracefs_latency", "trace_cmd_raw"][index / 10 % 5];
        let mut text = text_of(&format!("forms/{form}.txt.gz"));
        text.truncate(20_000);
        let bytes = spoilt(&text, index % 10, &mut numbers);
        std::fs::write(folder.path().join("bad"), &bytes).unwrap();
        let what = format!("{form}, way {}", index % 10);
        decent(
            &shootdown(folder.path(), &["import", "bad", "-o", "bad.parquet", "--force"]),
            &what,
        );
        if index % 5 == 0 {
            decent(
                &shootdown(
                    folder.path(),
                    &["replay", "bad", "--on", "zen5-vm-2", "--designs", "ipi"],
                ),
                &what,
            );
        }
    }
}
