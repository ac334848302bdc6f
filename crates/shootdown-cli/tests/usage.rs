//! Mistakes on the command line: each gets one clear line on stderr, nothing on stdout, and status 2. None of these
//! runs anything, except the last, which is about a default.

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
    assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
    message
}

fn compare(args: &[&str]) -> String {
    refused(&[&["compare", "tlb_flush2", "--on", "milan-72"], args].concat())
}

#[test]
fn unknown_names_list_the_known_ones() {
    for (args, unknown, known) in [
        (
            ["compare", "tlb_flash", "--on", "milan-72"],
            "`tlb_flash` is not known",
            "tlb_flush2",
        ),
        (
            ["compare", "tlb_flush2", "--designs", "ipi,smoke"],
            "`smoke` is not known",
            "adaptive",
        ),
        (
            ["compare", "tlb_flush2", "--on", "abacus"],
            "abacus: unknown machine",
            "milan-72",
        ),
        (
            ["compare", "tlb_flush2", "--set", "costs.foo=1"],
            "unknown parameter",
            "costs.invlpg",
        ),
        (
            ["compare", "mprotect_all", "--set", "workload.mprotect_all.foo=1"],
            "unknown parameter",
            "workload.mprotect_all.pages",
        ),
        (
            ["compare", "tlb_shared", "--set", "workload.mprotect_all.pages=2"],
            "workload.mprotect_all.pages",
            "no parameters",
        ),
    ] {
        let message = refused(&args);
        assert!(message.contains(unknown) && message.contains(known), "{message}");
    }
}

#[test]
fn huge_number_is_shown_with_an_exponent() {
    for command in ["compare", "sweep", "explain", "timeline"] {
        for path in ["costs.invlpg", "workload.tlb_flush2.pages_per_call"] {
            let message = refused(&[command, "tlb_flush2", "--set", &format!("{path}=1e300")]);
            assert!(message.contains("asked for 1e300"), "{command}: {message}");
            assert!(message.len() < 250, "{command}: {message}");
        }
    }
}

#[test]
fn out_of_range_counts_name_their_range() {
    assert_eq!(
        compare(&["--threads", "4,0"]),
        "error: --threads 0: give at least 1 thread\n"
    );
    assert_eq!(
        compare(&["--threads", "73"]),
        "error: --threads 73: milan-72 has 72 CPUs; give at most 72, or scale the machine with --cpus\n"
    );
    assert_eq!(compare(&["--runs", "0"]), "error: --runs 0: expected 1 to 1000 runs\n");
    assert_eq!(
        compare(&["--jobs", "0"]),
        "error: --jobs 0: expected 1 to 1024 host threads\n"
    );
    for cpus in ["0", "99999999"] {
        assert_eq!(
            compare(&["--cpus", cpus]),
            format!("error: --cpus {cpus}: expected 1 to 8192 CPUs\n")
        );
    }
    for text in ["0", "-3", "nan", "inf"] {
        let message = compare(&["--virtual-ms", text]);
        assert!(
            message.starts_with("error: --virtual-ms: expected milliseconds from 0.05 to 1000000"),
            "{message}"
        );
    }
}

#[test]
fn words_in_place_of_numbers_are_refused() {
    for option in ["--threads", "--runs", "--jobs", "--seed", "--cpus"] {
        for value in ["many", "-1"] {
            let message = compare(&[option, value]);
            assert!(
                message.starts_with(&format!("error: invalid value '{value}' for '{option}")),
                "{message}"
            );
            assert!(
                message.contains("expected a whole number, for example 4; see"),
                "{message}"
            );
        }
    }
    assert!(refused(&["compare"]).contains("<WORKLOAD>"));
    assert!(refused(&["conjure"]).contains("unrecognized subcommand 'conjure'"));
}

