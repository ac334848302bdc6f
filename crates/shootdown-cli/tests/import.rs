//! `shootdown import` from a user's point of view.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const LINE: &str = "  cc1-7   (      5) [001] d..2. 2.000001: tlb_flush: pages:1 reason:local MM shootdown (3)\n";

fn import(folder: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .current_dir(folder)
        .arg("import")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn recording(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shootdown-trace/tests/data");
    folder.join(name).display().to_string()
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn real_recordings_are_read_without_a_damaged_line() {
    for (name, command) in [
        ("cc_make_j2", "make"),
        ("cargo_build_sys", "cargo"),
        ("go_gc", "gcload"),
        ("java_zgc", "java"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = recording(&format!("{name}.txt.gz"));
        let found = json(&import(folder.path(), &[&file, "-o", "r.parquet", "--json"], b""));
        assert_eq!(found["metadata"]["damage"]["damaged"], 0, "{name}");
        assert_eq!(found["metadata"]["damage"]["out_of_order"], 0, "{name}");
        assert_eq!(found["metadata"]["kernel"], "6.18.44");
        assert!(found["metadata"]["command"].as_str().unwrap().contains(command));
        assert!(found["events"].as_u64().unwrap() > 1400, "{name}: {}", found["events"]);
        assert!(found["shootdowns"].as_u64().unwrap() > 0, "{name}");
    }
}

#[test]
fn plain_compressed_and_piped_text_import_alike() {
    let folder = tempfile::tempdir().unwrap();
    let text = LINE.repeat(50);
    std::fs::write(folder.path().join("t.txt"), &text).unwrap();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    std::fs::write(folder.path().join("p.txt.gz"), packed.finish().unwrap()).unwrap();
    let plain = json(&import(folder.path(), &["t.txt", "--json"], b""));
    let unpacked = json(&import(folder.path(), &["p.txt.gz", "--json"], b""));
    let piped = json(&import(
        folder.path(),
        &["-", "-o", "s.parquet", "--json"],
        text.as_bytes(),
    ));
    assert_eq!(
        (&plain["output"], &unpacked["output"]),
        (&"t.parquet".into(), &"p.parquet".into())
    );
    for other in [unpacked, piped] {
        assert_eq!(plain["events"], other["events"]);
        assert_eq!(plain["processes"], other["processes"]);
    }
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(bytes("t.parquet"), bytes("s.parquet"));
}

#[test]
fn damaged_line_is_reported_and_the_rest_imported() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{LINE}nonsense\n{LINE}{}", &LINE[..60]);
    let output = import(folder.path(), &["-", "-o", "d.parquet"], text.as_bytes());
    assert!(output.status.success());
    let message = String::from_utf8_lossy(&output.stdout);
    assert!(message.contains("skipped 2 of 4 lines: 2 damaged"), "{message}");
    assert!(message.contains("first at line 2"), "{message}");
}

#[test]
fn non_recording_is_refused_in_one_line_without_a_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("letter.txt"), "Dear all,\n").unwrap();
    std::fs::write(folder.path().join("torn.gz"), [0x1f, 0x8b, 8, 0, 1, 2]).unwrap();
    for (arguments, expected) in [
        (vec!["letter.txt"], "letter.txt: not a recording"),
        (
            vec!["missing.txt"],
            "missing.txt: there is no such file; check the path",
        ),
        (vec!["torn.gz"], "torn.gz: "),
        (vec!["-"], "say where to write"),
        (vec!["letter.txt", "-o", "no/such/folder.parquet"], "there is no folder"),
    ] {
        let output = import(folder.path(), &arguments, b"");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn victims_are_grouped_by_cpu_thread_and_call() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("r.parquet");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shootdown-trace/tests/data/cargo_build_sys_whole.txt.gz");
    let import = |more: &[&str]| {
        let run = Command::new(env!("CARGO_BIN_EXE_shootdown"))
            .arg("import")
            .arg(&file)
            .arg("-o")
            .arg(&output)
            .args(more)
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap()
    };
    for (by, column, other) in [
        ("cpu", "CPU 0", "madvise"),
        ("thread", "rustc-", "CPU 0"),
        ("CALL", "MADV_DONTNEED", "CPU 0"),
    ] {
        let text = import(&["--victims", by]);
        assert!(text.contains(column) && !text.contains(other), "{by}: {text}");
    }
    let found: serde_json::Value = serde_json::from_str(&import(&["--json"])).unwrap();
    for by in ["cpus", "threads", "calls"] {
        let lines = found["victims"][by].as_array().unwrap();
        let sum: u64 = lines.iter().map(|line| line["interrupts"].as_u64().unwrap()).sum();
        assert_eq!(sum, found["shootdowns"].as_u64().unwrap(), "{by}");
    }
    // All requests but those of page faults, fork and exec follow the entry of a call.
    let first = &found["victims"]["calls"][0];
    assert_eq!(first["of"], "madvise, MADV_DONTNEED");
    assert!(first["interrupts"].as_u64().unwrap() >= 100, "{first}");
}
