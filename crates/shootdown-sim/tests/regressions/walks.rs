//! Lockless walks by software, and page-table pages that are freed or reused during them (C3). CPU 0 runs process A and
//! unlinks its table; CPU 1 runs another process and walks A's tables, so that no flush of A interrupts it.

use super::roles::*;
use super::scene::*;
use shootdown::{Policy, Range, Stride, Walkers};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;
use shootdown_sim::machine;
use shootdown_sim::os::{PAGE, PageReferences};

/// Modes under which an answered interrupt proves that a walk ended.
const BY_INTERRUPT: [Walkers; 5] = [
    Walkers::InterruptAll,
    Walkers::Precise,
    Walkers::PreciseExchange,
    Walkers::Sticky,
    Walkers::Adaptive,
];

const EVERY: [Walkers; 6] = [
    Walkers::InterruptAll,
    Walkers::Precise,
    Walkers::PreciseExchange,
    Walkers::Sticky,
    Walkers::Adaptive,
    Walkers::GracePeriod,
];

fn with(walkers: Walkers, base: Policy) -> Policy {
    Policy { walkers, ..base }
}

/// Walks `a` for about `long` cycles under one guard: pins pages and reads their leaves again.
fn walk(system: &Sys, a: &Proc, references: PageReferences, long: u64) {
    system.in_walk(a, || linger(system, a, references, long));
}

fn linger(system: &Sys, a: &Proc, references: PageReferences, long: u64) {
    let end = machine::now() + long;
    loop {
        system.pin_page(a, references, P + machine::random_below(4) * PAGE);
        if machine::now() >= end {
            return;
        }
        dawdle(long / 4);
    }
}

/// How CPU 0 disposes of the table.
#[derive(Clone, Copy)]
enum Taking {
    /// It is freed (an unmap, a collapse).
    Free,
    /// It moves to another process at once.
    Reuse,
}

/// In every round CPU 0 maps pages of A, and unlinks the table at about the time when CPU 1 walks them.
fn take_a_table_under_a_walk(stage: &Stage, taking: Taking, jitter: u64, long: u64) {
    let (a, b, other) = (stage.process(1), stage.process(2), stage.process(3));
    let references = stage.system.page_references(P, 4);
    let same = a.clone();
    stage.cpu(0, move |system| {
        system.load(&a);
        rounds(|start| {
            map_and_write(system, &a);
            system.tick();
            about(15_000, jitter).come(start);
            match taking {
                Taking::Free => system.unmap(&a, P, 4 * PAGE),
                Taking::Reuse => {
                    let frames = system.withdraw(&a, P, 4);
                    let table = system.unlink(&a, P).expect("it was written to");
                    system.flush_for_reuse(&a, Range::pages(P, P + 4 * PAGE, Stride::Size4K));
                    system.free_frames(frames);
                    let (cpu, now) = (machine::cpu(), machine::now());
                    let table = system.hw.borrow_mut().reuse_table(table, other.number, cpu, now);
                    system.free_table(table);
                    // The region is still on the list.
                    system.unmap(&a, P, 4 * PAGE);
                }
            }
            for _ in 0..4 {
                dawdle(jitter);
                system.tick();
                system.free_waiting_tables();
            }
        });
    });
    stage.cpu(1, move |system| {
        system.load(&b);
        rounds(|start| {
            about(15_000, jitter).come(start);
            walk(system, &same, references, long);
            system.tick();
            walk(system, &same, references, long / 8);
            system.tick();
        });
    });
}

/// 7, Linux CVE-2025-38085: a shared page table was given to one of its processes for good while GUP-fast of another
/// was still walking it.
#[test]
fn table_page_is_not_reused_during_a_walk() {
    for walkers in EVERY {
        for base in [IPI, LOG] {
            let scene = Scene::new(2, with(walkers, base));
            contract(&scene, Bug::ReusedUnderWalk, Symptom::Breaks(Rule::C3), |stage| {
                take_a_table_under_a_walk(stage, Taking::Reuse, 4_000, 6_000);
            });
        }
    }
}

