//! Early acknowledgement: what a target may have cached when it acknowledges, and what it may touch before it has
//! invalidated.

use super::scene::*;
use shootdown::{Ack, Policy, Requests};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::{Access, Rule};
use shootdown_sim::machine;
use shootdown_sim::os::PAGE;
use std::rc::Rc;

const EARLY: Policy = Policy { ack: Ack::Early, ..IPI };

const PER_CPU_EARLY: Policy = Policy {
    requests: Requests::PerCpu,
    ..EARLY
};

const LOG_EARLY: Policy = Policy { ack: Ack::Early, ..LOG };

/// An NMI arrives whenever CPU 1 is about to invalidate, and takes long: an initiator that got an early answer
/// continues.
fn let_an_nmi_come_before_each_invalidation(stage: &Stage, nmi: impl Fn(&Sys) + 'static) {
    let system = Rc::downgrade(&stage.system);
    stage.system.engine.kernel().on_invalidate(move || {
        if machine::cpu() == 1 {
            machine::charge(2_000);
            if let Some(system) = system.upgrade() {
                nmi(&system);
            }
        }
    });
}

/// 1: CPU 0 frees a table that CPU 1 has links to.
#[test]
fn early_ack_does_not_cover_freed_tables() {
    for design in [EARLY, PER_CPU_EARLY, LOG_EARLY] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C3);
        contract(&scene, Bug::EarlyDespiteTables, symptom, |stage| {
            let a = stage.process(1);
            let b = a.clone();
            stage.cpu(0, move |system| {
                system.load(&a);
                rounds(|start| {
                    system.map(&a, P, 2 * PAGE);
                    write(system, &a, 2);
                    until(start + 10_000);
                    system.unmap(&a, P, 2 * PAGE);
                });
            });
            stage.cpu(1, move |system| {
                system.load(&b);
                rounds(|start| {
                    until(start + 6_000);
                    look(system, P);
                });
            });
            let_an_nmi_come_before_each_invalidation(stage, |_| {});
        });
    }
}

/// 2: CPU 0 unmaps a kernel page that CPU 1 has cached and its handler may use.
#[test]
fn early_ack_does_not_cover_kernel_ranges() {
    for design in [EARLY, PER_CPU_EARLY, LOG_EARLY] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::EarlyDespiteKernelRange, symptom, |stage| {
            let pages = stage.system.kernel_pages();
            stage.cpu(0, move |system| {
                rounds(|start| {
                    system.map_kernel(&pages, 0);
                    until(start + 10_000);
                    system.unmap_kernel(&pages, 0, 1);
                });
            });
            stage.cpu(1, move |system| {
                rounds(|start| {
                    until(start + 6_000);
                    system.touch_kernel(0);
                });
            });
            let_an_nmi_come_before_each_invalidation(stage, |system| {
                system.touch_kernel(0);
            });
        });
    }
}

/// CPU 0 withdraws entries that CPU 1 has cached; NMIs on CPU 1 read them wherever the engine allows it.
fn nmis_that_read_user_memory(stage: &Stage) {
    let a = stage.process(1);
    for cpu in 0..2 {
        let a = a.clone();
        stage.cpu(cpu, move |system| {
            system.load(&a);
            rounds(|start| {
                if cpu == 0 {
                    write(system, &a, 2);
                    until(start + 10_000);
                    system.drop_pages(&a, P, 1 + machine::random_below(2));
                } else {
                    until(start + 6_000);
                    look(system, P);
                    look(system, P + PAGE);
                    assert!(system.read_from_nmi(&a, P) || machine::now() > start + 9_000);
                }
            });
        });
    }
    let_an_nmi_come_before_each_invalidation(stage, move |system| {
        system.read_from_nmi(&a, P);
    });
}

/// 3: the slot was marked current too early; an NMI relied on it.
#[test]
fn generation_is_recorded_only_after_its_flush() {
    for design in [EARLY, PER_CPU_EARLY, LOG_EARLY] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::RecordedBeforeFlush, symptom, nmis_that_read_user_memory);
    }
}

/// 4: an NMI between the answer and the invalidation touched user memory.
#[test]
fn nmi_touches_no_user_memory_between_early_ack_and_invalidation() {
    for design in [EARLY, PER_CPU_EARLY, LOG_EARLY] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        let fault = Bug::UserAccessBeforeInvalidation;
        contract(&scene, fault, symptom, nmis_that_read_user_memory);
    }
}

/// The control of the above: requesters do continue before CPU 1 has invalidated, and under late acknowledgement they
/// do not.
#[test]
fn early_ack_precedes_the_invalidation() {
    let longest = |design| {
        let scene = Scene::new(2, design);
        let took = Rc::new(std::cell::Cell::new(0));
        let of_run = took.clone();
        play(&scene, 1, None, &move |stage| {
            let a = stage.process(1);
            let (b, took) = (a.clone(), of_run.clone());
            stage.cpu(0, move |system| {
                system.load(&a);
                write(system, &a, 1);
                until(ROUND);
                let begun = machine::now();
                system.drop_pages(&a, P, 1);
                took.set(machine::now() - begun);
            });
            stage.cpu(1, move |system| {
                system.load(&b);
                until(ROUND / 2);
                system.touch(&b, P, Access::Write);
                until(2 * ROUND);
            });
            let_an_nmi_come_before_each_invalidation(stage, |_| {});
        })
        .assert_clean(1);
        took.get()
    };
    for (late, early) in [(IPI, EARLY), (LOG, LOG_EARLY)] {
        let (late, early) = (longest(late), longest(early));
        assert!(early + 1_500 < late, "{early} and {late} cycles");
    }
}
