//! The `--json` output of commands matches `shootdown schema`: every command that runs anywhere, for a moment.
//! `record`, `host` and `calibrate` are checked in their own tests, `qemu` where a line of the kernel is read.

mod rows;
mod valid;

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use valid::{assert_valid, mistakes};

/// What `shootdown ARGUMENTS --json` prints, valid against the schema of its command.
fn printed(folder: &Path, arguments: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .current_dir(folder)
        .args(arguments.split_whitespace())
        .arg("--json")
        .output()
        .unwrap();
    let document = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
    let command = arguments.split_whitespace().next().unwrap();
    assert_valid(command, &document);
    document
}

fn recording() -> String {
    concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../shootdown-trace/tests/data/go_gc.txt.gz"
    )
    .to_string()
}

#[test]
fn schema_violation_is_reported() {
    let schema = valid::schema("list");
    let mut listing = printed(Path::new("."), "list");
    assert!(mistakes(&schema, &listing).is_empty());
    listing["designs"][0]["surprise"] = json!(1);
    listing["machines"][0]["cpus"] = json!("many");
    listing["parameters"][0].as_object_mut().unwrap().remove("least");
    let mistakes = mistakes(&schema, &listing).join("\n");
    for expected in [
        "/designs/0: Additional properties are not allowed ('surprise' was unexpected)",
        "/machines/0/cpus: \"many\" is not of type",
        "/parameters/0: \"least\" is a required property",
    ] {
        assert!(mistakes.contains(expected), "{mistakes}");
    }
}

#[test]
fn json_of_simulated_runs_matches_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let printed = |arguments: &str| printed(folder.path(), arguments);
    let compared = printed("compare tlb_flush2 --designs ipi,adaptive,none --threads 1,4 --virtual-ms 0.2");
    assert!(
        compared["runs"][1]["latencies"][0]["buckets"][0].is_array(),
        "{compared}"
    );
    // A run that fails, one without operations, and one of a recording.
    printed("compare tlb_flush2 --threads 1 --virtual-ms 0.05");
    printed(&format!(
        "compare trace:{} --designs ipi --threads 2 --virtual-ms 1",
        recording()
    ));
    let swept = printed(
        "sweep tlb_flush2,madvise_spin --designs ipi,adaptive,none \
         --threads 2 --virtual-ms 0.2 --set costs.invlpg=100,200",
    );
    assert!(swept["runs"][0]["costs.invlpg"].is_number(), "{swept}");
    let shown = printed("timeline tlb_flush2 --threads 4");
    assert!(shown["lanes"].as_array().unwrap().len() > 1, "{shown}");
    let explained = printed("explain tlb_flush2 --threads 16 --virtual-ms 1");
    assert!(!explained["decisions"].as_array().unwrap().is_empty(), "{explained}");
    printed("explain tlb_flush2 --threads 2 --design ipi --virtual-ms 0.2");
    let walked = printed("walkers --virtual-ms 0.1");
    assert!(!walked["break_evens"].as_array().unwrap().is_empty(), "{walked}");
    let scored = printed("scoreboard --on zen5-vm-2 --workloads tlb_flush2 --virtual-ms 0.1");
    assert!(!scored["cells"].as_array().unwrap().is_empty(), "{scored}");
    let checked = printed("check flush --designs ipi,none");
    assert!(!checked.as_array().unwrap().is_empty(), "{checked}");
}

#[test]
fn json_of_recordings_matches_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let imported = printed(folder.path(), &format!("import {} -o r.parquet", recording()));
    assert!(
        !imported["victims"]["cpus"].as_array().unwrap().is_empty(),
        "{imported}"
    );
    let replayed = printed(
        folder.path(),
        "replay r.parquet --designs ipi-trim,adaptive --on zen5-vm-2",
    );
    assert!(!replayed["fits"].as_array().unwrap().is_empty(), "{replayed}");
    assert!(
        replayed["victims"]["threads"][0]["interrupts"].as_u64() > Some(0),
        "{replayed}"
    );
}

#[test]
fn json_of_user_rows_matches_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows::row("tlb_flush2", 2, "kloops_per_s = 500");
    std::fs::write(folder.path().join("rows.toml"), rows).unwrap();
    let found = printed(folder.path(), "evidence --rows rows.toml --virtual-ms 0.2");
    assert_eq!(found["rows"].as_array().unwrap().len(), 1, "{found}");
}
