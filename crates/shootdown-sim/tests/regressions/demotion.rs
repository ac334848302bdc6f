//! Demotion: a space gives its system-wide tag back. No shipped kernel does that, so these are the mistakes that an
//! implementation could make.

use super::roles::*;
use super::scene::*;
use shootdown::{Machine, Order, Policy, Range, Reach, Requests, Stride, Tags};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;
use shootdown_sim::os::PAGE;

/// Promotes when two CPUs run a space, demotes as soon as one does: every flush is a sample.
const DEMOTING: Policy = Policy {
    tags: Tags::Hybrid { promote_at: 2 },
    reach: Reach::Adaptive,
    consider_window_ns: ALWAYS_CONSIDER,
    sample_one_in: 1,
    demote_after: 1,
    ..IPI
};

fn designs() -> [Policy; 2] {
    let log = Policy {
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

/// Runs `process` from the start of the round, gets it promoted, writes to it, and continues at `moment`.
fn run_promoted(system: &Sys, process: &Proc, start: u64, moment: RoundTime) {
    system.load(process);
    until(start + 2_000);
    get_promoted(system, process);
    write(system, process, 3);
    moment.come(start);
}

/// First CPUs 0 and 1 run A, which is promoted; CPU 1 enters lazy TLB mode, so A is demoted. Then CPUs 0 and 2 run B,
/// which is promoted and finds only one tag. CPU 1 speculates through A all the while, then runs B; finally B is
/// demoted too.
fn hand_the_only_tag_on(stage: &Stage) {
    let (a, b) = (stage.process(1), stage.process(2));
    let (a1, b1, b2) = (a.clone(), b.clone(), b.clone());
    stage.cpu(0, move |system| {
        rounds(|start| {
            run_promoted(system, &a, start, at(14_000));
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
            // From A directly to B, with the entries filled under the tag since.
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

/// The only tag there is goes from space to space while a lazy CPU speculates under it (C4).
#[test]
fn reassigned_tag_carries_no_translation() {
    for design in designs() {
        let design = Policy { slots: 2, ..design }.on(Machine {
            tag_limit: 1 + 2 + 1,
            ..Machine::PCID
        });
        never_broken(&Scene::new(3, design), hand_the_only_tag_on);
    }
}

/// CPU 1 sleeps while A is demoted, comes back on a slot, and fills it while the demotion is not over yet.
fn come_back_during_demotion(stage: &Stage) {
    let a = stage.process(1);
    stage.goes_lazy_and_returns(1, &a, (at(10_000), at(16_000)), |system, start| {
        look(system, P);
        until(start + 30_000);
        look(system, P);
    });
    stage.cpu(0, move |system| {
        rounds(|start| {
            run_promoted(system, &a, start, at(12_000));
            system.drop_pages(&a, P + PAGE, 1);
            about(20_000, 1_000).come(start);
            system.drop_pages(&a, P, 1);
        });
        assert!(system.engine.kernel().counts().demoting > 0);
    });
}

#[test]
fn flush_during_demotion_also_sends_ipis() {
    for design in designs() {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::DemotionOnlyBroadcasts, symptom, come_back_during_demotion);
    }
}

#[test]
fn flush_under_a_system_wide_tag_passes_a_barrier() {
    for design in designs() {
        let scene = Scene {
            tries: 1500,
            ..Scene::new(2, design)
        };
        let symptom = Symptom::Breaks(Rule::C3);
        contract(&scene, Bug::ModeBeforeBarrierUnderTag, symptom, withdraw_under_the_tag);
    }
}

/// Unlinks the lowest-level table and flushes, without a lock whose release would make the store visible.
fn withdraw_table(system: &Sys, process: &Proc) {
    let frames = system.withdraw(process, P, 512);
    let Some(table) = system.unlink(process, P) else {
        return;
    };
    system.flush(process, Range::pages(P, P + (2 << 20), Stride::Size4K).with_tables());
    system.free_frames(frames);
    system.free_table(table);
}

/// A is promoted; CPU 0 unlinks its table while CPU 1 reads.
fn withdraw_under_the_tag(stage: &Stage) {
    let a = stage.process(1);
    let b = a.clone();
    stage.cpu(0, move |system| {
        rounds(|start| {
            run_promoted(system, &a, start, about(12_000, 1_000));
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
