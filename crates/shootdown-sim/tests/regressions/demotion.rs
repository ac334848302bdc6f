//! Demotion: a space gives its system-wide tag back. No shipped kernel does that, so these are the mistakes one could make.

use crate::scene::*;
use shootdown::{Design, Fault, Order, Range, Reach, Requests, Stride, Tags};
use shootdown_sim::hw::Rule;
use shootdown_sim::os::PAGE;

/// Promotes when two CPUs run a space, demotes as soon as one does: every flush is a sample.
const DEMOTING: Design = Design {
    tags: Tags::Hybrid { promote_at: 2 },
    reach: Reach::Adaptive,
    consider_window_ns: ALWAYS_CONSIDER,
    sample_one_in: 1,
    demote_after: 1,
    ..IPI
};

fn designs() -> [Design; 2] {
    let log = Design {
        requests: Requests::Log,
        order: Order::Concurrent,
        ..DEMOTING
    };
    [DEMOTING, log]
}

/// Flushes until `process`, which CPUs 0 and 1 run, is promoted.
fn get_promoted(system: &Sys, process: &Proc) {
    for _ in 0..3 {
        write(system, process, 2);
        system.drop_pages(process, P, 2);
    }
}

/// 1. CPUs 0 and 1 run A, which is promoted; CPU 1 goes lazy, so A is demoted. 2. CPUs 0 and 2 run B, which is promoted and
/// finds only one tag. CPU 1 speculates through A all the while, then runs B; in the end B is demoted in turn.
fn hand_the_only_tag_on(stage: &Stage) {
    let (a, b) = (stage.process(1), stage.process(2));
    let (a1, b1, b2) = (a.clone(), b.clone(), b.clone());
    stage.cpu(0, move |system| {
        rounds(|start| {
            system.load(&a);
            until(start + 2_000);
            get_promoted(system, &a);
            write(system, &a, 3);
            until(start + 14_000);
            system.drop_pages(&a, P, 1);
            system.drop_pages(&a, P + PAGE, 1);
            system.load(&b);
            until(start + 18_000);
            get_promoted(system, &b);
            write(system, &b, 3);
            until(start + 32_000);
            system.drop_pages(&b, P, 1);
            system.drop_pages(&b, P + PAGE, 1);
        });
        let counts = system.engine.kernel().counts();
        assert!(counts.promoted > 0 && counts.demoting > 0, "{counts:?}");
    });
    stage.cpu(1, move |system| {
        rounds(|start| {
            system.load(&a1);
            until(start + 12_000);
            look(system, P);
            system.go_lazy();
            until(start + 24_000);
            // From A straight to B, with whatever was filled under the tag since.
            system.load(&b1);
            look(system, P + 2 * PAGE);
            until(start + 30_000);
            look(system, P + 2 * PAGE);
            system.unload();
        });
    });
    stage.cpu(2, move |system| {
        rounds(|start| {
            until(start + 16_000);
            system.load(&b2);
            until(start + 30_000);
            look(system, P);
            system.unload();
        });
    });
}

#[test]
fn a_tag_is_not_retired_before_its_last_unload() {
    for design in designs() {
        let design = Design {
            slots: 2,
            tag_limit: 1 + 2 + 1,
            ..design
        };
        let scene = Scene::new(3, design);
        let symptom = Symptom::Breaks(Rule::C4);
        contract(
            &scene,
            Fault::TagRetiredBeforeLastUnload,
            symptom,
            hand_the_only_tag_on,
        );
    }
}

