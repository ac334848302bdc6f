//! CPUs in lazy TLB mode: they run kernel code with a space still loaded, and speculate through it.

use super::roles::*;
use super::scene::*;
use shootdown::{Machine, Policy, Reach, Tags};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;
use shootdown_sim::machine;

/// 32, Linux 83b0177a6c48: a CPU that left lazy TLB mode read the generation while "not lazy" was still in its store
/// buffer; the requester read "lazy" and skipped it.
#[test]
fn leaving_lazy_mode_is_ordered_before_reading_the_generation() {
    for design in [IPI, LOG] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::NoBarrierAfterLazy, symptom, |stage| {
            let a = stage.process(1);
            stage.withdraws_pages(0, &a, 1, about(10_000, 1200));
            stage.goes_lazy_and_returns(1, &a, (at(4_000), about(10_000, 1200)), |system, _| {
                dawdle(2_000);
                look(system, P);
            });
        });
    }
}

/// CPU 1 enters lazy TLB mode with links to a table cached; CPU 0 unmaps the region and frees the table.
fn free_a_table_under_a_lazy_cpu(stage: &Stage) {
    let a = stage.process(1);
    stage.withdraws_tables(0, &a, at(10_000));
    stage.goes_lazy_and_returns(1, &a, (at(4_000), at(30_000)), |_, _| ());
}

/// 35, Linux 2ff6ddf19c0e: lazy CPUs were skipped although page-table pages were freed; they walked the freed table
/// speculatively.
#[test]
fn lazy_cpu_is_not_skipped_when_tables_are_freed() {
    for design in [IPI, LOG] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C3);
        contract(
            &scene,
            Bug::SkipLazyDespiteTables,
            symptom,
            free_a_table_under_a_lazy_cpu,
        );
    }
}

/// 40, OpenBSD 9f1181d59de3: entering lazy TLB mode cleared the bit in the CPU set, with the root still loaded.
#[test]
fn entering_lazy_mode_does_not_leave_the_set() {
    for design in [IPI, LOG] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C3);
        contract(&scene, Bug::LazyLeavesSet, symptom, free_a_table_under_a_lazy_cpu);
    }
}

/// 6, Linux, 2025: the handler tested for a broadcast tag, which needs no action, before it tested for lazy TLB mode.
/// So a lazy CPU kept the root of a space that ended.
#[test]
fn lazy_cpu_on_a_system_wide_tag_unloads_an_ended_space() {
    let scene = Scene::new(2, BROADCAST);
    let symptom = Symptom::Breaks(Rule::C3);
    contract(&scene, Bug::TagTestBeforeLazyTest, symptom, |stage| {
        let a = stage.process(1);
        let b = a.clone();
        stage.cpu(0, move |system| {
            system.load(&a);
            until(ROUND);
            for _ in 0..3 {
                write(system, &a, 1);
                system.drop_pages(&a, P, 1);
            }
            assert!(a.space.system_tag().is_some(), "the space was promoted");
            until(3 * ROUND);
            system.unload();
            system.exit(&a);
        });
        stage.cpu(1, move |system| {
            system.load(&b);
            until(2 * ROUND);
            system.go_lazy();
            until(4 * ROUND);
            system.unload();
        });
    });
}

/// 38, ARM 8678c1f04277: tags rolled over while a CPU was lazy. It resumed with its old tag, while flushes were aimed
/// at the space's new one.
#[test]
fn cpu_lazy_during_a_roll_over_adopts_the_new_tag() {
    for reach in [Reach::Ipi, Reach::Broadcast] {
        let design = Policy {
            tags: Tags::System,
            reach,
            ..IPI
        }
        .on(Machine {
            tag_limit: 5,
            ..Machine::PCID
        });
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::LazyKeepsOldTag, symptom, |stage| {
            let a = stage.process(1);
            stage.goes_lazy_and_returns(1, &a, (at(4_000), at(16_000)), |system, _| look(system, P));
            let others: Vec<_> = (2..10).map(|number| stage.process(number)).collect();
            stage.cpu(0, move |system| {
                rounds(|start| {
                    system.load(&a);
                    write(system, &a, 1);
                    until(start + 8_000);
                    for _ in 0..2 + machine::random_below(7) {
                        system.load(&others[machine::random_below(8) as usize]);
                    }
                    system.load(&a);
                    about(20_000, 1200).come(start);
                    system.drop_pages(&a, P, 1);
                });
                assert!(system.engine.kernel().counts().rolled_over > 0, "tags rolled over");
            });
        });
    }
}
