//! `compare trace:FILE` as its user sees it: the same table, the same JSON as for every workload, what `replay` finds.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn shootdown(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_shootdown");
    Command::new(program).args(arguments).output().unwrap()
}

fn recording(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shootdown-trace/tests/data");
    folder.join(name).display().to_string()
}

fn json(arguments: &[&str]) -> Value {
    let output = shootdown(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_recording_is_compared_with_the_numbers_that_its_replay_has() {
    let file = recording("go_gc.txt.gz");
    let workload = format!("trace:{file}");
    let compared = json(&["compare", &workload, "--designs", "ipi,broadcast", "--threads", "2,8"]);
    let runs = compared["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4);
    for (run, (threads, design)) in runs
        .iter()
        .zip([(2, "ipi"), (2, "broadcast"), (8, "ipi"), (8, "broadcast")])
    {
        assert_eq!((&run["threads"], &run["design"]), (&threads.into(), &design.into()));
        assert_eq!(run["workload"], workload.as_str());
        assert_eq!((&run["stale"], &run["error"]), (&0.into(), &Value::Null));
        assert!(run.get("lost_events").is_none(), "it lost none");
        let replayed = json(&[
            "replay",
            &file,
            "--designs",
            design,
            "--scale",
            &format!("threads:{}", threads / 2),
        ]);
        let found = &replayed["designs"][0];
        assert_eq!(run["ops"], found["flushes"]);
        let sent = run["ipis_per_op"].as_f64().unwrap() * run["ops"].as_f64().unwrap();
        assert!((sent - found["interrupts_sent"].as_f64().unwrap()).abs() < 1e-6);
        let share = (
            run["flush_share"].as_f64().unwrap(),
            found["lost_share"].as_f64().unwrap(),
        );
        assert!((share.0 - share.1).abs() < 1e-9, "{share:?}");
    }
    assert!(runs[2]["ipis_per_op"].as_f64() > runs[0]["ipis_per_op"].as_f64());
}

#[test]
fn every_recording_can_be_compared_and_a_part_of_it_is_shorter() {
    for name in ["cc_make_j2", "cargo_build_sys", "java_zgc"] {
        let workload = format!("trace:{}", recording(&format!("{name}.txt.gz")));
        let of = |more: &[&str]| {
            let arguments = [&["compare", &workload, "--designs", "ipi", "--threads", "2"], more].concat();
            json(&arguments)["runs"][0]["ops"].as_u64().unwrap()
        };
        let (all, part) = (of(&[]), of(&["--virtual-ms", "2"]));
        assert!(part < all && all > 0, "{name}: {part} of {all}");
    }
}

#[test]
fn the_table_says_what_is_compared_and_the_control_is_caught() {
    let workload = format!("trace:{}", recording("go_gc.txt.gz"));
    let output = shootdown(&["compare", &workload, "--threads", "2"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("flushes asked for") && text.contains("CPU time"),
        "{text}"
    );
    assert!(text.contains("control: `none` on tlb_shared caught"), "{text}");
}

#[test]
fn mistakes_name_the_place_and_the_remedy() {
    let workload = format!("trace:{}", recording("go_gc.txt.gz"));
    let readme = format!("trace:{}", recording("README.md"));
    for (arguments, expected) in [
        (vec!["trace:nothing.parquet"], "nothing.parquet: "),
        (vec!["trace:"], "shootdown record"),
        (vec![readme.as_str()], "README.md: not a recording"),
        (
            vec![workload.as_str(), "--threads", "3"],
            "multiple of 2; give 2, 4, ..",
        ),
        (
            vec![workload.as_str(), "--threads", "74"],
            "give at most 72, or scale the machine with --cpus 74",
        ),
        (vec![workload.as_str(), "--designs", "ipx"], "use one of"),
        (vec![workload.as_str(), "--lru-drain"], "leave it out"),
        (vec![workload.as_str(), "--virtual-ms", "0"], "above 0"),
        (vec![workload.as_str(), "--set", "workload.gup.pages=2"], "workload"),
    ] {
        let output = shootdown(&[&["compare"], arguments.as_slice()].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
    }
}

/// A packed text that was cut off is used up to there, and says so; a Parquet file is whole or refused.
#[test]
fn a_recording_that_breaks_off_is_used_up_to_there_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let packed = std::fs::read(recording("go_gc.txt.gz")).unwrap();
    std::fs::write(place("half.txt.gz"), &packed[..packed.len() / 2]).unwrap();
    let (half, columns) = (place("half.txt.gz"), place("half.parquet"));
    let imported = json(&["import", &half, "-o", &columns]);
    assert_eq!(imported["metadata"]["incomplete"], true);
    let first = &imported["metadata"]["damage"]["first"][0]["what"];
    assert!(first.as_str().unwrap().contains("breaks off here"), "{first}");
    assert!(imported["events"].as_u64().unwrap() > 100);
    for file in [&half, &columns] {
        let arguments = [
            "compare",
            &format!("trace:{file}"),
            "--designs",
            "ipi",
            "--threads",
            "2",
        ];
        let output = shootdown(&arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && text.contains("ended before its time"),
            "{text}"
        );
    }
    let whole = std::fs::read(&columns).unwrap();
    std::fs::write(place("cut.parquet"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(place("cut.gz"), &packed[..20]).unwrap();
    for (file, expected) in [("cut.parquet", "damaged: "), ("cut.gz", "cut.gz: ")] {
        let output = shootdown(&["replay", &place(file), "--designs", "ipi"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
    }
}

/// What the kernel lost is missing from every number.
#[test]
fn lost_events_are_carried_into_every_result() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.txt");
    let text = "# cpu0 entries: 9 overrun: 123 commit overrun: 0 dropped events: 0\n\
                  a-7 ( 7) [000] d..2. 1.000001: tlb_flush: pages:1 reason:local MM shootdown (3)\n";
    std::fs::write(&file, text).unwrap();
    let workload = format!("trace:{}", file.display());
    let run = &json(&["compare", &workload, "--designs", "ipi", "--threads", "1"])["runs"][0];
    assert_eq!(run["lost_events"], 123);
    let output = shootdown(&["compare", &workload, "--designs", "ipi", "--threads", "1"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("lost 123 events"), "{text}");
}
