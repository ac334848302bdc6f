use super::*;
use crate::run::{RunSpec, designs, run, validate};
use proptest::prelude::*;
use shootdown::{Design, Errata, Machine, Policy};
use std::sync::Arc;

const ADAPTIVE: Design = Policy::ADAPTIVE.on(Machine::PCID);

fn entry(name: &str) -> DesignEntry {
    designs().find(|entry| entry.name == name).unwrap()
}

fn settings(given: &[(&str, &str)]) -> Result<Settings, String> {
    given
        .iter()
        .try_fold(Settings::default(), |settings, (path, text)| settings.with(path, text))
}

/// Values of an axis: every word, the ends of every number.
fn samples(axis: &Axis) -> Vec<String> {
    match axis.values {
        Values::Numbers {
            least,
            most,
            power_of_two,
        } => {
            let most = if power_of_two { 1 << most.ilog2() } else { most };
            vec![least.to_string(), most.to_string()]
        }
        Values::Choices(choices) => choices
            .iter()
            .flat_map(|choice| match choice.argument {
                None => vec![choice.word.to_string()],
                Some((_, least, most)) => vec![format!("{}:{least}", choice.word), format!("{}:{most}", choice.word)],
            })
            .collect(),
    }
}

#[test]
fn every_field_of_a_design_has_an_axis() {
    // A new field fails to compile here; add it to the table too.
    let Design {
        policy:
            Policy {
                tags: _,
                reach: _,
                targets: _,
                departure: _,
                requests: _,
                order: _,
                ack: _,
                wait: _,
                walkers: _,
                exit: _,
                free: _,
                ceiling: _,
                slots: _,
                consider_window_ns: _,
                sample_one_in: _,
                demote_after: _,
                defer_frames: _,
                stuck_ns: _,
            },
        machine:
            Machine {
                first_tag: _,
                tag_limit: _,
                split: _,
                errata:
                    Errata {
                        never_broadcast: _,
                        interrupt_too: _,
                        repeat: _,
                    },
            },
    } = ADAPTIVE;
    assert_eq!(AXES.len(), 24);
    let names = format!("{ADAPTIVE:?}");
    for axis in &AXES {
        let field = axis.path.rsplit('.').next().unwrap();
        assert!(names.contains(&format!("{field}: ")), "{}", axis.path);
        assert_eq!(AXES.iter().filter(|other| *other == axis).count(), 1);
    }
}

#[test]
fn every_axis_value_round_trips() {
    for axis in &AXES {
        for text in samples(axis) {
            let given = settings(&[(axis.path, &text)]).unwrap();
            let design = given.apply(ADAPTIVE);
            assert_eq!(axis.of(&design).to_string(), text, "{}", axis.path);
            // Nothing else has changed.
            for other in AXES.iter().filter(|other| *other != axis) {
                assert_eq!(
                    other.of(&design),
                    other.of(&ADAPTIVE),
                    "{} by {}",
                    other.path,
                    axis.path
                );
            }
        }
    }
}

#[test]
fn settings_of_a_preset_reproduce_it_from_any_other() {
    for from in designs().filter(DesignEntry::takes_settings) {
        for to in designs().filter(DesignEntry::takes_settings) {
            let given = AXES.iter().try_fold(Settings::default(), |settings, axis| {
                settings.with(axis.path, &axis.of(&to.design).to_string())
            });
            assert_eq!(
                given.unwrap().apply(from.design),
                to.design,
                "{} of {}",
                to.name,
                from.name
            );
        }
    }
}

#[test]
fn bad_setting_names_the_axis_or_its_values() {
    for (path, text, expected) in [
        (
            "design.celing",
            "1",
            "`design.celing` is no axis of a design; use one of: design.tags,",
        ),
        (
            "design.ceiling",
            "-1",
            "expected a whole number from 0 to 1048576, found `-1`",
        ),
        ("design.slots", "17", "expected a whole number from 1 to 16, found `17`"),
        (
            "design.sample_one_in",
            "48",
            "expected a power of two from 1 to 1048576",
        ),
        (
            "design.wait",
            "sleep",
            "expected spin, spin-serving, preemptible or preemptible-serving, found `sleep`",
        ),
        (
            "design.reach",
            "none",
            "expected ipi, broadcast, local-first or adaptive",
        ),
        (
            "design.tags",
            "hybrid",
            "expected per-cpu, system, hybrid:CPUS (1 to 8192) or hybrid-by-cost:CPUS (1 to 8192), found `hybrid`",
        ),
        ("design.departure", "when-shared:0", "when-shared:LOOKS (1 to 1048576)"),
        ("design.errata.repeat", "maybe", "expected false or true"),
    ] {
        let message = settings(&[(path, text)]).unwrap_err();
        assert!(
            message.contains(expected) && message.lines().count() == 1,
            "{path}={text}: {message}"
        );
    }
    assert!(
        settings(&[
            ("design.ceiling", "64.0"),
            ("design.split", "1"),
            ("design.walkers", "grace_period")
        ])
        .is_ok()
    );
}

