//! Virtual CPUs that a hypervisor deschedules at any point, and flushes at entry on request. An interrupt would instead
//! have to wait until they run again.

use super::roles::*;
use super::scene::*;
use shootdown::{Policy, Walkers};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;
use shootdown_sim::machine;
use shootdown_sim::os::{HostConfig, PAGE, Spinning, System};
use std::rc::Rc;

/// CPU 0 flushes about when CPU 1 is descheduled or enters: in user code, in the middle of switches, in handlers.
fn flush_about_an_entry(stage: &Stage) {
    let (a, other) = (stage.process(1), stage.process(2));
    let b = a.clone();
    stage.system.virtualise();
    // Weak: the system owns the memory of the hook.
    let weak = Rc::downgrade(&stage.system);
    let perhaps_deschedule = move || {
        if machine::cpu() == 1
            && machine::chance(0.3)
            && let Some(system) = weak.upgrade()
        {
            system.deschedule(machine::random_below(3_000));
        }
    };
    stage.system.engine.kernel().on_load_root(perhaps_deschedule.clone());
    stage.system.on_interrupt(perhaps_deschedule);
    stage.cpu(0, move |system| {
        system.load(&a);
        rounds(|start| {
            write(system, &a, 4);
            until(start + 10_000);
            dawdle(2_500);
            system.drop_pages(&a, P, 2);
            dawdle(2_500);
            system.drop_pages(&a, P + 2 * PAGE, 2);
        });
    });
    stage.cpu(1, move |system| {
        rounds(|start| {
            system.load(&b);
            until(start + 7_000);
            look_at_pages(system, 4);
            until(start + 10_000);
            system.deschedule(machine::random_below(2_500));
            look(system, P);
            look(system, P + PAGE);
            if machine::chance(0.5) {
                system.load(&other);
                system.load(&b);
            }
            dawdle(1_000);
            look(system, P + 2 * PAGE);
        });
    });
}

/// 43, CVE-2019-3016: a request to flush a descheduled virtual CPU was lost when it entered at that moment.
#[test]
fn flush_at_entry_request_is_not_lost_at_vm_entry() {
    for design in [IPI, LOG, LOG_PREEMPTIBLE, PREEMPTIBLE] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::DescheduledNotAtomic, symptom, flush_about_an_entry);
    }
}

/// A flush while the other CPU is descheduled waits for no CPU, and that CPU uses nothing stale when it returns.
#[test]
fn descheduled_virtual_cpu_is_not_waited_for() {
    for design in [IPI, LOG] {
        let scene = Scene::new(2, design);
        never_broken(&scene, |stage| {
            let a = stage.process(1);
            let b = a.clone();
            stage.system.virtualise();
            stage.cpu(0, move |system| {
                system.load(&a);
                write(system, &a, 1);
                until(2 * ROUND);
                system.drop_pages(&a, P, 1);
                assert!(machine::now() < 3 * ROUND, "CPU 1 is out until {}", 4 * ROUND);
                assert_eq!(system.engine.kernel().counts().interrupting, 0);
            });
            stage.cpu(1, move |system| {
                system.load(&b);
                until(ROUND);
                look(system, P);
                system.deschedule(3 * ROUND);
                look(system, P);
            });
        });
    }
}

/// A flush at entry proves nothing about a walk during which the CPU was descheduled.
#[test]
fn cpu_descheduled_in_a_walk_is_interrupted_for_table_frees() {
    for walkers in [Walkers::Precise, Walkers::PreciseExchange, Walkers::Sticky] {
        let scene = Scene::new(2, Policy { walkers, ..IPI });
        let symptom = Symptom::Breaks(Rule::C3);
        contract(&scene, Bug::SkipDescheduledWalker, symptom, |stage| {
            let (walked, b) = (stage.process(1), stage.process(2));
            let references = stage.system.page_references(P, 4);
            stage.system.virtualise();
            stage.withdraws_tables(0, &walked, at(15_000));
            stage.cpu(1, move |system| {
                system.load(&b);
                rounds(|start| {
                    until(start + 13_000);
                    system.in_walk(&walked, || {
                        system.pin_page(&walked, references, P);
                        system.deschedule(8_000);
                    });
                });
            });
        });
    }
}

/// The same race under a host's scheduler: two virtual CPUs and one of another machine share two of its CPUs.
#[test]
fn flush_at_entry_request_is_not_lost_to_the_host_scheduler() {
    let scene = Scene::new(2, LOG);
    let symptom = Symptom::Breaks(Rule::C1);
    contract(&scene, Bug::DescheduledNotAtomic, symptom, |stage| {
        let a = stage.process(1);
        let b = a.clone();
        let host = HostConfig {
            cpus: 2,
            others: 1,
            slice: 3_000,
            latency: 0,
            wakeup: 3_000,
            spread: 1.0,
            switch: 100,
            wake: 100,
            pv_flush: true,
            halted_flush: false,
            spinning: Spinning::default(),
        };
        System::run_on_host(std::slice::from_ref(&stage.system), host);
        stage.cpu(0, move |system| {
            system.load(&a);
            rounds(|start| {
                write(system, &a, 4);
                until(start + 10_000);
                for page in 0..4 {
                    dawdle(2_500);
                    system.drop_pages(&a, P + page * PAGE, 1);
                }
            });
        });
        stage.cpu(1, move |system| {
            rounds(|start| {
                system.load(&b);
                until(start + 7_000);
                for _ in 0..40 {
                    look_at_pages(system, 4);
                    dawdle(400);
                }
            });
        });
    });
}
