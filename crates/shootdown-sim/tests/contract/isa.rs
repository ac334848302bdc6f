//! The same traffic on AArch64 and RISC-V machines, under every preset; and processors that need the engine's errata
//! settings.

use crate::traffic::{Tally, Traffic, play_on};
use shootdown::{Design, Errata, Exit, Machine, Policy, Reach, Requests, Tags};
use shootdown_sim::hw::{Aarch64, ArmErrata, Isa, Riscv64};
use shootdown_sim::machine::Outcome;
use shootdown_sim::model::Model;
use shootdown_sim::run::{self, RunResult, RunSpec, designs};
use std::sync::Arc;

const SEEDS: u64 = 16;

fn arm(errata: ArmErrata) -> Isa {
    Isa::Aarch64(Aarch64 {
        errata,
        ..Aarch64::default()
    })
}

fn riscv(svinval: bool) -> Isa {
    Isa::Riscv64(Riscv64 {
        svinval,
        sbi_call: 1000,
        sbi_per_hart: 50,
        ..Riscv64::default()
    })
}

/// A preset with so few tags that they run out, roll over and are reclaimed; or with none.
fn cramped(design: Design, cpus: usize) -> Design {
    Policy {
        slots: 3,
        consider_window_ns: 64,
        stuck_ns: 0,
        ..design.policy
    }
    .on(Machine {
        tag_limit: match design.policy.tags {
            _ if !design.machine.has_tags() => design.machine.tag_limit,
            Tags::System => 1 + cpus as u32 + 2,
            _ => 1 + 3 + 2,
        },
        ..design.machine
    })
}

/// The results of the runs of one design, and the first violation's history.
fn runs(isa: Isa, design: impl Into<Design>, seeds: std::ops::Range<u64>) -> (Tally, u64, Option<String>) {
    let design = design.into();
    let (mut sum, mut broken, mut first) = (Tally::default(), 0, None);
    for seed in seeds {
        let cpus = [4, 5, 6, 8][seed as usize % 4];
        let traffic = Traffic {
            design: cramped(design, cpus),
            cpus,
            steps: 60,
            seed,
        };
        let (tally, diagnosis, outcome) = play_on(isa, &traffic);
        assert_eq!(outcome, Outcome::Finished, "{isa:?} {traffic:?}");
        sum.add(&tally);
        broken += u64::from(tally.violations > 0);
        first = first.or(diagnosis.map(|diagnosis| format!("{traffic:?}\n{diagnosis}")));
    }
    (sum, broken, first)
}

/// Every preset that invalidates holds on a machine of this kind.
fn every_preset_holds(isa: Isa) {
    let mut all = Tally::default();
    for (number, &(name, design, _)) in (0..).zip(Design::PRESETS) {
        if design.policy.reach == Reach::None {
            continue;
        }
        let (sum, _, diagnosis) = runs(isa, design, number * 100..number * 100 + SEEDS);
        if let Some(diagnosis) = diagnosis {
            panic!("{name} on {isa:?}: {diagnosis}");
        }
        if design.policy.tags == Tags::System {
            assert!(sum.engine.rolled_over > 0, "{name}: tags rolled over");
        }
        println!("{name}: {sum:?}");
        all.add(&sum);
    }
    assert!(all.retired > 0 && all.offlined > 0 && all.engine.broadcasts > 0 && all.engine.interrupting > 0);
    assert!(all.engine.promoted > 0 && all.engine.local_only > 0);
}

#[test]
fn every_preset_holds_on_aarch64() {
    every_preset_holds(arm(ArmErrata::default()));
}

#[test]
fn every_preset_holds_on_riscv() {
    every_preset_holds(riscv(false));
}

#[test]
fn every_preset_holds_on_riscv_with_svinval() {
    every_preset_holds(riscv(true));
}

/// No tags: x86 without PCIDs, RISC-V without ASIDs.
#[test]
fn every_preset_holds_on_machines_without_tags() {
    for isa in [Isa::X86_64, riscv(false), riscv(true)] {
        for (number, &(name, design, _)) in (30..).zip(Design::PRESETS) {
            let design = design.policy.on(Machine {
                errata: design.machine.errata,
                ..Machine::NO_TAGS
            });
            let (sum, broken, diagnosis) = runs(isa, design, number * 100..number * 100 + 10);
            if design.policy.reach == Reach::None {
                assert_eq!(broken, 10, "the control on {isa:?}");
            } else if let Some(diagnosis) = diagnosis {
                panic!("{name} on {isa:?}: {diagnosis}");
            }
            assert_eq!(
                sum.engine.promoted + sum.engine.rolled_over,
                0,
                "{name}: there are no tags"
            );
        }
    }
}