/// CPU 1 sleeps while A is demoted, comes back on a slot, and fills it while the demotion is not over yet.
fn come_back_during_demotion(stage: &Stage) {
    let a = stage.process(1);
    let b = a.clone();
    stage.cpu(0, move |system| {
        rounds(|start| {
            system.load(&a);
            until(start + 2_000);
            get_promoted(system, &a);
            write(system, &a, 3);
            until(start + 12_000);
            system.drop_pages(&a, P + PAGE, 1);
            until(start + 20_000);
            dawdle(1_000);
            system.drop_pages(&a, P, 1);
        });
        assert!(system.engine.kernel().counts().demoting > 0);
    });
    stage.cpu(1, move |system| {
        rounds(|start| {
            system.load(&b);
            until(start + 10_000);
            look(system, P);
            system.go_lazy();
            until(start + 16_000);
            system.resume(&b);
            look(system, P);
            until(start + 30_000);
            look(system, P);
        });
    });
}

#[test]
fn a_flush_during_demotion_does_not_only_broadcast() {
    for design in designs() {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(
            &scene,
            Fault::DemotionOnlyBroadcasts,
            symptom,
            come_back_during_demotion,
        );
    }
}

#[test]
fn flushes_under_a_system_wide_tag_do_not_go_without_their_generation() {
    for design in designs() {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(
            &scene,
            Fault::NoGenerationUnderTag,
            symptom,
            withdraw_under_the_tag,
        );
    }
}

/// Takes the lowest-level table out and flushes, without a lock whose release would make the store visible.
fn withdraw_table(system: &Sys, process: &Proc) {
    let Some(table) = system.unlink(process, P) else {
        return;
    };
    system.flush(process, Range::pages(P, P + (2 << 20), Stride::Size4K).with_tables());
    system.free_table(table);
}

/// A is promoted; CPU 0 takes its table out while CPU 1 reads.
fn withdraw_under_the_tag(stage: &Stage) {
    let a = stage.process(1);
    let b = a.clone();
    stage.cpu(0, move |system| {
        rounds(|start| {
            system.load(&a);
            until(start + 2_000);
            get_promoted(system, &a);
            write(system, &a, 3);
            until(start + 12_000);
            dawdle(1_000);
            withdraw_table(system, &a);
        });
    });
    stage.cpu(1, move |system| {
        rounds(|start| {
            system.load(&b);
            until(start + 12_000);
            for _ in 0..10 {
                look(system, P);
                dawdle(400);
            }
            until(start + 20_000);
            look(system, P);
        });
    });
}

/// A is promoted and CPU 1 lazy on it. CPU 2 flushes and so demotes; at about the same time CPU 0 withdraws a table and
/// CPU 1 comes back, takes a slot, and looks at a page.
fn demote_while_another_flushes(stage: &Stage) {
    let a = stage.process(1);
    let (b, c) = (a.clone(), a.clone());
    stage.cpu(0, move |system| {
        rounds(|start| {
            system.load(&a);
            until(start + 2_000);
            get_promoted(system, &a);
            write(system, &a, 3);
            system.go_lazy();
            until(start + 14_000);
            dawdle(1_500);
            // A kernel thread's: this CPU stays lazy on the space.
            withdraw_table(system, &a);
            until(start + 30_000);
        });
    });
    stage.cpu(1, move |system| {
        rounds(|start| {
            system.load(&b);
            until(start + 10_000);
            look(system, P);
            system.go_lazy();
            until(start + 14_000);
            dawdle(1_500);
            system.resume(&b);
            look(system, P);
            until(start + 24_000);
            look(system, P);
        });
    });
    stage.cpu(2, move |system| {
        rounds(|start| {
            until(start + 11_000);
            system.load(&c);
            until(start + 14_000);
            dawdle(1_500);
            system.drop_pages(&c, P + 2 * PAGE, 1);
            system.unload();
        });
    });
}

#[test]
fn the_mode_is_not_read_before_the_generation_is_advanced() {
    for design in designs() {
        let mut scene = Scene::new(3, design);
        scene.tries = 600;
        scene.store_delay = 6_000;
        let symptom = Symptom::Breaks(Rule::C1);
        contract(
            &scene,
            Fault::ModeBeforeIncrement,
            symptom,
            demote_while_another_flushes,
        );
    }
}
