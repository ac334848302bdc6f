//! CPU hotplug, and tasks that migrate.

use super::scene::*;
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;
use shootdown_sim::machine;
use std::rc::Rc;

/// 15, OSv 102: a CPU was counted as a target while it could not take interrupts; the requester waited for ever.
#[test]
fn cpu_that_cannot_take_interrupts_is_not_waited_for() {
    for design in [IPI, LOG] {
        let scene = Scene::new(2, design);
        contract(&scene, Bug::CountedBeforeOnline, Symptom::Hangs, |stage| {
            let pages = stage.system.kernel_pages();
            stage.cpu(0, move |system| {
                rounds(|_| {
                    dawdle(1500);
                    system.map_kernel(&pages, 0);
                    system.touch_kernel(0);
                    system.unmap_kernel(&pages, 0, 1);
                });
            });
            let system = Rc::clone(&stage.system);
            stage.task(1, move || {
                system.online();
                for round in 1..6 {
                    until(round * ROUND);
                    dawdle(1500);
                    system.touch_kernel(0);
                }
                system.offline();
            });
        });
    }
}

/// 15, OSv d6dfa22d: the requester flushed its CPU, was migrated to another, and sent to all CPUs but *that* one.
#[test]
fn requester_that_migrates_still_flushes_its_new_cpu() {
    // A waiter that keeps its CPU would wait for one that only it can move to; `preemption.rs` covers those.
    for design in [PREEMPTIBLE, LOG] {
        let scene = Scene::new(3, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::UnpinnedBeforeSending, symptom, |stage| {
            let a = stage.process(1);
            let (b, c) = (a.clone(), a.clone());
            let armed = Flag::default();
            let scheduler = (Rc::clone(&stage.system), armed.clone());
            stage.system.engine.kernel().on_unpin(move || {
                let (system, armed) = &scheduler;
                if machine::cpu() == 0 && armed.replace(false) {
                    // CPU 0 continues with another task; CPU 2, where a thread of the process has just ended, takes
                    // over.
                    system.unload();
                    machine::migrate(2);
                }
            });
            stage.cpu(0, move |system| {
                system.load(&a);
                write(system, &a, 1);
                until(2 * ROUND);
                let frames = system.withdraw(&a, P, 1);
                armed.set(true);
                system.flush(&a, shootdown::Range::page(P));
                system.free_frames(frames);
                assert_eq!(machine::cpu(), 2, "the requester was moved");
            });
            stage.cpu(1, move |system| {
                system.load(&b);
                until(ROUND);
                look(system, P);
                until(3 * ROUND);
            });
            let system = Rc::clone(&stage.system);
            stage.task(2, move || {
                system.online();
                system.load(&c);
                until(ROUND);
                look(&system, P);
            });
        });
    }
}