/// 36, Linux 2ba99c5e0881: a collapse to a huge page freed the table after a flush, without waiting for lockless walks.
#[test]
fn flush_that_frees_a_table_waits_for_walkers() {
    for walkers in BY_INTERRUPT {
        for base in [IPI, LOG, BROADCAST] {
            let scene = Scene::new(2, with(walkers, base));
            contract(&scene, Bug::FlushTellsNoWalkers, Symptom::Breaks(Rule::C3), |stage| {
                take_a_table_under_a_walk(stage, Taking::Free, 4_000, 6_000);
            });
        }
    }
}

/// Short walks that begin at about the time when the table is unlinked: the window in which stores are still in a
/// buffer is short.
#[track_caller]
fn shows_under_short_walks(walkers: Walkers, fault: Bug) {
    let scene = Scene {
        tries: 400,
        ..Scene::new(2, with(walkers, IPI))
    };
    contract(&scene, fault, Symptom::Breaks(Rule::C3), |stage| {
        take_a_table_under_a_walk(stage, Taking::Free, 1_200, 1_500);
    });
}

/// 9, from the review of walker tracking: the walk published itself by a store that a later load may overtake.
#[test]
fn walk_reads_tables_only_after_it_is_published() {
    for walkers in [
        Walkers::Precise,
        Walkers::PreciseExchange,
        Walkers::Sticky,
        Walkers::Adaptive,
    ] {
        shows_under_short_walks(walkers, Bug::WalkWithoutFullBarrier);
    }
}

/// The other side of 9: the freeing side read the walkers while its own store was still in the buffer.
#[test]
fn freeing_side_reads_walkers_after_its_barrier() {
    for walkers in [Walkers::Precise, Walkers::Sticky] {
        shows_under_short_walks(walkers, Bug::WalkersReadBeforeBarrier);
    }
}

/// A registration that is cleared in the middle of its walk.
#[test]
fn handler_keeps_the_registration_of_an_active_walk() {
    for walkers in BY_INTERRUPT {
        let scene = Scene::new(2, with(walkers, IPI));
        contract(&scene, Bug::WalkInterruptible, Symptom::Breaks(Rule::C3), |stage| {
            take_a_table_under_a_walk(stage, Taking::Free, 4_000, 6_000);
        });
    }
}

/// A page-table page that waits for a grace period is not freed before the last walk that began before it.
#[test]
fn grace_period_covers_the_walks_in_it() {
    for base in [IPI, LOG, BROADCAST] {
        let scene = Scene::new(2, with(Walkers::GracePeriod, base));
        contract(&scene, Bug::GracePeriodTooShort, Symptom::Breaks(Rule::C3), |stage| {
            take_a_table_under_a_walk(stage, Taking::Free, 4_000, 6_000);
        });
    }
}

/// CPU 0, in scenarios about a change of policy.
fn take_tables_all_the_time(system: &Sys, a: &Proc) {
    while machine::now() < ROUNDS * ROUND {
        map_and_write(system, a);
        dawdle(500);
        system.unmap(a, P, 4 * PAGE);
    }
}

/// The mode of a space changes while a walk that registered under the old one continues: the next freeing side must
/// check the old place too.
#[test]
fn walk_of_the_old_mode_is_honoured_when_the_mode_changes() {
    let scene = Scene {
        seeds: 40,
        tries: 200,
        ..Scene::new(4, with(Walkers::Adaptive, IPI))
    };
    contract(
        &scene,
        Bug::PolicyForgetsOldWalkers,
        Symptom::Breaks(Rule::C3),
        |stage| {
            let (a, b) = (stage.process(1), stage.process(2));
            let references = stage.system.page_references(P, 4);
            for cpu in 1..4 {
                let (same, b) = (a.clone(), b.clone());
                stage.cpu(cpu, move |system| {
                    system.load(&b);
                    while machine::now() < ROUNDS * ROUND {
                        let long = if machine::chance(0.3) { 12_000 } else { 300 };
                        walk(system, &same, references, long);
                        dawdle(600);
                    }
                });
            }
            stage.cpu(0, move |system| {
                system.load(&a);
                take_tables_all_the_time(system, &a);
            });
        },
    );
}

