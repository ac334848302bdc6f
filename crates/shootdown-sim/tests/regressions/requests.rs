//! Requests: which CPUs they reach, and when they count as answered.

use super::roles::*;
use super::scene::*;
use shootdown::{Order, Policy, Range, Targets};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;
use shootdown_sim::machine;
use shootdown_sim::os::PAGE;

/// 10, Redox 7d42e8d9, 4158d899: two CPUs waited for each other's answer, both with interrupts off.
#[test]
fn masked_requesters_do_not_deadlock() {
    let left_to_interrupts = Policy {
        wait: shootdown::Wait::Spin,
        ..IPI
    };
    for design in [IPI, LOG, left_to_interrupts] {
        let scene = Scene::new(2, design);
        contract(&scene, Bug::NoSelfService, Symptom::Hangs, |stage| {
            let a = stage.process(1);
            for cpu in 0..2 {
                let a = a.clone();
                stage.cpu(cpu, move |system| {
                    system.load(&a);
                    rounds(|_| {
                        dawdle(300);
                        let masked = machine::interrupts_off();
                        system.flush(&a, Range::page(P + cpu as u64 * PAGE));
                        machine::interrupts_restore(masked);
                    });
                });
            }
        });
    }
}

/// CPU 0 runs another space, or none, and withdraws a page that CPU 1 has cached.
fn flush_a_space_that_runs_elsewhere(stage: &Stage) {
    let (a, b) = (stage.process(1), stage.process(2));
    let owner = a.clone();
    stage.cpu(0, move |system| {
        rounds(|start| {
            if machine::chance(0.5) {
                system.load(&b);
            } else {
                system.unload();
            }
            until(start + 10_000);
            system.drop_pages(&a, P, 1);
        });
    });
    stage.cpu(1, move |system| {
        system.load(&owner);
        rounds(|start| {
            until(start + 2_000);
            write(system, &owner, 1);
            until(start + 30_000);
            look(system, P);
        });
    });
}

/// 13, seL4 107: a flush was skipped because its space was not current on the requester.
#[test]
fn flush_of_a_space_not_loaded_here_is_not_skipped() {
    for design in [IPI, LOG, BROADCAST] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(
            &scene,
            Bug::SkipWhenNotCurrent,
            symptom,
            flush_a_space_that_runs_elsewhere,
        );
    }
}

/// 21, Haiku, Serenity: targets were filtered by what the requester ran.
#[test]
fn targets_are_not_chosen_by_what_the_requester_runs() {
    for targets in [Targets::All, Targets::Space, Targets::Active] {
        let design = Policy { targets, ..IPI };
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(
            &scene,
            Bug::FilterByRequester,
            symptom,
            flush_a_space_that_runs_elsewhere,
        );
    }
}

/// CPU 1 runs the space from which CPU 0 withdraws.
fn flush_a_space_that_runs_on_both(stage: &Stage) {
    let a = stage.process(1);
    stage.withdraws_pages(0, &a, 2, at(10_000));
    stage.reads_pages(1, &a, 2, at(6_000));
}

/// 14, seL4 81679f2b: the pending flag was visible before the arguments; the target found nothing to do, and its answer
/// was lost.
#[test]
fn request_is_published_after_its_arguments() {
    for order in [Order::Serial, Order::Concurrent] {
        let scene = Scene::new(2, Policy { order, ..IPI });
        contract(
            &scene,
            Bug::FlagBeforeArguments,
            Symptom::Hangs,
            flush_a_space_that_runs_on_both,
        );
    }
}

/// 24, Twizzler: after a bound the waiter gave up and freed the page anyway.
#[test]
fn a_wait_does_not_end_before_every_target_has_answered() {
    for design in [IPI, LOG] {
        let scene = Scene::new(2, design);
        for rule in [Rule::C1, Rule::C2] {
            contract(
                &scene,
                Bug::GiveUpWaiting,
                Symptom::Breaks(rule),
                if rule == Rule::C1 {
                    flush_a_space_that_runs_on_both
                } else {
                    free_before_the_answer
                },
            );
        }
    }
}

/// As above, but the frame is freed without notifying the oracle of a complete flush.
fn free_before_the_answer(stage: &Stage) {
    let a = stage.process(1);
    stage.reads_pages(1, &a, 1, at(6_000));
    stage.writes_and(0, &a, 1, at(10_000), |system, a| {
        let frames = system.withdraw(a, P, 1);
        let _done = system.engine.flush(&a.space, Range::page(P));
        system.free_frames(frames);
    });
}

/// 22, Redox: a departing CPU acknowledged a request once more than it was counted, and the waiter continued while
/// another CPU had not answered.
#[test]
fn departing_cpu_acknowledges_once() {
    let design = Policy {
        targets: Targets::All,
        ..IPI
    };
    let scene = Scene::new(3, design);
    let symptom = Symptom::Breaks(Rule::C1);
    contract(&scene, Bug::DepartingCpuAcknowledgesTwice, symptom, |stage| {
        let a = stage.process(1);
        stage.withdraws_pages(0, &a, 1, about(10_000, 800));
        stage.reads_pages(2, &a, 1, at(6_000));
        stage.cpu(1, move |system| {
            rounds(|start| {
                system.load(&a);
                about(10_000, 800).come(start);
                be_off_for(system, || until(start + 20_000));
            });
        });
    });
}

/// 39, FreeBSD-EN-22:04: the request was sent before the change was published; a target that read it at once found
/// nothing new, and answered.
#[test]
fn request_is_sent_after_the_change_is_published() {
    let mut scene = Scene::new(3, LOG);
    scene.tries = 1000;
    let symptom = Symptom::Breaks(Rule::C1);
    contract(&scene, Bug::SendBeforePublish, symptom, |stage| {
        let a = stage.process(1);
        for cpu in 0..3 {
            let a = a.clone();
            stage.cpu(cpu, move |system| {
                system.load(&a);
                rounds(|start| {
                    if cpu == 0 {
                        write(system, &a, 1);
                    }
                    until(start + 6_000);
                    look(system, P);
                    about(10_000, 600).come(start);
                    match cpu {
                        0 => system.drop_pages(&a, P, 1),
                        1 => system.flush(&a, Range::page(P + PAGE)),
                        _ => {}
                    }
                });
            });
        }
    });
}

/// 33, Linux 3ea277194daa, and 34, b67fbebd4cf9 (CVE-2022-39188): a batch had cleared an entry and not yet flushed it;
/// an `mprotect`, or an unmap, found nothing there and returned without a flush.
#[test]
fn pending_batch_is_flushed_before_its_entries_are_relied_on() {
    for design in [IPI, LOG, BROADCAST] {
        let mut scene = Scene::new(3, design);
        scene.seeds = 50;
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::SettleIgnoresPending, symptom, |stage| {
            let a = stage.process(1);
            let b = a.clone();
            stage.reads_pages(2, &a, 1, at(6_000));
            stage.writes_and(0, &a, 8, at(10_000), |system, a| {
                let victims: Vec<_> = (0..8).map(|page| (&**a, P + page * PAGE)).collect();
                system.reclaim(&victims);
            });
            stage.cpu(1, move |system| {
                system.load(&b);
                rounds(|start| {
                    about(10_000, 2500).come(start);
                    system.rely_on_absence(&b, P);
                });
            });
        });
    }
}
