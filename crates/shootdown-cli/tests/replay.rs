//! `shootdown replay` from a user's point of view, on the first moments of real recordings.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn replay(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .arg("replay")
        .args(arguments)
        .output()
        .unwrap()
}

fn recording(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shootdown-trace/tests/data");
    folder.join(name).display().to_string()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Linux's handling of the requests is withheld from the replay, which predicts it. These are the first 1500 lines of
/// each recording, before which the state of the CPUs is unknown: whole recordings come closer.
#[test]
fn replay_predicts_the_recorded_ipis() {
    for name in ["cc_make_j2", "cargo_build_sys", "go_gc", "java_zgc"] {
        let file = recording(&format!("{name}.txt.gz"));
        let found = json(&replay(&[
            &file,
            "--on",
            "zen5-vm-2",
            "--designs",
            "ipi-trim",
            "--json",
        ]));
        let predictions = found["predictions"].as_array().unwrap();
        let of = |what: &str| {
            let line = predictions.iter().find(|line| line["what"] == what).unwrap();
            (line["recorded"].as_f64().unwrap(), line["predicted"].as_f64().unwrap())
        };
        for (what, least) in [
            ("requests queued to other CPUs", 2.0),
            ("carried out there, the space being loaded", 2.0),
            ("root loads at switches", 4.0),
        ] {
            let (recorded, predicted) = of(what);
            let off = (predicted - recorded).abs();
            assert!(
                off <= (0.2 * recorded).max(least),
                "{name}: {what}: {recorded} recorded, {predicted} predicted"
            );
        }
        assert_eq!(found["designs"][0]["stale"], 0, "{name}");
    }
}

#[test]
fn scaling_multiplies_requests_and_ipis() {
    let file = recording("go_gc.txt.gz");
    let run = |scale: &str| {
        json(&replay(&[
            &file,
            "--on",
            "milan-72",
            "--designs",
            "ipi,none",
            "--scale",
            scale,
            "--json",
        ]))
    };
    let number = |of: &Value, key: &str| of["designs"][0][key].as_u64().unwrap();
    let (one, copies, threads, spread) = (run("1"), run("4"), run("threads:4"), run("spread"));
    for more in [&copies, &threads] {
        assert_eq!(number(more, "flushes"), 4 * number(&one, "flushes"));
    }
    assert_eq!(number(&spread, "flushes"), number(&one, "flushes"));
    // Copies do not share a space; the threads of one space interrupt one another.
    assert!(number(&copies, "interrupts_sent") < 6 * number(&one, "interrupts_sent"));
    assert!(number(&threads, "interrupts_sent") > 8 * number(&one, "interrupts_sent"));
    assert!(
        one["designs"][1]["stale"].as_u64().unwrap() > 0,
        "the control is caught"
    );
}

#[test]
fn parquet_replays_like_its_text_and_the_page_is_self_contained() {
    let folder = tempfile::tempdir().unwrap();
    let (columns, page) = (folder.path().join("r.parquet"), folder.path().join("r.html"));
    let text = recording("java_zgc.txt.gz");
    let imported = Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(["import", &text, "-o", columns.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(imported.status.success());
    let of = |file: &str, more: &[&str]| {
        let arguments = [&[file, "--designs", "broadcast", "--json"], more].concat();
        json(&replay(&arguments))["designs"].clone()
    };
    let with_page = of(columns.to_str().unwrap(), &["--html", page.to_str().unwrap()]);
    assert_eq!(of(&text, &[]), with_page);
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("canvas class=\"lanes\"") && html.contains("\"spans\":["));
    assert!(!html.contains("http:") && !html.contains("https:"));
}

#[test]
fn mistakes_name_the_place_and_the_remedy() {
    let file = recording("go_gc.txt.gz");
    for (arguments, expected) in [
        (vec![file.as_str(), "--scale", "50"], "--cpus 100"),
        (vec![file.as_str(), "--scale", "wide"], "for example 4"),
        (vec![file.as_str(), "--designs", "ipx"], "use one of"),
        (vec!["-"], "shootdown import -"),
        (vec!["nothing.txt"], "nothing.txt"),
    ] {
        let output = replay(&arguments);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(expected) && printed.lines().count() == 1, "{printed}");
    }
}

/// Events that the kernel lost are missing from every number, and each says so.
#[test]
fn lost_events_appear_in_every_result() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.txt");
    let text = "# cpu0 entries: 9 overrun: 123 commit overrun: 0 dropped events: 0\n\
                  a-7 ( 7) [000] d..2. 1.000001: tlb_flush: pages:1 reason:local MM shootdown (3)\n";
    std::fs::write(&file, text).unwrap();
    let output = replay(&[file.to_str().unwrap(), "--designs", "ipi"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        printed.contains("lost 123 events") && printed.contains("≥ 1"),
        "{printed}"
    );
    let found = json(&replay(&[file.to_str().unwrap(), "--designs", "ipi", "--json"]));
    assert_eq!(
        (&found["lost_events"], &found["designs"][0]["lost_events"]),
        (&123.into(), &123.into())
    );
}

/// Two recordings from beginning to end are predicted within 3 % of the queued requests. In the first lines of four,
/// the missing ones are requests to CPUs on which the recording had not shown the process.
#[test]
fn replay_prints_its_fit_to_the_recording() {
    for (name, error, missing) in [
        ("java_zgc_whole", 0.03, 0),
        ("cargo_build_sys_whole", 0.03, 0),
        ("java_zgc", 0.05, 3),
        ("go_gc", 0.05, 1),
        ("cargo_build_sys", 0.05, 3),
        ("cc_make_j2", 0.05, 2),
    ] {
        let file = recording(&format!("{name}.txt.gz"));
        let found = json(&replay(&[&file, "--on", "milan-72", "--designs", "ipi", "--json"]));
        let fit = &found["fits"][0];
        assert_eq!(fit["machine"], "zen5-vm-2", "{name}");
        let of = |key: &str| fit[key].as_f64().unwrap();
        let off = (of("predicted") - of("recorded")).abs();
        assert!(off <= error * of("recorded") + f64::from(missing), "{name}: {fit}");
    }
}

/// One recording cannot be that of several machines.
#[test]
fn replay_on_several_virtual_machines_is_refused() {
    let file = recording("cc_make_j2.txt.gz");
    let output = replay(&[&file, "--vm", "2", "--set", "vm.machines=2"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("vm.others"), "{error}");
}

#[test]
fn replay_first_states_the_limits_of_the_recording() {
    let text = |name: &str| {
        let output = replay(&[&recording(name), "--designs", "ipi,broadcast"]);
        String::from_utf8(output.stdout).unwrap()
    };
    let go = text("go_gc.txt.gz");
    let limits = go.split("Interrupts, and CPU time lost").next().unwrap();
    for line in [
        "processes: the recording has their numbers",
        "losses: the recording notes none",
        "sys_enter_madvise",
        "zen5-vm-2",
        "fit: 107 interrupts recorded",
    ] {
        assert!(limits.contains(line), "{line} in {limits}");
    }
    assert!(
        !go.contains("DOES NOT TELL DESIGNS APART") && !go.contains("CPU time lost over"),
        "{go}"
    );
    let apart = replay(&[&recording("go_gc.txt.gz"), "--designs", "ipi,adaptive"]);
    let apart = String::from_utf8(apart.stdout).unwrap();
    assert!(
        apart.contains("CPU time lost, as a ratio to ipi: adaptive 0."),
        "{apart}"
    );
    let make = text("cc_make_j2.txt.gz");
    assert!(
        make.contains("DOES NOT TELL DESIGNS APART") && !make.contains("CPU time lost over"),
        "{make}"
    );
    assert!(go.contains("Interrupts by thread that is interrupted") && go.contains("gcload-"));
}