/// The axes that only these presets have, in combinations that no preset has.
#[test]
fn local_first_and_deferred_exit_hold_in_every_combination() {
    let isas = [Isa::X86_64, arm(ArmErrata::default()), riscv(true)];
    let mut number = 1000;
    for isa in isas {
        for requests in [Requests::PerRequest, Requests::Log] {
            for (reach, never_broadcast) in [
                (Reach::LocalFirst, false),
                (Reach::LocalFirst, true),
                (Reach::Broadcast, false),
                (Reach::Ipi, false),
            ] {
                for exit in [Exit::Flush, Exit::DeferToRollOver] {
                    number += 100;
                    let design = Policy {
                        reach,
                        requests,
                        exit,
                        ceiling: [511, 5, 0][number as usize / 100 % 3],
                        ..Policy::ARM_BROADCAST
                    }
                    .on(Machine {
                        errata: Errata {
                            never_broadcast,
                            ..Errata::NONE
                        },
                        ..Machine::PCID
                    });
                    let (sum, _, diagnosis) = runs(isa, design, number..number + 8);
                    if let Some(diagnosis) = diagnosis {
                        panic!("{design:?} on {isa:?}: {diagnosis}");
                    }
                    assert_eq!(sum.engine.broadcasts > 0, reach != Reach::Ipi && !never_broadcast);
                }
            }
        }
    }
}

/// The negative control.
#[test]
fn control_is_caught_on_arm_and_riscv() {
    for isa in [arm(ArmErrata::default()), riscv(false), riscv(true)] {
        let (_, broken, _) = runs(isa, Policy::NONE, 0..4);
        assert_eq!(broken, 4, "{isa:?}");
    }
}

/// A processor with an erratum: stale without its setting, never with it.
#[track_caller]
fn needs(errata: ArmErrata, setting: Errata) {
    for (name, preset, seeds) in [
        ("arm-broadcast", Policy::ARM_BROADCAST, 0..SEEDS),
        ("arm-local-first", Policy::ARM_LOCAL_FIRST, 500..500 + SEEDS),
        ("adaptive", Policy::ADAPTIVE, 900..900 + SEEDS),
    ] {
        let (_, broken, _) = runs(arm(errata), preset, seeds.clone());
        assert!(broken > 0, "{name}: {errata:?} does no harm");
        let design = preset.on(Machine {
            errata: setting,
            ..Machine::PCID
        });
        let (_, _, diagnosis) = runs(arm(errata), design, seeds);
        if let Some(diagnosis) = diagnosis {
            panic!("{name} with {setting:?}: {diagnosis}");
        }
        println!("{name}, {errata:?}: broken in {broken} of {SEEDS} runs without the setting");
    }
}

#[test]
fn repeat_erratum_needs_its_workaround() {
    let errata = ArmErrata {
        repeat: true,
        ..ArmErrata::default()
    };
    let setting = Errata {
        repeat: true,
        ..Errata::NONE
    };
    needs(errata, setting);
}

#[test]
fn early_sync_erratum_needs_interrupts() {
    let errata = ArmErrata {
        early_sync: true,
        ..ArmErrata::default()
    };
    let setting = Errata {
        interrupt_too: true,
        ..Errata::NONE
    };
    needs(errata, setting);
}

/// The shortest run of a workload on a model.
fn spec(workload: &str, model: Model, design: &str) -> RunSpec {
    RunSpec {
        workload: workload.into(),
        machine: Arc::new(model),
        design: design.into(),
        threads: 5,
        seed: 2,
        virtual_ms: Some(0.25),
        lru_drain: false,
        parameters: Default::default(),
    }
}

/// Every design on every shipped machine that is not x86, including processors that need workarounds: nothing stale,
/// and the same run twice.
#[test]
fn every_design_runs_on_every_arm_and_riscv_machine() {
    let model = |name: &str| Model::find(name).expect("shipped");
    let with = |name: &str, path: &str| model(name).with(path, 1.0).expect("a flag");
    let machines = [
        model("thunderx-48"),
        model("ampere-32"),
        with("ampere-32", "aarch64.range"),
        with("ampere-32", "aarch64.erratum_repeat"),
        with("ampere-32", "aarch64.erratum_early_sync"),
        with("thunderx-48", "aarch64.erratum_never_broadcast"),
        model("generic-riscv-64"),
        with("generic-riscv-64", "riscv64.svinval"),
    ];
    for model in machines {
        for entry in designs() {
            let once = || {
                let result = run::run(&spec("tlb_shared", model.clone(), entry.name), &mut |_| true).expect("it runs");
                RunResult {
                    host_seconds: 0.0,
                    ..result
                }
            };
            let result = once();
            assert!(result.ops > 0 && result.accesses_checked > 1000, "{}", entry.name);
            if entry.name == "none" {
                assert!(result.stale > 0);
            } else {
                assert_eq!(
                    result.stale, 0,
                    "{} on {}: {:?}",
                    entry.name, model.name, result.diagnosis
                );
            }
            if entry.name == "arm-local-first" {
                assert_eq!(once(), result);
            }
        }
    }
}

/// A machine with fewer tags than CPUs is refused with an error.
#[test]
fn fewer_system_wide_tags_than_cpus_are_refused() {
    let narrow = |bits: f64| {
        Model::find("thunderx-48")
            .expect("shipped")
            .with("tags.bits", bits)
            .expect("in bounds")
    };
    assert!(run::validate(&spec("tlb_flush2", narrow(8.0), "arm-broadcast")).is_ok());
    let refused = run::validate(&spec("tlb_flush2", narrow(5.0), "arm-broadcast")).expect_err("31 tags");
    assert!(
        refused.contains("31 for 48 CPUs") && refused.contains("--set tags.bits=N"),
        "{refused}"
    );
    assert!(run::validate(&spec("tlb_flush2", narrow(5.0), "ipi")).is_ok());
}