/// A CPU walks, goes offline, and returns when the space has changed its mode: its own record of its walks is void.
#[test]
fn cpu_coming_online_drops_old_registrations() {
    let scene = Scene {
        seeds: 40,
        tries: 100,
        ..Scene::new(4, with(Walkers::Adaptive, IPI))
    };
    contract(
        &scene,
        Bug::OnlineKeepsRegistrations,
        Symptom::Breaks(Rule::C3),
        |stage| {
            let (a, b) = (stage.process(1), stage.process(2));
            let references = stage.system.page_references(P, 4);
            let back = 6 * ROUND;
            for cpu in 2..4 {
                let (same, b) = (a.clone(), b.clone());
                stage.cpu(cpu, move |system| {
                    system.load(&b);
                    while machine::now() < ROUNDS * ROUND {
                        walk(system, &same, references, 300);
                        dawdle(600);
                    }
                });
            }
            let (same, c) = (a.clone(), stage.process(3));
            stage.cpu(1, move |system| {
                system.load(&c);
                walk(system, &same, references, 300);
                be_off_for(system, || until(back));
                while machine::now() < ROUNDS * ROUND {
                    walk(system, &same, references, 12_000);
                    dawdle(600);
                }
            });
            stage.cpu(0, move |system| {
                system.load(&a);
                take_tables_all_the_time(system, &a);
                let changed = system.engine.kernel().counts().walks_changed;
                assert!(changed > 0, "the mode has changed");
            });
        },
    );
}

/// CPU 0 unlinks tables and frees those for which a grace period is over.
fn take_tables_and_free_those_that_wait(stage: &Stage, a: &Proc, moment: RoundTime) {
    let a = a.clone();
    stage.cpu(0, move |system| {
        system.load(&a);
        rounds(|start| {
            take_a_table(system, &a, start, moment);
            system.tick();
            system.free_waiting_tables();
        });
    });
}

/// Walks in NMI context interrupt walks, registrations and handlers, and must be honoured too.
#[test]
fn walk_from_nmi_context_is_honoured() {
    for walkers in EVERY {
        never_broken(&Scene::new(2, with(walkers, IPI)), |stage| {
            let (same, b) = (stage.process(1), stage.process(2));
            let references = stage.system.page_references(P, 4);
            take_tables_and_free_those_that_wait(stage, &same, about(15_000, 4_000));
            stage.cpu(1, move |system| {
                system.load(&b);
                rounds(|start| {
                    about(15_000, 4_000).come(start);
                    let from_nmi = || system.in_nmi_walk(&same, || linger(system, &same, references, 3_000));
                    if machine::chance(0.5) {
                        from_nmi();
                    } else {
                        system.in_walk(&b, from_nmi);
                    }
                    system.tick();
                });
            });
        });
    }
}

/// A CPU that goes offline with a registration, and walks again when it returns.
#[test]
fn walk_of_a_cpu_back_online_is_seen() {
    for walkers in EVERY {
        never_broken(&Scene::new(2, with(walkers, IPI)), |stage| {
            let (same, b) = (stage.process(1), stage.process(2));
            let references = stage.system.page_references(P, 4);
            take_tables_and_free_those_that_wait(stage, &same, about(10_000, 6_000));
            stage.cpu(1, move |system| {
                rounds(|start| {
                    system.load(&b);
                    walk(system, &same, references, 300);
                    about(10_000, 3_000).come(start);
                    be_off_for(system, || dawdle(2_000));
                    walk(system, &same, references, 2_000);
                    system.tick();
                });
            });
        });
    }
}
