//! Every complaint about a model file, word for word and line for line.

use super::*;
use proptest::prelude::*;

const MILAN: &str = include_str!("../../../../machines/milan-72.toml");

/// The embedded file with the first line that starts with `start` replaced; also gives that line's number.
fn edited(start: &str, replacement: &str) -> (String, usize) {
    let line = MILAN
        .lines()
        .position(|line| line.starts_with(start))
        .expect("the file has such a line");
    let lines: Vec<_> = MILAN
        .lines()
        .enumerate()
        .map(|(i, old)| if i == line { replacement } else { old })
        .collect();
    (lines.join("\n"), line + 1)
}

/// What reading the embedded file says after one line was replaced, without `file:line: `; checks those two.
fn complaint(start: &str, replacement: &str) -> String {
    let (text, line) = edited(start, replacement);
    let message = Model::parse(&text, "machines/foo.toml")
        .expect_err("must be refused")
        .to_string();
    let place = format!("machines/foo.toml:{line}: ");
    message
        .strip_prefix(&place)
        .unwrap_or_else(|| panic!("{message:?} does not start with {place:?}"))
        .to_string()
}

#[test]
fn every_built_in_model_reads_and_bears_its_own_name() {
    for name in Model::builtin_names() {
        let model = Model::find(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(&model.name, name);
    }
}

#[test]
fn milan_has_seventy_two_cpus_and_its_costs_are_in_cycles() {
    let milan = Model::find("milan-72").expect("built in");
    assert_eq!((milan.topology.cpus(), milan.topology.cores()), (72, 36));
    assert_eq!(milan.costs.invlpg, 180.0);
    assert!((milan.costs.transfer(Distance::Core) - 7.0 * milan.ghz).abs() < 1e-9);
    assert_eq!((milan.broadcast.available, milan.broadcast.max_pages), (true, 8));
    assert_eq!(milan.source_text_name, "machines/milan-72.toml");
}

#[test]
fn every_number_in_the_file_is_reported_with_its_own_line_and_reason() {
    for (name, _, text) in BUILTIN {
        let model = Model::find(name).expect("built in");
        let general = TABLES.iter().map(|table| table.numbers.len()).sum::<usize>();
        match model.arch {
            Arch::X86_64 => assert_eq!(model.parameters().len(), general),
            _ => assert!(model.parameters().len() > general),
        }
        for parameter in model.parameters() {
            let line = text.lines().nth(parameter.line - 1).expect("the line exists");
            let key = parameter.path.split('.').next_back().expect("a dotted path");
            assert!(
                line.starts_with(&format!("{key} = {{")),
                "{name}: {} is not on line {}: {line}",
                parameter.path,
                parameter.line
            );
            assert!(line.contains(parameter.provenance.kind()), "{name}: {parameter}");
        }
    }
    let milan = Model::find("milan-72").expect("built in");
    let shown = milan.parameter("costs.transfer_core").expect("known").to_string();
    assert_eq!(
        shown,
        "costs.transfer_core = 7 ns: cost survey: line transfer between SMT siblings (4..10)"
    );
}

#[test]
fn a_table_of_one_instruction_set_belongs_to_its_machines_only() {
    let thunderx = Model::find("thunderx-48").expect("built in");
    assert!(matches!(thunderx.arch, Arch::Aarch64(arm) if arm.store_barrier == 40.0 && !arm.range));
    assert_eq!(thunderx.with("tags.bits", 16.0).map(|model| model.tags.bits), Ok(16));
    let riscv = Model::find("generic-riscv-64").expect("built in");
    assert!(matches!(riscv.arch, Arch::Riscv64(riscv) if !riscv.svinval));
    let stray = format!(
        "{MILAN}\n{}",
        "[riscv64]\nsvinval = { value = true, assumed = \"0..1\" }\n"
    );
    let stray = format!(
        "{stray}sbi_call = {{ ns = 1, assumed = \"0..1\" }}\nsbi_per_hart = {{ ns = 1, assumed = \"0..1\" }}\n"
    );
    let refused = Model::parse(&stray, "m.toml")
        .expect_err("not an x86 table")
        .to_string();
    assert!(
        refused.ends_with("riscv64.svinval: expected on riscv64 only; remove [riscv64]"),
        "{refused}"
    );
    assert_eq!(
        complaint("arch =", "arch = \"aarch64\""),
        "aarch64: missing table; add [aarch64]"
    );
}

#[test]
fn fitted_and_sourced_numbers_of_every_model_lie_within_their_ranges() {
    for name in Model::builtin_names() {
        let model = Model::find(name).expect("built in");
        for parameter in model.parameters() {
            if let Some(range) = parameter.provenance.range() {
                assert!(range.contains(parameter.value), "{name}: {parameter}");
            }
            let is_fitted = matches!(parameter.provenance, Provenance::Fitted { .. });
            assert!(
                !is_fitted || parameter.provenance.range().is_some(),
                "{name}: {parameter}"
            );
        }
    }
}

#[test]
fn a_call_costs_four_movements_of_a_line_within_the_socket() {
    for name in Model::builtin_names() {
        let model = Model::find(name).expect("built in");
        if model.arch != Arch::X86_64 {
            continue;
        }
        let movements = model.kernel.call_target / model.costs.transfer_socket;
        assert!((movements - 4.0).abs() < 0.01, "{name}: {movements}");
    }
}

#[test]
fn the_table_of_priors_explains_every_parameter() {
    let table = include_str!("../../../../docs/priors.md");
    for name in Model::builtin_names() {
        assert!(
            table.contains(&format!("`{name}`")),
            "docs/priors.md does not mention {name}"
        );
    }
    for field in fields() {
        assert!(
            table.contains(&format!("| `{}` |", field.path)),
            "docs/priors.md does not mention {}",
            field.path
        );
    }
}

#[test]
fn numbers_out_of_bounds_are_refused_with_what_was_expected() {
    let time = |value: &str| complaint("ipi_send =", &format!("ipi_send = {{ {value}, assumed = \"1..9\" }}"));
    assert_eq!(time("cycles = 0"), "costs.ipi_send: expected cycles > 0");
    assert_eq!(time("cycles = -180"), "costs.ipi_send: expected cycles > 0");
    assert_eq!(time("ns = -0.5"), "costs.ipi_send: expected ns > 0");
    assert_eq!(
        time("cycles = inf"),
        "costs.ipi_send: expected a finite number for cycles"
    );
    assert_eq!(
        time("cycles = nan"),
        "costs.ipi_send: expected a finite number for cycles"
    );
    assert_eq!(
        time("cycles = 1e400"),
        "costs.ipi_send: expected a finite number for cycles"
    );
    assert_eq!(
        time("cycles = 1e10"),
        "costs.ipi_send: expected finite cycles > 0 and <= 1000000000"
    );
    assert_eq!(
        time("cycles = \"180\""),
        "costs.ipi_send: expected a finite number for cycles"
    );
    let free = |value: &str| {
        complaint(
            "ipi_send_more =",
            &format!("ipi_send_more = {{ ns = {value}, source = \"x\" }}"),
        )
    };
    assert_eq!(free("-1"), "costs.ipi_send_more: expected ns >= 0");
    let count = |value: &str| complaint("sockets =", &format!("sockets = {{ value = {value}, source = \"x\" }}"));
    assert_eq!(count("0"), "topology.sockets: expected a whole value from 1 to 8192");
    assert_eq!(count("1.5"), "topology.sockets: expected a whole value from 1 to 8192");
    assert_eq!(
        count("4096"),
        "topology.sockets: expected at most 8192 CPUs in all, found 294912"
    );
    let clock = |value: &str| complaint("ghz =", &format!("ghz = {{ value = {value}, source = \"x\" }}"));
    assert_eq!(clock("0"), "machine.ghz: expected a value in GHz > 0 and <= 100");
    assert_eq!(
        complaint("spin_slowdown =", "spin_slowdown = { value = 0.9, source = \"x\" }"),
        "smt.spin_slowdown: expected a value from 1 to 1000"
    );
    assert_eq!(
        complaint("speculation =", "speculation = { value = 1.1, source = \"x\" }"),
        "simulation.speculation: expected a value from 0 to 1"
    );
    assert_eq!(
        complaint("available =", "available = { value = 1, source = \"x\" }"),
        "broadcast.available: expected true or false for value"
    );
}

#[test]
fn a_number_without_exactly_one_unit_and_one_reason_is_refused() {
    let says = |value: &str| complaint("invlpg =", &format!("invlpg = {value}"));
    let shape =
        "costs.invlpg: expected { cycles or ns = ..., source = \"...\" }, or fitted or assumed in place of source";
    assert_eq!(says("180"), shape);
    assert_eq!(says("[180]"), shape);
    assert_eq!(says("{ source = \"x\" }"), "costs.invlpg: missing cycles or ns; add it");
    assert_eq!(
        says("{ cycles = 180, ns = 60, source = \"x\" }"),
        "costs.invlpg: expected cycles or ns, not both; remove one"
    );
    assert_eq!(
        says("{ value = 180, source = \"x\" }"),
        "costs.invlpg: expected cycles or ns in place of value"
    );
    assert_eq!(
        says("{ cycles = 180 }"),
        "costs.invlpg: missing provenance; add one of source, fitted, assumed = \"...\""
    );
    assert_eq!(
        says("{ cycles = 180, assumed = \"100..260\", source = \"x\" }"),
        "costs.invlpg: expected assumed or source, not both; remove one"
    );
    assert_eq!(
        says("{ cycles = 180, source = \" \" }"),
        "costs.invlpg: expected one line of text in quotes for source"
    );
    assert_eq!(
        says("{ cycles = 180, source = 5 }"),
        "costs.invlpg: expected one line of text in quotes for source"
    );
    assert_eq!(
        says("{ cycles = 180, origin = \"x\" }"),
        "costs.invlpg: unknown key origin; expected one of cycles, ns, source, fitted, assumed, range"
    );
    assert_eq!(
        complaint("bits =", "bits = { cycles = 12, source = \"x\" }"),
        "tags.bits: expected value in place of cycles"
    );
}

#[test]
fn a_range_must_be_one_and_hold_the_value() {
    let says = |rest: &str| complaint("invlpg =", &format!("invlpg = {{ cycles = 180, {rest} }}"));
    let shape = "costs.invlpg: expected assumed = \"low..high\", the range to sweep";
    for text in ["a guess", "100", "260..100", "nan..nan", "1..inf"] {
        assert_eq!(says(&format!("assumed = \"{text}\"")), shape);
    }
    assert_eq!(
        says("assumed = \"200..260\""),
        "costs.invlpg: expected an assumed range that contains 180"
    );
    assert_eq!(
        says("source = \"x\", range = \"0..1\""),
        "costs.invlpg: expected a range that contains 180"
    );
    assert_eq!(
        says("source = \"x\", range = 7"),
        "costs.invlpg: expected range = \"low..high\""
    );
    assert_eq!(
        says("assumed = \"100..260\", range = \"100..260\""),
        "costs.invlpg: expected the range in assumed; remove range"
    );
}

#[test]
fn a_fitted_number_keeps_the_rows_it_was_fitted_on() {
    let (text, _) = edited(
        "ipi_send =",
        "ipi_send = { cycles = 1100, fitted = \"E1 ipi 16 threads\" }",
    );
    let model = Model::parse(&text, "x.toml").expect("valid");
    let provenance = &model.parameter("costs.ipi_send").expect("known").provenance;
    assert_eq!(
        *provenance,
        Provenance::Fitted {
            rows: "E1 ipi 16 threads".into(),
            range: None
        }
    );
    assert_eq!(model.costs.ipi_send, 1100.0);
}

#[test]
fn unknown_and_missing_entries_are_named_with_the_remedy() {
    assert!(
        complaint("invlpg =", "invplg = 1").starts_with("costs.invplg: unknown field; expected one of l1_hit, rmw, ")
    );
    assert_eq!(
        complaint("[smt]", "[htt]"),
        "htt: unknown table; expected one of [machine], [topology], [costs], [kernel], [smt], [tlb], [tags], \
         [broadcast], [simulation], [aarch64], [riscv64]"
    );
    // A field that is not there is reported where it belongs: at the header of its table.
    let (text, _) = edited("invlpg =", "");
    let (_, header) = edited("[costs]", "");
    let message = Model::parse(&text, "f").expect_err("missing").to_string();
    let remedy = "missing; add invlpg = { cycles or ns = ..., source = \"...\" } under [costs]";
    assert_eq!(message, format!("f:{header}: costs.invlpg: {remedy}"));
    let (text, _) = edited("name =", "");
    let (_, header) = edited("[machine]", "");
    let message = Model::parse(&text, "f").expect_err("missing").to_string();
    assert_eq!(
        message,
        format!("f:{header}: machine.name: missing; add name = \"...\" under [machine]")
    );
    // A table that is not there is reported where it could be added: at the last line.
    let cut = &MILAN[..MILAN.find("[simulation]").expect("it is there")];
    let last = cut.trim_end().lines().count();
    let message = Model::parse(cut, "f").expect_err("missing").to_string();
    assert_eq!(
        message,
        format!("f:{last}: simulation: missing table; add [simulation]")
    );
    assert_eq!(
        Model::parse("", "f").expect_err("empty").to_string(),
        "f:1: machine: missing table; add [machine]"
    );
    assert_eq!(
        Model::parse("machine = 5", "f").expect_err("not a table").to_string(),
        "f:1: machine: expected a table; write [machine]"
    );
}

#[test]
fn texts_outside_their_vocabulary_are_refused() {
    assert_eq!(
        complaint("arch =", "arch = \"vax\""),
        "machine.arch: expected \"x86_64\" or \"aarch64\" or \"riscv64\""
    );
    assert_eq!(
        complaint("numbering =", "numbering = \"random\""),
        "topology.numbering: expected \"cores-first\" or \"siblings-adjacent\""
    );
    assert_eq!(
        complaint("name =", "name = \"\""),
        "machine.name: expected one line of text in quotes"
    );
    assert_eq!(
        complaint("name =", "name = 72"),
        "machine.name: expected one line of text in quotes"
    );
    assert_eq!(
        complaint("name =", "name = \"a\\u001Bb\""),
        "machine.name: expected one line of text in quotes"
    );
}

#[test]
fn numbers_that_contradict_each_other_are_refused() {
    assert_eq!(
        complaint("ways =", "ways = { value = 12, source = \"x\" }"),
        "tlb.ways: expected a divisor of tlb.entries (2048)"
    );
    assert_eq!(
        complaint("bits =", "bits = { value = 13, source = \"x\" }"),
        "tags.bits: expected at most 12 on x86_64"
    );
    let (text, bits) = edited("bits =", "bits = { value = 2, source = \"x\" }");
    let message = Model::parse(&text, "f").expect_err("refused").to_string();
    assert_eq!(
        message,
        format!("f:{}: tags.slots: expected fewer slots than 4 tags", bits + 1)
    );
}

#[test]
fn what_is_not_toml_is_refused_at_its_line() {
    assert!(complaint("invlpg =", "invlpg = { cycles 180 }").starts_with("expected TOML: "));
    let (text, line) = edited("invlpg =", "rmw = { cycles = 1, source = \"x\" }");
    let message = Model::parse(&text, "f").expect_err("given twice").to_string();
    assert!(message.starts_with(&format!("f:{line}: expected TOML: ")), "{message}");
}

#[test]
fn files_that_cannot_be_read_say_so_and_name_the_remedy() {
    let unknown = Model::find("milan").expect_err("unknown").to_string();
    let known = Model::builtin_names().join(", ");
    assert_eq!(
        unknown,
        format!(
            "milan: unknown machine; expected one of {known}, or the path of a model file such as ./my-machine.toml"
        )
    );
    let missing = Model::find("no/such/file.toml").expect_err("missing").to_string();
    assert!(
        missing.starts_with("no/such/file.toml: expected a readable model file ("),
        "{missing}"
    );
    let known = Model::builtin_names().join(", ");
    assert!(
        missing.ends_with(&format!("); check the path, or use a built-in: {known}")),
        "{missing}"
    );
    let directory = Model::find("./").expect_err("a directory").to_string();
    assert_eq!(
        directory,
        "./: expected a model file, found a directory; name a .toml file in it"
    );
    assert!(
        Model::find("")
            .expect_err("empty")
            .to_string()
            .starts_with("(empty name): unknown machine; ")
    );
}

#[test]
fn a_file_on_disk_is_the_same_model_and_one_that_is_not_utf8_is_refused_at_its_line() {
    let folder = std::env::temp_dir().join(format!("shootdown-model-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let path = folder.join("m.toml");
    std::fs::write(&path, MILAN).expect("written");
    let read = Model::find(path.to_str().expect("UTF-8 path")).expect("valid");
    assert_eq!(read.costs, Model::find("milan-72").expect("built in").costs);
    assert_eq!(read.source_text_name, path.display().to_string());
    std::fs::write(&path, b"[machine]\nname = \"\xff\"\n").expect("written");
    let refused = Model::load(&path).expect_err("not UTF-8").to_string();
    assert_eq!(
        refused,
        format!("{}:2: expected UTF-8 text; save the file as UTF-8", path.display())
    );
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).expect("written");
    let refused = Model::load(&path).expect_err("too large").to_string();
    assert_eq!(
        refused,
        format!(
            "{}: expected a model file of at most 1 MiB; is this the right file?",
            path.display()
        )
    );
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn overriding_changes_one_number_and_remembers_the_old_one() {
    let milan = Model::find("milan-72").expect("built in");
    let faster = milan.with("costs.transfer_cluster", 50.0).expect("valid");
    assert!((faster.costs.transfer_cluster - 170.0).abs() < 1e-9, "50 ns at 3.4 GHz");
    assert_eq!(faster.costs.transfer_socket, milan.costs.transfer_socket);
    let again = faster.with("costs.transfer_cluster", 60.0).expect("valid");
    match &again.parameter("costs.transfer_cluster").expect("known").provenance {
        Provenance::Overridden { was, because } => assert_eq!((*was, because.kind()), (20.5, "source")),
        other => panic!("not marked as overridden: {other}"),
    }
    let slower = milan.with("machine.ghz", 1.7).expect("valid");
    assert!(
        (slower.costs.transfer_socket * 2.0 - milan.costs.transfer_socket).abs() < 1e-9,
        "ns follow the clock"
    );
    assert_eq!(slower.costs.invlpg, milan.costs.invlpg, "cycles do not");
    assert!(
        !milan
            .with("broadcast.available", 0.0)
            .expect("valid")
            .broadcast
            .available
    );
}

#[test]
fn overriding_refuses_what_the_file_may_not_say() {
    let milan = Model::find("milan-72").expect("built in");
    let says = |path: &str, value: f64| milan.with(path, value).expect_err("refused").to_string();
    let line = milan.parameter("costs.rmw").expect("known").line;
    assert_eq!(
        says("costs.rmw", 0.0),
        format!("machines/milan-72.toml:{line}: costs.rmw: expected cycles > 0, asked for 0")
    );
    assert!(says("costs.rmw", f64::NAN).ends_with("costs.rmw: expected a finite number, asked for NaN"));
    assert!(says("tlb.ways", 12.0).ends_with("tlb.ways: expected a divisor of tlb.entries (2048)"));
    assert_eq!(
        says("smt.speed", 1.0),
        "machines/milan-72.toml: smt.speed: unknown parameter; expected one of smt.slowdown, smt.spin_slowdown"
    );
    assert!(says("speed", 1.0).contains("expected one of machine.*, topology.*, "));
}

proptest! {
    #[test]
    fn no_truncated_text_panics_or_passes(at in 0usize..MILAN.len()) {
        prop_assume!(MILAN.is_char_boundary(at));
        let cut = &MILAN[..at];
        let complete = cut.trim_end().len() == MILAN.trim_end().len();
        prop_assert_eq!(Model::parse(cut, "cut").is_ok(), complete);
    }

    #[test]
    fn no_mutated_text_panics(
        edits in prop::collection::vec((0usize..MILAN.len(), prop::sample::select(vec![
            "", "\n", "=", "{", "}", "[", "]", "\"", "-", "0", "9", ".", "..", "e", "nan", "inf", "#", "\u{0}", "é", "'",
            "true", "cycles", "ns", "value", "source", "assumed",
        ]), 0usize..4), 1..6),
    ) {
        let mut text = MILAN.to_string();
        for (at, insert, remove) in edits {
            let boundary = |mut at: usize| { while !text.is_char_boundary(at) { at -= 1; } at };
            let start = boundary(at.min(text.len()));
            let end = boundary((start + remove).min(text.len())).max(start);
            text.replace_range(start..end, insert);
        }
        if let Err(error) = Model::parse(&text, "mutated") {
            let line = error.line.expect("every complaint about a text has a line");
            prop_assert!((1..=text.lines().count().max(1) + 1).contains(&line));
            prop_assert!(!error.to_string().contains('\n'), "{}", error);
        }
    }

    #[test]
    fn every_accepted_override_is_read_back(index in 0usize..60, value in 1e-3f64..1e6) {
        let milan = Model::find("milan-72").expect("built in");
        let path = milan.parameters().nth(index % milan.parameters().len()).expect("in range").path;
        if let Ok(model) = milan.with(path, value) {
            prop_assert_eq!(model.parameter(path).expect("known").value, value);
        }
    }
}
