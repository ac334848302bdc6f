//! Deferred unmaps: what a CPU may still use, and until when.

use super::scene::*;
use shootdown::{Free, Policy, Requests};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;
use shootdown_sim::os::PAGE;
use std::cell::Cell;
use std::rc::Rc;

const DEFERRED: Policy = Policy {
    free: Free::Deferred,
    ..IPI
};

const LOG_DEFERRED: Policy = Policy {
    free: Free::Deferred,
    ..LOG
};

const PER_CPU_DEFERRED: Policy = Policy {
    requests: Requests::PerCpu,
    ..DEFERRED
};

const DESIGNS: [Policy; 3] = [DEFERRED, LOG_DEFERRED, PER_CPU_DEFERRED];

/// Pages of the region that is mapped and unmapped.
const PAGES: u64 = 2;

/// CPU 0 maps two pages, which CPU 1 reads, and unmaps them; then it ticks occasionally. `second` is CPU 1's part of a
/// round from 11,000 cycles on.
fn unmap_what_another_cpu_reads(stage: &Stage, second: impl Fn(&Sys) + 'static) {
    unmap_and_then(stage, second, |_| {});
}

/// The same, and `at_the_end` on CPU 0.
fn unmap_and_then(stage: &Stage, second: impl Fn(&Sys) + 'static, at_the_end: impl Fn(&Sys) + 'static) {
    let a = stage.process(1);
    let b = a.clone();
    stage.cpu(0, move |system| {
        system.load(&a);
        // So that the table stays.
        system.map(&a, P + 100 * PAGE, PAGE);
        rounds(|start| {
            let places = (0..3).map(|place| P + place * PAGES * PAGE);
            let va = system.place(&a, places, PAGES * PAGE);
            system.map(&a, va, PAGES * PAGE);
            for page in 0..PAGES {
                system.touch(&a, va + page * PAGE, shootdown_sim::hw::Access::Write);
            }
            until(start + 10_000);
            system.unmap(&a, va, PAGES * PAGE);
            for _ in 0..12 {
                dawdle(2_500);
                system.tick();
                system.release_quarantined();
            }
        });
        at_the_end(system);
    });
    stage.cpu(1, move |system| {
        rounds(|start| {
            system.load(&b);
            until(start + 6_000);
            (0..3 * PAGES).for_each(|page| look(system, P + page * PAGE));
            until(start + 11_000);
            second(system);
        });
    });
}

/// Reads the unmapped pages, at ticks and between them.
fn read_and_tick(system: &Sys) {
    for _ in 0..8 {
        (0..3 * PAGES).for_each(|page| look(system, P + page * PAGE));
        dawdle(2_500);
        system.tick();
    }
}

/// A deferral did not mark the CPUs that hold old entries as behind: their ticks found nothing to flush.
#[test]
fn deferred_unmap_marks_every_slot_stale() {
    for design in DESIGNS {
        let fault = Bug::DeferredWithoutGeneration;
        contract(&Scene::new(2, design), fault, Symptom::Breaks(Rule::C1), |stage| {
            unmap_what_another_cpu_reads(stage, read_and_tick);
        });
    }
}

/// A tick was taken to have flushed, and had not.
#[test]
fn tick_without_flush_ends_no_deferral() {
    for design in DESIGNS {
        let fault = Bug::TickDoesNotFlush;
        contract(&Scene::new(2, design), fault, Symptom::Breaks(Rule::C1), |stage| {
            unmap_what_another_cpu_reads(stage, read_and_tick);
        });
    }
}

/// Frames left the quarantine one epoch too early.
#[test]
fn deferral_ends_only_after_every_cpu_flushed() {
    for design in DESIGNS {
        let fault = Bug::DeferralOverTooSoon;
        contract(&Scene::new(2, design), fault, Symptom::Breaks(Rule::C1), |stage| {
            unmap_what_another_cpu_reads(stage, read_and_tick);
        });
    }
}

/// CPU 1 runs the space and takes no ticks: no deferral waits for it, so nothing may be deferred.
#[test]
fn unmap_is_not_deferred_with_a_tickless_cpu() {
    for design in DESIGNS {
        let fault = Bug::TicklessNotAsked;
        contract(&Scene::new(2, design), fault, Symptom::Breaks(Rule::C1), |stage| {
            unmap_what_another_cpu_reads(stage, |system| {
                system.stop_ticks();
                (0..8).for_each(|_| {
                    (0..3 * PAGES).for_each(|page| look(system, P + page * PAGE));
                    dawdle(2_500);
                });
            });
        });
    }
}

