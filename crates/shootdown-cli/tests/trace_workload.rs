//! `compare trace:FILE` from a user's point of view: the same table, the same JSON as for every workload, the results
//! of `replay`.

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
fn compare_of_a_recording_equals_its_replay() {
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
fn every_recording_compares_and_a_part_is_shorter() {
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
fn table_names_the_recording_and_the_control_is_caught() {
    let workload = format!("trace:{}", recording("go_gc.txt.gz"));
    let output = shootdown(&["compare", &workload, "--threads", "2"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("requested flushes") && text.contains("CPU time"),
        "{text}"
    );
    assert!(text.contains("control: `none` on tlb_shared caught"), "{text}");
}

fn printed(arguments: &[&str]) -> String {
    let output = shootdown(arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Words of a text, regardless of its line breaks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines of `replay` before its tables are those of `compare`.
#[test]
fn compare_states_the_limits_of_the_recording_like_replay() {
    let file = recording("java_zgc.txt.gz");
    let workload = format!("trace:{file}");
    let designs = ["--designs", "ipi,broadcast"];
    let compared = words(&printed(
        &[&["compare", &workload, "--threads", "2"][..], &designs].concat(),
    ));
    let replayed = printed(&[&["replay", &file][..], &designs].concat());
    let kinds = ["processes: ", "losses: ", "absent events: ", "machine: "];
    let replayed = words(replayed.split("Interrupts, and CPU time lost").next().unwrap());
    let from = |text: &str, kind: &str| text.find(kind).map(|at| text[at..].to_string()).unwrap_or_default();
    for (index, kind) in kinds.iter().enumerate() {
        let until = kinds.get(index + 1).unwrap_or(&"fit: ");
        let line = from(&replayed, kind).split(until).next().unwrap().to_string();
        assert!(!line.is_empty() && compared.contains(line.trim()), "{line}: {compared}");
    }
}

/// The rate is the same under every design: CPU time and the duration of a shootdown differ.
#[test]
fn recording_is_compared_by_costs_not_by_rate() {
    let workload = format!("trace:{}", recording("go_gc.txt.gz"));
    let arguments = ["compare", &workload, "--threads", "2,16", "--designs", "ipi,broadcast"];
    let text = printed(&arguments);
    // At 2 threads this preset interrupts as well.
    let ratios = "broadcast vs ipi: 1.00x";
    assert!(
        text.contains(&format!("CPU time in invalidation, {ratios} [")),
        "{text}"
    );
    assert!(
        text.contains(&format!("shootdown p99, {ratios} at 2 threads, 0.")),
        "{text}"
    );
    assert!(
        !text.contains("\nbroadcast vs ipi") && !text.contains("flush asked fors/s"),
        "{text}"
    );
    assert!(text.contains("rates: the recording's own under every design"), "{text}");
    let same = printed(&[&arguments[..], &["--metric", "time"]].concat());
    let table = |text: &str| {
        text.lines()
            .filter(|line| line.contains('─') || line.contains("µs"))
            .count()
    };
    assert_eq!(table(&same), table(&text), "{same}");
}

#[test]
fn indistinguishable_designs_of_a_recording_are_reported() {
    // 6 requests of one process.
    let few = format!("trace:{}", recording("cc_make_j2.txt.gz"));
    let text = words(&printed(&[
        "compare",
        &few,
        "--threads",
        "2",
        "--designs",
        "ipi,broadcast",
    ]));
    assert!(text.contains("THIS RECORDING DOES NOT TELL DESIGNS APART: "), "{text}");
    assert!(!text.contains("CPU time in invalidation, broadcast vs ipi"), "{text}");
    // Two names of nearly the same.
    let busy = format!("trace:{}", recording("go_gc.txt.gz"));
    let text = words(&printed(&[
        "compare",
        &busy,
        "--threads",
        "2,72",
        "--designs",
        "ipi,ipi-trim",
    ]));
    let finds =
        text.contains("differ by less than 0.1 % of CPU time on this recording: it gives no reason to prefer one");
    assert!(finds, "{text}");
    let text = words(&printed(&[
        "compare",
        &busy,
        "--threads",
        "72",
        "--designs",
        "ipi,broadcast",
    ]));
    assert!(
        !text.contains("no reason to prefer") && !text.contains("TELL DESIGNS APART"),
        "{text}"
    );
}

#[test]
fn reports_of_a_recording_plot_costs_and_state_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let workload = format!("trace:{}", recording("go_gc.txt.gz"));
    let (page, plot) = (place("r.html"), place("r.svg"));
    let arguments = ["compare", &workload, "--threads", "2,4", "--designs", "ipi,broadcast"];
    printed(&[&arguments[..], &["--html", &page]].concat());
    printed(&[&arguments[..], &["--svg", &plot]].concat());
    let (page, plot) = (
        std::fs::read_to_string(page).unwrap(),
        std::fs::read_to_string(plot).unwrap(),
    );
    assert!(page.contains("<h2>What the recording can tell</h2>") && page.contains("losses: the recording notes none"));
    assert!(!page.contains("<h2>Throughput</h2>") && page.contains("<h2>CPU time in invalidation</h2>"));
    assert!(
        plot.contains("CPU time in invalidation, %") && !plot.contains("per second"),
        "{plot}"
    );
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
        (
            vec![workload.as_str(), "--metric", "rate"],
            "--metric rate: the rate of a recording is the same under every design; use --metric time",
        ),
        (vec![workload.as_str(), "--virtual-ms", "0"], "above 0"),
        (vec![workload.as_str(), "--set", "workload.gup.pages=2"], "workload"),
    ] {
        let output = shootdown(&[&["compare"], arguments.as_slice()].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
    }
}

/// A compressed text that was cut off is used up to there, and says so; a Parquet file is whole or refused.
#[test]
fn truncated_recording_is_used_or_refused() {
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

/// Events that the kernel lost are missing from every number.
#[test]
fn lost_events_appear_in_every_result() {
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
    assert!(
        text.contains("losses: 123 events; every count is a lower bound"),
        "{text}"
    );
}
