//! `shootdown check`: its output, its exit status, and counterexamples that can be replayed.

use std::process::{Command, Output};

fn check(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .arg("check")
        .args(args)
        .output()
        .unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn sound_design_holds_and_control_is_caught() {
    let output = check(&["flush", "--designs", "ipi,none"]);
    assert_eq!(output.status.code(), Some(0));
    let text = printed(&output);
    assert!(
        text.contains("holds") && text.contains("control: caught in 1 race"),
        "{text}"
    );
    assert!(
        text.contains("flush under none on x86:\nCPU 0 withdraws page 0 of space 1\n"),
        "{text}"
    );
}

#[test]
fn json_has_one_object_for_each_exploration() {
    let output = check(&["flush", "lazy", "--designs", "ipi", "--json"]);
    let lines: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(lines.len(), 2);
    for line in lines {
        assert_eq!((&line["design"], &line["memory"]), (&"ipi".into(), &"x86".into()));
        assert!(
            line["complete"] == true && line["broken"].is_null() && line["states"].as_u64() > Some(50),
            "{line}"
        );
    }
}

#[test]
fn incomplete_exploration_is_reported() {
    let text = printed(&check(&["cross", "--designs", "ipi", "--states", "100"]));
    assert!(text.contains("not complete"), "{text}");
    assert!(text.contains("states: not every order of steps"), "{text}");
    assert_eq!(check(&["cross", "--states", "0"]).status.code(), Some(2));
}

#[test]
fn bounded_result_names_its_bound() {
    let bounded = ["cross", "--designs", "ipi", "--preemptions", "1"];
    let text = printed(&check(&bounded));
    assert!(text.contains("holds within 1 preemption"), "{text}");
    assert!(text.contains("with at most 1 preemption in a run"), "{text}");
    let json = check(&[bounded.as_slice(), &["--json"]].concat());
    let lines: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&lines[0]["complete"], &lines[0]["preemptions"]),
        (&false.into(), &1.into())
    );
}

#[test]
fn help_names_every_race() {
    let help = printed(&check(&["--help"]));
    let unknown = check(&["no-such-race"]);
    let line = String::from_utf8_lossy(&unknown.stderr).to_string();
    let (_, known) = line.trim().split_once("use one of: ").unwrap();
    let words: Vec<&str> = help.split([' ', ',', ';', '\n', '.']).collect();
    for race in known.split(", ") {
        assert!(words.contains(&race), "{race} is not in {help}");
    }
}

#[test]
fn counterexample_replays_and_a_damaged_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flush.txt");
    let place = path.to_str().unwrap();
    let recorded = check(&["flush", "--designs", "none", "--memory", "arm", "--record", place]);
    assert_eq!(recorded.status.code(), Some(0));
    let output = check(&["--replay", place]);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text.starts_with("flush under none on arm, ") && text.contains("CPU 0 frees frame 1"),
        "{text}"
    );
    std::fs::write(&path, "shootdown check 2\nrace flush\ndesign none\nmemory arm\nrun 7\n").unwrap();
    let output = check(&["--replay", place]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        message.contains("flush.txt: step 0 (line 5) cannot be taken"),
        "{message}"
    );
}

#[test]
fn design_uses_its_processors_memory_model_by_default() {
    let text = printed(&check(&["flush", "--designs", "ipi,arm-ipi"]));
    let row = |start: &str| {
        text.lines()
            .find(|line| line.trim_start().starts_with(start))
            .unwrap()
            .to_string()
    };
    assert!(
        row("ipi ").contains(" x86 ") && row("arm-ipi ").contains(" arm "),
        "{text}"
    );
    let text = printed(&check(&["flush", "--designs", "ipi", "--memory", "riscv,arm"]));
    assert!(
        text.contains(" riscv ") && text.contains(" arm ") && !text.contains(" x86 "),
        "{text}"
    );
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    for (args, known) in [
        (["smoke", "--designs", "ipi"], "foreign-walk"),
        (["flush", "--designs", "fog"], "adaptive-no-broadcast"),
        (["flush", "--memory", "mips"], "riscv"),
    ] {
        let output = check(&args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(
            message.contains("is not known; use one of:") && message.contains(known),
            "{message}"
        );
        assert_eq!(message.lines().count(), 1);
    }
}

#[test]
fn random_runs_catch_only_the_control() {
    let output = check(&[
        "flush",
        "mixed-4",
        "--designs",
        "ipi,none",
        "--random",
        "300",
        "--jobs",
        "1",
    ]);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("nothing found") && text.contains("control: caught in"),
        "{text}"
    );
    assert!(text.contains("random runs by priorities"), "{text}");
    assert_eq!(check(&["--random", "5", "--states", "7"]).status.code(), Some(2));
}
