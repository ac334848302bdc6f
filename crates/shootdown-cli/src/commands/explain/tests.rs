use super::*;

fn explained(threads: usize, set: &[&str], design: &str) -> (RunSpec, RunResult, Explanation) {
    explained_on("milan-72", threads, set, design)
}

fn explained_on(machine: &str, threads: usize, set: &[&str], design: &str) -> (RunSpec, RunResult, Explanation) {
    let set: Vec<String> = set.iter().map(ToString::to_string).collect();
    let target = Target::new(machine, None, &set).unwrap();
    let spec = RunSpec {
        workload: "tlb_flush2".into(),
        machine: target.machine,
        design: design.into(),
        threads,
        seed: 1,
        virtual_ms: Some(1.0),
        lru_drain: false,
        parameters: target.parameters,
    };
    let (result, explanation) = run::explain(&spec, &mut |_| true).unwrap();
    (spec, result, explanation)
}

#[test]
fn explaining_does_not_change_the_run() {
    let (spec, result, _) = explained(6, &[], "adaptive");
    let again = run::run(&spec, &mut |_| true).unwrap();
    let host_seconds = result.host_seconds;
    assert_eq!(result, RunResult { host_seconds, ..again });
}

#[test]
fn broadcast_explanation_names_costs_and_promotion() {
    let (spec, result, explanation) = explained(6, &[], "adaptive");
    let text = words(&spec, &result, &explanation, 8).join("\n");
    assert!(text.contains("Measured at start: interrupting one CPU"), "{text}");
    assert!(text.contains("the space is promoted"), "{text}");
    let [_, _, broadcast] = &explanation.decision_log.requests;
    assert!(broadcast.count > 0 && broadcast.mean_ns() > 0.0);
}

#[test]
fn explanation_follows_from_the_numbers_in_json() {
    let (milan, riscv) = ("milan-72", "generic-riscv-64");
    for (machine, threads) in [
        (milan, 6),
        (milan, 12),
        (milan, 16),
        (milan, 32),
        (riscv, 16),
        (riscv, 64),
    ] {
        let (spec, result, explanation) = explained_on(machine, threads, &[], "adaptive");
        assert_eq!(explanation.broadcast_interrupts > 0, machine == riscv);
        let text = json::render("shootdown explain", &spec, machine.into(), &result, &explanation);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let costs = &value["costs"][1];
        let number = |name: &str| costs[name].as_u64().unwrap();
        if let Some(from) = costs["broadcast_from"].as_u64() {
            let by_interrupts = |cpus: u64| match cpus {
                0 => 0,
                cpus => {
                    number("interrupt_ns") + number("interrupt_more_ns") * (cpus - 1) + number("disturbed_ns") * cpus
                }
            };
            let broadcast = number("broadcast_ns") + number("broadcast_disturbed_ns");
            let lines = words(&spec, &result, &explanation, 8).join("\n");
            let expected = if 4 * broadcast > 5 * by_interrupts(from) + 4 {
                "; interrupts cost less by more than a quarter, but not for 16 timed requests in a row. "
            } else if 4 * by_interrupts(from - 1) > 5 * broadcast + 4 {
                "by interrupts) by more than a quarter, but not for 16 timed requests in a row. "
            } else if broadcast <= by_interrupts(from) {
                "; a broadcast costs less. "
            } else {
                "; interrupts cost less, but not by more than a quarter. "
            };
            assert!(lines.contains(expected), "{machine}, {threads}: {expected}: {lines}");
        }
        for decision in value["decisions"].as_array().unwrap() {
            let (without, with) = (decision["without_tag_ns"].as_u64(), decision["with_tag_ns"].as_u64());
            let Some((without, with)) = without.zip(with) else {
                continue;
            };
            match decision["kind"].as_str().unwrap() {
                "promoting" => assert!(8 * without > 9 * with - 8, "{decision}"),
                "demoting-by-cost" => assert!(8 * with > 9 * without - 8, "{decision}"),
                other => panic!("{other} has costs"),
            }
        }
    }
}