#[test]
fn unfit_design_is_an_error_with_a_remedy() {
    let (x86, arm) = (Model::find("milan-72").unwrap(), Model::find("thunderx-48").unwrap());
    let without = x86.with("broadcast.available", 0.0).unwrap();
    let narrow = x86.with("tags.bits", 8.0).unwrap();
    for (design, model, given, expected) in [
        (
            "ipi",
            &x86,
            &[("design.first_tag", "4095")][..],
            "6 slots from tag 4095 on do not fit below 4096",
        ),
        (
            "ipi",
            &x86,
            &[("design.tag_limit", "4")],
            "lower design.slots or design.first_tag, or raise design.tag_limit",
        ),
        ("ipi", &x86, &[("design.tag_limit", "4097")], "milan-72 has 4096 tags"),
        (
            "ipi",
            &x86,
            &[("design.first_tag", "2046"), ("design.split", "true")],
            "do not fit below 2048",
        ),
        ("ipi", &narrow, &[("design.split", "true")], "--set tags.bits=12"),
        (
            "broadcast",
            &x86,
            &[("design.tags", "system"), ("design.tag_limit", "60")],
            "must outnumber the CPUs",
        ),
        (
            "ipi",
            &without,
            &[("design.reach", "broadcast")],
            "cannot broadcast; use design.reach=ipi",
        ),
    ] {
        let message = entry(design).on(model, &settings(given).unwrap()).unwrap_err();
        assert!(
            message.contains(expected) && message.lines().count() == 1,
            "{given:?}: {message}"
        );
    }
    let needs = needed_errata(&arm);
    if needs.never_broadcast {
        let given = settings(&[("design.errata.never_broadcast", "false")]).unwrap();
        let message = entry("arm-ipi").on(&arm, &given).unwrap_err();
        assert!(message.contains("needs this workaround"), "{message}");
    }
}

#[test]
fn ideal_and_none_ignore_settings_and_unused_axes_are_reported() {
    let model = Model::find("milan-72").unwrap();
    let given = settings(&[("design.sample_one_in", "16"), ("design.ceiling", "1")]).unwrap();
    for limit in ["ideal", "none"] {
        assert_eq!(
            entry(limit).on(&model, &given),
            entry(limit).on(&model, &Settings::default())
        );
        assert!(entry(limit).without_effect(&model, &given)[0].contains("do not apply to it"));
    }
    assert_eq!(
        entry("ipi").without_effect(&model, &given),
        ["design.sample_one_in=16 changes nothing under `ipi`: it is read where design.reach=adaptive"]
    );
    assert!(entry("adaptive").without_effect(&model, &given).is_empty());
    assert!(entry("ipi").without_effect(&model, &Settings::default()).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any settings are either refused with one line, or run without a stale access: no combination reaches the
    /// engine's own assertions.
    #[test]
    fn any_settings_run_without_stale_access_or_are_refused(
        given in proptest::collection::vec((0..AXES.len(), any::<proptest::sample::Index>()), 1..8),
        design in prop_oneof![Just("ipi"), Just("broadcast"), Just("adaptive"), Just("arm-broadcast")],
        machine in proptest::sample::select(Model::builtin_names()),
        workload in prop::sample::select(vec!["tlb_shared", "tlb_flush2", "gup", "mmap_churn", "context_switch"]),
    ) {
        let mut parameters = crate::run::Parameters::default();
        for (axis, value) in given {
            let samples = samples(&AXES[axis]);
            parameters = parameters.with_setting(AXES[axis].path, &samples[value.index(samples.len())]).unwrap();
        }
        let machine = Arc::new(Model::find(machine).unwrap());
        let spec = RunSpec {
            workload: workload.into(),
            threads: machine.topology.cpus().min(4),
            machine,
            design: design.into(),
            seed: 1,
            virtual_ms: Some(0.1),
            lru_drain: false,
            parameters,
        };
        match validate(&spec) {
            Err(message) => prop_assert_eq!(message.lines().count(), 1),
            Ok(()) => prop_assert_eq!(run(&spec, &mut |_| true).unwrap().stale, 0),
        }
    }
}

/// Every `design.NAME` of a text.
fn named(text: &str) -> Vec<String> {
    let is_path = |character: char| character.is_ascii_lowercase() || character == '_' || character == '.';
    let places = text.match_indices("design.").map(|(at, _)| &text[at..]);
    let path = |rest: &str| rest.split(|character| !is_path(character)).next().unwrap().to_string();
    places.map(path).collect()
}

#[test]
fn messages_name_existing_axes() {
    let conditions = AXES
        .iter()
        .filter_map(|axis| axis.read)
        .map(|(words, _)| words.to_string());
    let sources = [include_str!("mod.rs"), include_str!("setting.rs")];
    // Messages are string literals; the rest is code.
    let messages = sources
        .iter()
        .flat_map(|source| source.split('"').skip(1).step_by(2))
        .map(str::to_string);
    let mut seen = 0;
    for text in conditions.chain(messages) {
        for path in named(&text) {
            seen += 1;
            // A name that ends in a dot is completed by the message.
            let is_set = |axis: &Axis| axis.path == path || path.ends_with('.') && axis.path.starts_with(&path);
            assert!(AXES.iter().any(is_set), "`{path}` in: {text}");
        }
    }
    assert!(seen > 10, "{seen}");
}
