//! Models as they are shipped and read. Refused models, and overrides, have modules of their own.

mod overriding;
mod refused;

use super::*;
use proptest::prelude::*;

const MILAN: &str = include_str!("../../../../machines/milan-72.toml");

/// The embedded file with the first line that starts with `start` replaced; also returns that line's number.
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

/// The error from reading the embedded file after one line was replaced, without `file:line: `; checks those two.
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
fn every_built_in_model_parses_under_its_own_name() {
    for name in Model::builtin_names() {
        let model = Model::find(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(&model.name, name);
    }
}

#[test]
fn milan_has_72_cpus_and_costs_in_cycles() {
    let milan = Model::find("milan-72").expect("built in");
    assert_eq!((milan.topology.cpus(), milan.topology.cores()), (72, 36));
    assert_eq!(milan.costs.invlpg, 180.0);
    assert!((milan.costs.transfer(Distance::Core) - 7.0 * milan.ghz).abs() < 1e-9);
    assert_eq!((milan.broadcast.available, milan.broadcast.max_pages), (true, 8));
    assert!(milan.rar.is_none() && milan.broadcasts());
    assert_eq!(milan.source_text_name, "machines/milan-72.toml");
}

#[test]
fn every_parameter_has_its_line_and_provenance() {
    for (name, _, text) in BUILTIN {
        let model = Model::find(name).expect("built in");
        let general = TABLES.iter().map(|table| table.numbers.len()).sum::<usize>();
        let virtual_one = model.parameter("vm.vcpus").map_or(0, |_| VmModel::FIELDS.len());
        let defaulted = LineModel::FIELDS.len() + LinuxModel::FIELDS.len();
        let general = general + virtual_one + defaulted;
        match model.arch {
            Arch::X86_64 if model.rar.is_none() => assert_eq!(model.parameters().len(), general),
            _ => assert!(model.parameters().len() > general),
        }
        for parameter in model.parameters() {
            // A table that is missing in the file comes from the defaults.
            let own = text.contains(&format!("\n[{}]\n", parameter.table()));
            let text = if own { text } else { &DEFAULTS_FILE.1 };
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
fn instruction_set_table_is_refused_on_other_machines() {
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
fn model_parameters_lie_within_their_ranges() {
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

/// Four movements of a line at the mean distance of the sockets on AMD's machines, two within a socket on Intel's:
/// docs/src/machines/priors.md.
#[test]
fn call_costs_two_or_four_line_transfers() {
    for name in Model::builtin_names() {
        let model = Model::find(name).expect("built in");
        if model.arch != Arch::X86_64 {
            continue;
        }
        let costs = model.costs;
        let is_amd = ["milan-72", "milan-128", "turin-2p", "zen5-vm-2"].contains(name);
        let expected = match (is_amd, model.topology.sockets) {
            (false, _) => 2.0 * costs.transfer_socket,
            (true, 2) => 2.0 * (costs.transfer_socket + costs.transfer_remote),
            (true, _) => 4.0 * costs.transfer_socket,
        };
        let times = model.kernel.call_target / expected;
        assert!((times - 1.0).abs() < 0.01, "{name}: {times}");
    }
}

#[test]
fn priors_page_lists_every_parameter() {
    let table = include_str!("../../../../docs/src/machines/priors.md");
    for name in Model::builtin_names() {
        assert!(
            table.contains(&format!("`{name}`")),
            "docs/src/machines/priors.md does not mention {name}"
        );
    }
    for field in fields() {
        assert!(
            table.contains(&format!("| `{}` |", field.path)),
            "docs/src/machines/priors.md does not mention {}",
            field.path
        );
    }
}

#[test]
fn fitted_parameter_keeps_its_evidence_rows() {
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
fn unreadable_model_is_refused_with_the_remedy() {
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
fn model_file_equals_built_in_and_non_utf8_is_refused() {
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
fn remote_actions_can_be_removed_from_a_machine() {
    let model = Model::find("sapphire-224").unwrap();
    let rar = model.rar.expect("it has them");
    assert_eq!((rar.entries, rar.max_pages), (64, 63));
    assert!(model.broadcasts() && !model.broadcast.available);
    let without = model.without_broadcasts().unwrap();
    assert!(without.rar.is_none() && !without.broadcasts());
    let read_back = Model::parse(&model.to_toml("as written"), "written.toml").unwrap();
    assert_eq!(read_back.rar, model.rar);
}

#[test]
fn remote_actions_are_refused_with_broadcast_or_on_other_arches() {
    let both = Model::find("sapphire-224").unwrap().with("broadcast.available", 1.0);
    let error = both.unwrap_err().to_string();
    assert!(error.contains("rar.entries: expected no broadcasts as well"), "{error}");
    let table = "\n[rar]\nentries = { value = 64, source = \"x\" }\nmax_pages = { value = 63, source = \"x\" }\n\
                 action = { ns = 1, source = \"x\" }\n";
    let arm = include_str!("../../../../machines/ampere-32.toml").to_string() + table;
    let error = Model::parse(&arm, "arm.toml").unwrap_err().to_string();
    assert!(error.contains("expected on x86_64 only; remove [rar]"), "{error}");
}
