//! `evidence --rows`: a user's own published rows beside simulated ones, and errors in them, each with its place.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const ROW: &str = "\
[[row]]
table = \"lab\"
workload = \"madvise_spin\"
machine = \"zen5-vm-2\"
design = \"ipi-trim\"
threads = 2
ns_per_op = 9000
source = \"a stop watch\"
";

/// A folder with `rows.toml` in it.
fn folder(rows: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rows.toml"), rows).unwrap();
    folder
}

/// Runs the file in `folder`, from there.
fn evidence(folder: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .current_dir(folder)
        .args(["evidence", "--rows", "rows.toml", "--runs", "1", "--virtual-ms", "2"])
        .args(more)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn only_rows_of_the_given_file_run() {
    let text = format!(
        "{ROW}\n[[beside]]\ntable = \"lab\"\nworkload = \"madvise_spin\"\ndesign = \"adaptive\"\n\n\
         [[note]]\ntable = \"lab\"\ntext = \"Taken by hand.\"\n"
    );
    let folder = folder(&text);
    let text = stdout(&evidence(folder.path(), &[]));
    assert!(text.starts_with("lab. madvise_spin on zen5-vm-2\n"), "{text}");
    assert!(
        text.contains("9000 ns") && text.contains("  Taken by hand.\n"),
        "{text}"
    );
    assert!(
        text.contains("  not published: madvise_spin at 2 threads, adaptive: "),
        "{text}"
    );
    assert!(
        text.contains("zen5-vm-2: used for fitting: 0 rows; on 1 other,"),
        "{text}"
    );
    for other in ["E1. ", "milan-72", "shape", "interpolation"] {
        assert!(!text.contains(other), "{other}: {text}");
    }
}

#[test]
fn json_and_page_cover_the_file_and_name_the_command() {
    let folder = folder(&format!("{ROW}[[note]]\ntable = \"lab\"\ntext = \"Taken by hand.\"\n"));
    let json = stdout(&evidence(folder.path(), &["--json", "--html", "page.html"]));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let command = "shootdown evidence --rows rows.toml --runs 1 --seed 1 --virtual-ms 2";
    assert_eq!(value["command"], command);
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{json}");
    assert_eq!(
        (&rows[0]["table"], &rows[0]["published"]),
        (&"lab".into(), &9000.0.into())
    );
    let simulated = rows[0]["simulated"].as_f64().unwrap();
    let error = rows[0]["relative_error"].as_f64().unwrap();
    assert!((error - (simulated / 9000.0 - 1.0)).abs() < 1e-9, "{json}");
    assert!(value["shape"].is_null() && rows[0]["not_run"].is_null(), "{json}");
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    for part in [command, "a stop watch", "Taken by hand."] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("Shape of E1"), "of curves that were not run");
}

/// No cost of an interrupt lets two threads drop a page in ten nanoseconds.
#[test]
fn rate_above_ideal_fails_the_verdict_by_name() {
    let folder = folder(&ROW.replace("9000", "10"));
    let output = evidence(folder.path(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("below the published rate of 1 of 1"), "{text}");
    assert!(
        text.contains("FLOOR: lab madvise_spin on zen5-vm-2, ipi-trim at 2 threads"),
        "{text}"
    );
    let json = evidence(folder.path(), &["--json"]);
    assert_eq!(json.status.code(), Some(1));
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(value["floor"][0]["published_ops_per_s"], 1e8, "{value}");
}

#[test]
fn machine_may_be_a_file() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/zen5-vm-2.toml");
    let folder = folder(&ROW.replace("zen5-vm-2", "./mine.toml"));
    std::fs::copy(&model, folder.path().join("mine.toml")).unwrap();
    let own: serde_json::Value = serde_json::from_str(&stdout(&evidence(folder.path(), &["--json"]))).unwrap();
    assert_eq!(own["rows"][0]["machine"], "./mine.toml");
    std::fs::write(folder.path().join("rows.toml"), ROW).unwrap();
    let named: serde_json::Value = serde_json::from_str(&stdout(&evidence(folder.path(), &["--json"]))).unwrap();
    assert_eq!(own["rows"][0]["simulated"], named["rows"][0]["simulated"]);
    assert!(own["rows"][0]["simulated"].as_f64() > Some(0.0), "{own}");
}

#[test]
fn mistakes_in_a_rows_file_name_place_and_remedy() {
    let second = |more: &str| format!("{ROW}\n{more}");
    for (text, line, expected) in [
        (
            second(&format!("{ROW}idle_share = 0.5\n")),
            10,
            "expected exactly one of kloops_per_s,",
        ),
        (
            second(&ROW.replace("ns_per_op", "ns_per_hop")),
            16,
            "unknown field `ns_per_hop`, expected one of `table`",
        ),
        (
            second(&ROW.replace("zen5-vm-2", "abacus")),
            10,
            "abacus: unknown machine; expected one of milan-72",
        ),
        (
            second(&ROW.replace("threads = 2", "threads = 3")),
            10,
            "zen5-vm-2 has 2 CPUs",
        ),
    ] {
        let folder = folder(&text);
        let output = evidence(folder.path(), &[]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(output.stdout.is_empty() && message.lines().count() == 1, "{message}");
        assert!(
            message.starts_with(&format!("error: rows.toml:{line}: ")) && message.contains(expected),
            "{message}"
        );
        assert!(message.contains("shootdown evidence --help"), "{message}");
    }
}

#[test]
fn unreadable_rows_file_is_named() {
    let nowhere = tempfile::tempdir().unwrap();
    let output = evidence(nowhere.path(), &[]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(message, "error: rows.toml: there is no such file; check the path\n");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/zen5-vm-2.toml");
    std::fs::copy(shipped, nowhere.path().join("rows.toml")).unwrap();
    let output = evidence(nowhere.path(), &[]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains(": unknown field `") && message.contains("expected one of `row`, `beside`, `note`"),
        "{message}"
    );
}

#[test]
fn example_row_in_the_help_is_valid() {
    let help = Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(["evidence", "--help"])
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let help = stdout(&help);
    let from = help.find("  [[row]]").expect("an example");
    let row = &help[from..from + help[from..].find("Numbers:").expect("what follows it")];
    // A loop takes longer on this machine, also under `ideal`.
    let row = row.replace("./my-box.toml", "zen5-vm-2").replace("2100", "9000");
    let folder = folder(&row);
    let text = stdout(&evidence(folder.path(), &[]));
    assert!(text.starts_with("lab. ") && text.contains("9000 ns"), "{text}");
}
