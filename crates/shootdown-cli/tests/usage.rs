//! Mistakes on the command line: each gets one clear line on stderr, nothing on stdout, and status 2. None of these runs anything.

use std::process::{Command, Output, Stdio};

fn shootdown(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(args)
        .output()
        .unwrap()
}

/// The message of a refused command line.
fn refused(args: &[&str]) -> String {
    let output = shootdown(args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    assert!(output.stdout.is_empty(), "{args:?} printed on stdout");
    message
}

fn compare(args: &[&str]) -> String {
    refused(&[&["compare", "tlb_flush2", "--on", "milan-72"], args].concat())
}

#[test]
fn unknown_names_list_the_known_ones() {
    assert_eq!(
        refused(&["compare", "tlb_flash", "--on", "milan-72"]),
        "error: WORKLOAD: unknown workload `tlb_flash`; known: tlb_flush2, tlb_shared\n"
    );
    assert_eq!(
        compare(&["--designs", "ipi,smoke"]),
        "error: --designs: unknown design `smoke`; known: ideal, ipi, broadcast, adaptive, none\n"
    );
    let machine = refused(&["compare", "tlb_flush2", "--on", "abacus"]);
    assert!(
        machine.starts_with("error: --on: unknown machine `abacus`; known: "),
        "{machine}"
    );
    assert!(
        machine.contains("milan-72") && machine.ends_with(", or the path of a .toml file\n"),
        "{machine}"
    );
}

#[test]
fn counts_out_of_range_name_their_range() {
    let threads = "milan-72 has 72 CPUs and runs one thread on each; expected 1 to 72\n";
    assert_eq!(compare(&["--threads", "4,0"]), format!("error: --threads 0: {threads}"));
    assert_eq!(compare(&["--threads", "73"]), format!("error: --threads 73: {threads}"));
    assert_eq!(compare(&["--runs", "0"]), "error: --runs 0: expected 1 to 1000 runs\n");
    assert_eq!(
        compare(&["--jobs", "0"]),
        "error: --jobs 0: expected 1 to 1024 host threads\n"
    );
    for (text, shown) in [("0", "0"), ("-3", "-3"), ("nan", "NaN"), ("inf", "inf")] {
        let expected = format!("error: --virtual-ms {shown}: expected milliseconds > 0, for example 5\n");
        assert_eq!(compare(&["--virtual-ms", text]), expected);
    }
}

#[test]
fn words_where_numbers_belong_are_told_what_was_expected() {
    for option in ["--threads", "--runs", "--jobs", "--seed"] {
        let message = compare(&[option, "many"]);
        assert!(message.starts_with("error: invalid value 'many' for '"), "{message}");
        assert!(
            message.contains(option) && message.contains("expected a whole number, for example 4"),
            "{message}"
        );
    }
    assert!(refused(&["compare"]).contains("<WORKLOAD>"));
    assert!(refused(&["conjure"]).contains("unrecognized subcommand 'conjure'"));
}

#[test]
fn evidence_checks_its_options_too() {
    assert_eq!(
        refused(&["evidence", "--runs", "0"]),
        "error: --runs 0: expected 1 to 1000 runs\n"
    );
}

#[test]
fn a_missing_machine_file_is_named() {
    let message = refused(&["compare", "tlb_flush2", "--on", "no/such/machine.toml"]);
    assert!(
        message.starts_with("error: ") && message.contains("machine.toml"),
        "{message}"
    );
}

#[test]
fn help_is_not_a_mistake() {
    let output = shootdown(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().contains("Examples:"));
}

#[test]
fn the_listing_names_workloads_machines_and_designs() {
    let text = String::from_utf8(shootdown(&["list"]).stdout).unwrap();
    for name in [
        "tlb_flush2",
        "tlb_shared",
        "milan-72",
        "ideal",
        "ipi",
        "broadcast",
        "adaptive",
        "none",
    ] {
        assert!(
            text.lines().any(|line| line.trim_start().starts_with(name)),
            "{name} is missing:\n{text}"
        );
    }
    let json: serde_json::Value = serde_json::from_slice(&shootdown(&["list", "--json"]).stdout).unwrap();
    for kind in ["workloads", "machines", "designs"] {
        assert!(
            json[kind]
                .as_array()
                .unwrap()
                .iter()
                .all(|line| line["description"].is_string()),
            "{kind}"
        );
    }
}

#[test]
fn a_reader_that_goes_away_is_silent() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .arg("list")
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
