//! Every error about a model file, with its exact wording and line.

use super::*;

#[test]
fn out_of_bounds_numbers_are_refused_with_the_bound() {
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
fn number_needs_exactly_one_unit_and_one_provenance() {
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
fn range_must_be_valid_and_contain_the_value() {
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
fn unknown_and_missing_fields_are_named_with_the_remedy() {
    assert!(
        complaint("invlpg =", "invplg = 1").starts_with("costs.invplg: unknown field; expected one of l1_hit, rmw, ")
    );
    assert_eq!(
        complaint("[smt]", "[htt]"),
        "htt: unknown table; expected one of [machine], [topology], [costs], [kernel], [smt], [tlb], [tags], \
         [broadcast], [simulation], [aarch64], [riscv64], [rar], [vm], [lines], [linux]"
    );
    // A missing field is reported at the header of its table.
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
    // A missing table is reported at the last line, where it could be added.
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
fn unknown_keywords_are_refused() {
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
fn contradictory_numbers_are_refused() {
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
fn invalid_toml_is_refused_at_its_line() {
    assert!(complaint("invlpg =", "invlpg = { cycles 180 }").starts_with("expected TOML: "));
    let (text, line) = edited("invlpg =", "rmw = { cycles = 1, source = \"x\" }");
    let message = Model::parse(&text, "f").expect_err("given twice").to_string();
    assert!(message.starts_with(&format!("f:{line}: expected TOML: ")), "{message}");
}

proptest! {
    #[test]
    fn truncated_model_is_refused_without_panic(at in 0usize..MILAN.len()) {
        prop_assume!(MILAN.is_char_boundary(at));
        let cut = &MILAN[..at];
        let complete = cut.trim_end().len() == MILAN.trim_end().len();
        prop_assert_eq!(Model::parse(cut, "cut").is_ok(), complete);
    }

    #[test]
    fn mutated_model_text_never_panics(
        edits in prop::collection::vec((0usize..MILAN.len(), prop::sample::select(vec![
            "", "\n", "=", "{", "}", "[", "]", "\"", "-", "0", "9", ".", "..", "e", "nan", "inf", "#", "\u{0}", "é",
            "'", "true", "cycles", "ns", "value", "source", "assumed",
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
}