#[test]
fn overrides_are_checked_like_model_files() {
    for (text, expected) in [
        ("costs.invlpg", "expected PATH=VALUE"),
        ("=3", "expected PATH=VALUE"),
        ("costs.invlpg=much", "expected a number, true or false after `=`"),
        ("costs.invlpg=-1", "costs.invlpg: expected cycles > 0, asked for -1"),
        ("costs.invlpg=nan", "expected a finite number"),
        ("topology.sockets=1000", "expected at most 8192 CPUs in all"),
    ] {
        let message = compare(&["--set", text]);
        assert!(
            message.starts_with(&format!("error: --set {text}").to_lowercase().replace("nan", "NaN")),
            "{message}"
        );
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn evidence_checks_its_options_too() {
    assert_eq!(
        refused(&["evidence", "--runs", "0"]),
        "error: --runs 0: expected 1 to 1000 runs\n"
    );
}

#[test]
fn bad_machine_file_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let good = include_str!("../../../machines/milan-72.toml");
    let cost = good.lines().position(|line| line.starts_with("invlpg ")).unwrap();
    let with_line = |line: &str| {
        let mut lines: Vec<&str> = good.lines().collect();
        lines[cost] = line;
        lines.join("\n")
    };
    for (content, expected) in [
        (good[..good.len() / 2].to_string(), "m.toml:".to_string()),
        (
            with_line("invlpg = { cycles = -5, source = \"x\" }"),
            format!("m.toml:{}: costs.invlpg: expected cycles > 0", cost + 1),
        ),
        (
            with_line("wibble = { cycles = 5, source = \"x\" }"),
            format!("m.toml:{}: costs.wibble: unknown field", cost + 1),
        ),
        (String::new(), "m.toml:1: machine: missing table".to_string()),
    ] {
        let path = folder.path().join("m.toml");
        std::fs::write(&path, content).unwrap();
        let message = refused(&["compare", "tlb_flush2", "--on", path.to_str().unwrap()]);
        assert!(
            message.starts_with("error: ") && message.contains(&expected),
            "{message}"
        );
    }
    let message = refused(&["compare", "tlb_flush2", "--on", "no/such/machine.toml"]);
    assert!(message.starts_with("error: no/such/machine.toml: "), "{message}");
}

#[test]
fn help_exits_with_success() {
    let output = shootdown(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().contains("Examples:"));
}

#[test]
fn list_names_workloads_machines_and_designs() {
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
        "workload.mprotect_all.pages",
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
fn closed_stdout_is_no_error() {
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

#[test]
fn option_of_another_command_is_refused_with_the_remedy() {
    for (args, remedy) in [
        (
            vec!["compare", "tlb_flush2", "--on", "linux"],
            "`shootdown host` measures",
        ),
        (
            vec!["explain", "tlb_flush2", "--on", "qemu-riscv64"],
            "`shootdown compare` and `shootdown qemu`",
        ),
        (
            vec!["explain", "tlb_flush2", "--on", "qemu-x86_64"],
            "`shootdown compare` and `shootdown qemu`",
        ),
        (
            vec!["walkers", "--on", "zen5-vm-2"],
            "has 2 CPUs; expected a machine with 64 or more",
        ),
        (
            vec!["walkers", "--set", "workload.gup.frees_per_s=5"],
            "--frees and --shared change it",
        ),
        (
            vec!["replay", "t.gz", "--set", "workload.gup.page_ns=1"],
            "only numbers of the machine model",
        ),
        (
            vec!["compare", "tlb_flush2", "--set", "costs.rmw=9", "--set", "costs.rmw=10"],
            "--set costs.rmw: given twice; give one value",
        ),
        (
            vec!["replay", "nope.txt"],
            "nope.txt: there is no such file; check the path",
        ),
        (
            vec!["check", "--replay", "nope.txt"],
            "there is no such file; check the path",
        ),
    ] {
        let message = refused(&args);
        assert!(message.contains(remedy), "{message}");
    }
}

#[test]
fn usage_error_names_the_help_of_its_command() {
    assert!(compare(&["--bogus"]).ends_with("'--bogus' found; see `shootdown compare --help`\n"));
    assert!(refused(&["conjure"]).ends_with("see `shootdown --help`\n"));
    assert!(compare(&["--threads", "99999999999999999999"]).contains("a whole number up to 18446744073709551615"));
}

#[test]
fn default_threads_fit_small_machines() {
    let output = shootdown(&["timeline", "tlb_flush2", "--on", "zen5-vm-2", "--json"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        shootdown(&["explain", "tlb_shared", "--design", "none", "--virtual-ms", "1"])
            .status
            .code(),
        Some(0)
    );
}