/// The state after a run.
fn left_in_quarantine(design: Policy, second: fn(&Sys)) -> (usize, u64) {
    let left = Rc::new(Cell::new((0, 0)));
    for seed in 0..20 {
        let of_run = left.clone();
        let ending = play(&Scene::new(2, design), seed, None, &move |stage| {
            let left = of_run.clone();
            unmap_and_then(stage, second, move |system| {
                let (waiting, deferred) = left.get();
                let counts = system.engine.kernel().counts();
                left.set((waiting + system.quarantined(), deferred + counts.deferred));
            });
        });
        ending.assert_clean(seed);
    }
    left.get()
}

/// Idle and offline CPUs do not delay a deferral; CPUs that run without ticking do.
#[test]
fn idle_and_offline_cpus_do_not_delay_a_deferral() {
    for design in DESIGNS {
        let (waiting, deferred) = left_in_quarantine(design, |system| system.go_lazy());
        assert!(waiting == 0 && deferred > 0, "{waiting} of {deferred}");
        let (waiting, deferred) = left_in_quarantine(design, |system| {
            system.offline();
            dawdle(20_000);
            system.online();
        });
        assert!(waiting == 0 && deferred > 0, "{waiting} of {deferred}");
        let (waiting, deferred) = left_in_quarantine(design, |_| {});
        assert!(waiting > 0 && deferred > 0, "{waiting} of {deferred}");
    }
}

/// At most the bound's number of frames wait; an unmap that would exceed it is flushed at once.
#[test]
fn deferral_respects_the_memory_bound() {
    let bounded = |defer_frames| {
        left_in_quarantine(
            Policy {
                defer_frames,
                ..DEFERRED
            },
            |_| {},
        )
    };
    assert_eq!(bounded(0).1, 0, "frames wait although none may");
    let (few, many) = (bounded(PAGES as u32), bounded(4096));
    assert!(few.1 > 0 && few.1 < many.1, "{few:?}, {many:?}");
}

/// A range in quarantine that is mapped again by its address is flushed first.
#[test]
fn quarantined_range_is_flushed_before_it_is_mapped_again() {
    for design in DESIGNS {
        never_broken(&Scene::new(2, design), |stage| {
            let a = stage.process(1);
            for cpu in 0..2 {
                let a = a.clone();
                stage.cpu(cpu, move |system| {
                    system.load(&a);
                    rounds(|_| {
                        for _ in 0..4 {
                            if cpu == 0 {
                                system.map(&a, P, PAGES * PAGE);
                                write(system, &a, PAGES);
                                dawdle(2_000);
                                system.unmap(&a, P, PAGES * PAGE);
                            } else {
                                look(system, P);
                                dawdle(1_000);
                            }
                        }
                    });
                });
            }
        });
    }
}

/// Number of requests for taking two pages of a process that runs on another CPU.
fn requests_of_a_batch(free: Free) -> u64 {
    let requests = Rc::new(Cell::new(0));
    let of_run = requests.clone();
    play(&Scene::new(2, Policy { free, ..IPI }), 1, None, &move |stage| {
        let a = stage.process(1);
        let (b, requests) = (a.clone(), of_run.clone());
        stage.cpu(0, move |system| {
            until(ROUND);
            system.engine.kernel().reset_counts();
            assert_eq!(system.reclaim(&[(&a, P), (&a, P + PAGE)]), 2);
            requests.set(system.engine.kernel().counts().interrupting);
        });
        stage.cpu(1, move |system| {
            system.load(&b);
            write(system, &b, 2);
            until(2 * ROUND);
        });
    })
    .assert_clean(1);
    requests.get()
}

/// Where freeing is synchronous each change of a batch has its own request.
#[test]
fn batch_shares_one_request_only_if_freeing_is_batched() {
    assert_eq!(requests_of_a_batch(Free::Synchronous), 2);
    assert_eq!(requests_of_a_batch(Free::Batched), 1);
    assert_eq!(requests_of_a_batch(Free::Deferred), 1);
}
