use super::*;
use crate::runs::fake::{self, Fake};

/// Rows in which `walk-interrupt-all` loses pins with the rate of frees, and `walk-precise` loses none.
pub(super) fn findings() -> Findings {
    let spec = &fake::plan(&["ipi"], &[4]).specs()[0];
    let row = |frees: u64| Row {
        frees,
        outcomes: DESIGNS
            .iter()
            .map(|&design| {
                let lost = if design == "walk-interrupt-all" {
                    frees as f64
                } else {
                    0.0
                };
                let pays = if design == "walk-precise" { 5e3 } else { 0.0 };
                Ok(RunResult {
                    ops_per_s: 1e6 - lost - pays,
                    interrupts_per_op: lost / 1e4,
                    ..fake::result(spec)
                })
            })
            .collect(),
    };
    Findings {
        machine: "gup-64".to_string(),
        command: "shootdown walkers".to_string(),
        shared: false,
        rows: [0, 100, 1000, 10_000, 100_000].map(row).into(),
        missing: 0,
    }
}

#[test]
fn break_even_is_given_as_the_enclosing_rates() {
    let sentences = findings().break_evens();
    assert_eq!(sentences.len(), 10);
    for expected in [
        "walk-interrupt-all is ahead of walk-precise at first; \
         overtaken by walk-precise between 1,000 and 10,000 frees per second",
        "walk-sticky is ahead of walk-precise wherever they differ, from 0 frees per second on",
        "walk-sticky and walk-grace: no difference above 0.1%",
    ] {
        assert!(
            sentences.iter().any(|sentence| sentence == expected),
            "{expected}\n{sentences:#?}"
        );
    }
}

#[test]
fn json_has_a_run_per_design_and_rate_and_each_break_even() {
    let mut findings = findings();
    findings.rows[1].outcomes[2] = Err("hangs".to_string());
    let text = json::render(&findings);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let runs = value["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 5 * DESIGNS.len());
    let failed = &runs[DESIGNS.len() + 2];
    assert_eq!(
        (&failed["design"], &failed["error"]),
        (&"walk-sticky".into(), &"hangs".into())
    );
    assert!(failed["pins_per_s"].is_null() && failed["share_of_best"].is_null());
    let last = &runs[4 * DESIGNS.len()];
    assert_eq!(last["frees_requested_per_s"], 100_000);
    assert_eq!(
        (&last["pins_per_s"], &last["share_of_best"]),
        (&9e5.into(), &0.9.into())
    );
    assert_eq!(last["interrupts_per_s"], 9e6);
    let pair = &value["break_evens"][0];
    assert_eq!(
        pair["designs"],
        serde_json::json!(["walk-interrupt-all", "walk-precise"])
    );
    let lead = |ahead: &str, from: u64, after: u64| {
        let mut fields = serde_json::json!({"ahead": ahead, "from_frees_per_s": from});
        fields["after_frees_per_s"] = after.into();
        fields
    };
    let expected = [lead("walk-interrupt-all", 0, 0), lead("walk-precise", 10_000, 1000)];
    assert_eq!(pair["leads"], serde_json::Value::from(expected.to_vec()));
    crate::print::json::assert_explained(&text);
}

#[test]
fn text_names_failed_runs() {
    let mut findings = findings();
    findings.rows[1].outcomes[2] = Err("hangs".to_string());
    assert!(!findings.sound());
    let text = findings.text();
    assert!(
        text.contains("FAILED: walk-sticky at 100 frees per second: hangs"),
        "{text}"
    );
    assert!(
        text.contains("failed") && text.contains("stale translations: 0"),
        "{text}"
    );
}

#[test]
fn every_design_runs_at_every_rate_and_bad_rates_are_refused() {
    use clap::Parser;
    let run = |more: &[&str]| {
        let words = [&["shootdown", "walkers", "--frees", "0,1000", "--jobs", "1"], more].concat();
        let Some(crate::args::Command::Walkers(args)) = crate::args::Cli::try_parse_from(words).unwrap().command else {
            panic!("not walkers")
        };
        let fake = Fake::default();
        let status = command(&args, &fake, &AtomicBool::new(false));
        (status, fake.started.into_inner().unwrap())
    };
    let (status, mut started) = run(&[]);
    started.sort_unstable();
    assert_eq!(status, Ok(SUCCESS));
    assert_eq!(started, [[PINNING; 5], [PINNING + FREEING; 5]].concat());
    let set = ["--on", "my box.toml", "--set", "costs.invlpg = 200"];
    let words = [&["shootdown", "walkers"][..], &set[..]].concat();
    let Some(crate::args::Command::Walkers(args)) = crate::args::Cli::try_parse_from(words).unwrap().command else {
        panic!("not walkers")
    };
    let settings = Settings::new(&args.run, 1).unwrap();
    let command = repeat(&args, &[0], &settings);
    assert!(
        command.contains("--on 'my box.toml' --frees 0") && command.ends_with("--set costs.invlpg=200"),
        "{command}"
    );
    let message = run(&["--on", "haswell-48"]).0.unwrap_err().to_string();
    assert!(message.contains("48 CPUs"), "{message}");
}