#[test]
fn json_and_text_agree() {
    let (spec, result, explanation) = explained(6, &[], "adaptive");
    let text = json::render("shootdown explain", &spec, "milan-72".into(), &result, &explanation);
    crate::print::json::assert_explained(&text);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["run"]["ops_per_s"], result.ops_per_s);
    let shares = |value: &serde_json::Value| {
        let requests = value["requests"].as_array().unwrap();
        requests.iter().map(|way| way["share"].as_f64().unwrap()).sum::<f64>()
    };
    assert!((shares(&value) - 1.0).abs() < 1e-9, "{text}");
    assert_eq!(value["requests"][2]["way"], "broadcast");
    assert_eq!(
        value["requests"][2]["count"],
        explanation.decision_log.requests[2].count
    );
    let lines = decisions(&explanation.decision_log, usize::MAX);
    let listed = value["decisions"].as_array().unwrap();
    // Programs get every decision, people those with an effect.
    let of_tags = |line: &&String| {
        !line.contains("the threshold moved") && !line.contains("the threshold for broadcasting moves")
    };
    let moved = |decision: &&serde_json::Value| decision["kind"] == "threshold-moved";
    let thresholds = listed.iter().filter(moved).count();
    assert_eq!(listed.len() - thresholds, lines.iter().filter(of_tags).count());
    let promoted = listed.iter().find(|decision| decision["kind"] == "promoted").unwrap();
    assert!(
        lines
            .iter()
            .any(|line| line.contains(promoted["what"].as_str().unwrap()))
    );
    let start = calibrated(&explanation.decision_log).unwrap();
    assert_eq!(value["costs"][0]["when"], "calibrated");
    assert_eq!(value["costs"][0]["interrupt_ns"], start.interrupt_ns);
    assert_eq!(value["costs"][1]["broadcast_ns"], explanation.costs.broadcast_ns);
    let timed: Vec<_> = value["timed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|timed| &timed["way"])
        .collect();
    assert!(timed.contains(&&serde_json::json!("broadcast")), "{text}");
}

#[test]
fn json_omits_costs_without_a_choice() {
    let (spec, result, explanation) = explained(4, &[], "ipi");
    let text = json::render("shootdown explain", &spec, "milan-72".into(), &result, &explanation);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&value["adaptive"], &value["costs"]),
        (&false.into(), &serde_json::json!([]))
    );
    let (spec, result, explanation) = explained(4, &["broadcast.available=false"], "adaptive");
    let text = json::render("shootdown explain", &spec, "milan-72".into(), &result, &explanation);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let broadcast = &value["requests"][2];
    assert!(broadcast["count"] == 0 && broadcast["mean_ns"].is_null() && broadcast["p99_ns"].is_null());
    let costs = value["costs"].as_array().unwrap();
    assert!(!costs.is_empty());
    assert!(
        costs
            .iter()
            .all(|costs| costs["broadcast_ns"].is_null() && costs["broadcast_from"].is_null())
    );
}

#[test]
fn explanation_claims_no_broadcast_without_the_instruction() {
    let (spec, result, explanation) = explained(6, &["broadcast.available=false"], "adaptive");
    let text = words(&spec, &result, &explanation, 8).join("\n");
    assert!(text.contains("cannot broadcast"), "{text}");
    assert!(!text.contains("were broadcast"), "none were: {text}");
    assert_eq!(explanation.decision_log.requests[2].count, 0);
    let page = page::render("a < b", "shootdown explain", &explanation.decision_log, &[text]);
    let header = "<th class=\"word\">way</th><th>requests</th><th>share</th><th>of their time</th><th>mean</th>";
    assert!(page.contains(header), "{page}");
    assert!(
        page.contains(
            "<td class=\"word\">broadcast</td><td>0</td><td>0.0%</td><td>0.0%</td><td>–</td><td>–</td><td>–</td>"
        ),
        "{page}"
    );
    let row = &requests_table(&explanation.decision_log).groups[0][2];
    assert_eq!(row.as_slice(), ["broadcast", "", "0.0%", "0", "–", "–", "–"]);
    assert!(
        crate::print::page::checked(&page)
            .descendants()
            .any(|node| node.has_tag_name("svg"))
    );
    assert!(page.contains("<h1>a &lt; b</h1>"), "{page}");
}

#[test]
fn printed_command_keeps_the_number_of_decisions() {
    use clap::Parser;
    let lines = |more: &[&str]| {
        let words = [&["shootdown", "explain", "tlb_flush2"], more].concat();
        let Some(crate::args::Command::Explain(args)) = crate::args::Cli::try_parse_from(words).unwrap().command else {
            panic!("not explain")
        };
        let (spec, ..) = explained(2, &[], "ipi");
        command_line(&args, &spec, &Target::new("milan-72", None, &[]).unwrap())
    };
    assert!(lines(&["--decisions", "40"]).ends_with(" --virtual-ms 1 --decisions 40"));
    assert!(lines(&[]).ends_with(" --virtual-ms 1"));
}

#[test]
fn fixed_design_is_explained_by_its_settings() {
    let (spec, result, explanation) = explained(4, &[], "ipi");
    let text = words(&spec, &result, &explanation, 8).join("\n");
    assert!(text.contains("nothing was measured"), "{text}");
    assert!(explanation.decision_log.requests[1].count > 0, "{text}");
}
