//! A CPU that switches while another flushes.

use super::roles::*;
use super::scene::*;
use shootdown::{Policy, Range, Stride};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;
use shootdown_sim::machine;
use shootdown_sim::os::PAGE;
use std::rc::Rc;

/// CPU 1 has cached a page of a space that it left. In each round it comes back, just when CPU 0 withdraws the page.
fn come_back_during_a_flush(stage: &Stage) {
    let b = stage.process(1);
    stage.withdraws_pages(0, &b, 1, about(10_000, 1200));
    stage.cpu(1, move |system| {
        rounds(|start| {
            until(start + 4_000);
            system.load(&b);
            look(system, P);
            system.unload();
            about(10_000, 1200).come(start);
            system.load(&b);
            dawdle(2_000);
            look(system, P);
        });
    });
}

#[track_caller]
fn shows_when_a_cpu_comes_back(fault: Bug) {
    for design in [IPI, LOG] {
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&Scene::new(2, design), fault, symptom, come_back_during_a_flush);
    }
}

/// 1, Linux CVE-2025-37964: the requester read the state of a CPU, saw that it was only about to load the space, and
/// skipped it; but the CPU had already read the generation.
#[test]
fn a_cpu_that_is_switching_in_is_not_skipped() {
    shows_when_a_cpu_comes_back(Bug::SkipSwitchingCpu);
}

/// 2, Linux CVE-2025-40174: the switching CPU's bit in the set was still in its store buffer when it read the
/// generation, so that neither side saw the other.
#[test]
fn joining_the_set_is_ordered_before_reading_the_generation() {
    shows_when_a_cpu_comes_back(Bug::NoBarrierAfterJoin);
}

/// 31, Linux 71b3c126e611: the root was loaded before the bit in the CPU set was visible; a flush in between saw an
/// empty set.
#[test]
fn root_is_loaded_after_joining_the_set() {
    shows_when_a_cpu_comes_back(Bug::RootLoadBeforeJoin);
}

/// 23, several kernels: a CPU that switches away cleared its bit first and loaded the new root after; a flush in
/// between did not wait for it although it could still use the old space.
#[test]
fn set_is_left_after_the_old_root_is_unloaded() {
    let scene = Scene::new(2, IPI);
    let symptom = Symptom::Breaks(Rule::C1);
    contract(&scene, Bug::LeaveBeforeRootLoad, symptom, |stage| {
        let (a, b) = (stage.process(1), stage.process(2));
        stage.withdraws_pages(0, &a, 1, about(10_000, 1200));
        stage.cpu(1, move |system| {
            rounds(|start| {
                system.load(&a);
                until(start + 4_000);
                look(system, P);
                about(10_000, 1200).come(start);
                system.load(&b);
            });
        });
    });
}

/// 42, XSA-292: a tag was flushed and then the root was loaded under it with "keep": in between the processor filled
/// entries of the old space, which the new one found under its tag.
#[test]
fn no_entry_is_filled_between_tag_flush_and_root_load() {
    let design = Policy { slots: 1, ..IPI };
    let scene = Scene::new(2, design);
    let symptom = Symptom::Breaks(Rule::C4);
    contract(&scene, Bug::FlushBeforeRootLoad, symptom, |stage| {
        let (a, b) = (stage.process(1), stage.process(2));
        stage.speculate(0, 4, 100);
        stage.cpu(0, move |system| {
            system.load(&a);
            write(system, &a, 4);
            rounds(|_| {
                for _ in 0..8 {
                    system.load(&b);
                    dawdle(300);
                    look(system, P);
                    system.load(&a);
                    dawdle(300);
                    look(system, P);
                }
            });
        });
    });
}

/// 20, Haiku ddff61f3, ee280b59: the local flush read which space was loaded, was preempted, and continued under the
/// space loaded by then; the slot was nevertheless marked fresh.
#[test]
fn local_flush_uses_the_space_loaded_after_an_interrupt() {
    for design in [IPI, LOG] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::StaleViewOfLoaded, symptom, |stage| {
            let (a, b) = (stage.process(1), stage.process(2));
            let armed = Flag::default();
            let preempt = (Rc::clone(&stage.system), armed.clone());
            stage.system.on_interrupt(move || {
                let (system, armed) = &preempt;
                if machine::cpu() == 0 && armed.replace(false) {
                    system.load(&b);
                }
            });
            stage.cpu(0, move |system| {
                rounds(|_| {
                    system.load(&a);
                    write(system, &a, 8);
                    let frames = system.withdraw(&a, P, 8);
                    armed.set(true);
                    machine::raise(0, machine::now() + machine::random_below(1500));
                    system.flush(&a, Range::pages(P, P + 8 * PAGE, Stride::Size4K));
                    armed.set(false);
                    system.load(&a);
                    system.free_frames(frames);
                    look(system, P + 7 * PAGE);
                });
            });
        });
    }
}
