//! Fork, with a second thread of the parent on another CPU: it must not continue to write pages that the child shares.

use super::roles::*;
use super::scene::*;
use shootdown::{Policy, Targets};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::{Access, Rule};
use shootdown_sim::os::PAGE;

/// CPU 0 runs `parent`, writes two pages of it, forks at `moment`, and ends the child when it has done `lives`.
fn forks_in_each_round(stage: &Stage, parent: &Proc, moment: RoundTime, lives: impl Fn(&Sys, &Proc) + 'static) {
    let parent = parent.clone();
    stage.cpu(0, move |system| {
        system.load(&parent);
        system.map(&parent, P, 4 * PAGE);
        rounds(|start| {
            write(system, &parent, 2);
            moment.come(start);
            let child = system.fork(&parent);
            lives(system, &child);
            system.exit(&child);
            system.load(&parent);
        });
    });
}

/// CPU 0 forks and ends the child, round after round; CPU 1 writes the shared pages all the time.
fn fork_under_a_writing_thread(stage: &Stage) {
    let b = stage.process(1);
    forks_in_each_round(stage, &b, about(6_000, 1200), |system, child| {
        system.load(child);
        write(system, child, 1);
        look(system, P + PAGE);
    });
    stage.cpu(1, move |system| {
        rounds(|start| {
            system.load(&b);
            until(start + 6_000);
            for _ in 0..20 {
                dawdle(400);
                system.touch(&b, P, Access::Write);
                system.touch(&b, P + PAGE, Access::Write);
            }
            system.unload();
        });
    });
}

/// 24: the waiter gives up: a frame is shared, copied and freed while the other CPU still writes it.
#[test]
fn fork_waits_until_no_cpu_can_write_shared_pages() {
    let in_user = Policy {
        targets: Targets::InUser,
        ..LOG
    };
    for design in [LOG, BROADCAST, in_user] {
        never_broken(&Scene::new(2, design), fork_under_a_writing_thread);
    }
    let scene = Scene::new(2, LOG);
    contract(
        &scene,
        Bug::GiveUpWaiting,
        Symptom::Breaks(Rule::C1),
        fork_under_a_writing_thread,
    );
}

/// 1: the second thread is switching in while the parent forks.
#[test]
fn fork_reaches_a_cpu_that_is_switching_in() {
    let scene = Scene::new(2, IPI);
    contract(&scene, Bug::SkipSwitchingCpu, Symptom::Breaks(Rule::C1), |stage| {
        let b = stage.process(1);
        forks_in_each_round(stage, &b, about(10_000, 1500), |_, _| ());
        stage.cpu(1, move |system| {
            rounds(|start| {
                until(start + 4_000);
                system.load(&b);
                system.touch(&b, P, Access::Write);
                system.unload();
                about(10_000, 1500).come(start);
                system.load(&b);
                dawdle(600);
                system.touch(&b, P, Access::Write);
                system.unload();
            });
        });
    });
}
