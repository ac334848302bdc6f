//! Tags: which space owns which, and that both halves of a split pair are treated.

use super::roles::*;
use super::scene::*;
use shootdown::{Machine, Policy, Reach, Tags};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::Rule;
use shootdown_sim::machine;

/// 3, Linux, 2025: the allocator of broadcast tags returned an id beyond the range when it was exhausted, so that two
/// live spaces shared a tag.
#[test]
fn exhausted_tags_are_not_allocated_twice() {
    let design = Policy { slots: 2, ..BROADCAST }.on(Machine {
        tag_limit: 1 + 2 + 1,
        ..Machine::PCID
    });
    let scene = Scene::new(2, design);
    let symptom = Symptom::Breaks(Rule::C4);
    contract(&scene, Bug::TagBeyondRange, symptom, |stage| {
        let spaces = [1, 2, 3].map(|number| stage.process(number));
        for cpu in 0..2 {
            let spaces = spaces.clone();
            stage.cpu(cpu, move |system| {
                rounds(|start| {
                    for (process, turn) in spaces.iter().zip(0..) {
                        until(start + turn * 10_000);
                        system.load(process);
                        until(start + turn * 10_000 + 2_000);
                        if cpu == 0 {
                            write(system, process, 2);
                            system.drop_pages(process, P, 1);
                            write(system, process, 1);
                        }
                        until(start + turn * 10_000 + 9_000);
                        look(system, P);
                    }
                });
                if cpu == 0 {
                    assert!(system.engine.kernel().counts().promoted > 0, "a space was promoted");
                }
            });
        }
    });
}

/// CPU 1 reads a page under the user half of its pair; CPU 0 withdraws the page.
fn withdraw_what_the_user_half_holds(stage: &Stage) {
    let a = stage.process(1);
    stage.withdraws_pages(0, &a, 2, at(10_000));
    stage.cpu(1, move |system| {
        system.load(&a);
        rounds(|start| {
            until(start + 6_000);
            system.in_user_half(|| look(system, P));
            until(start + 30_000);
            system.in_user_half(|| look(system, P));
        });
    });
}

/// 5, Linux, 2025: which user halves to flush was kept in a mask of 16 bits, indexed by tags that went further.
#[test]
fn user_half_of_a_tag_above_15_is_flushed() {
    let design = IPI.on(Machine {
        split: true,
        first_tag: 20,
        ..Machine::PCID
    });
    for design in [
        design,
        Policy {
            requests: LOG.requests,
            ..design.policy
        }
        .on(design.machine),
    ] {
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::UserHalfMask16, symptom, withdraw_what_the_user_half_holds);
    }
}

/// 30: a broadcast under split tags invalidated only the half that the kernel runs on.
#[test]
fn broadcast_covers_both_halves_of_a_split_tag() {
    let design = BROADCAST.on(Machine {
        split: true,
        ..Machine::PCID
    });
    let scene = Scene::new(2, design);
    let symptom = Symptom::Breaks(Rule::C1);
    contract(
        &scene,
        Bug::BroadcastOneHalf,
        symptom,
        withdraw_what_the_user_half_holds,
    );
}

/// Few tags, which roll over while CPU 1 stays in one space and reads there. CPU 0 cycles through five more spaces,
/// returns, maps and unmaps.
fn roll_over_twice_under_a_reader(stage: &Stage) {
    let a = stage.process(1);
    let others: Vec<_> = (2..7).map(|number| stage.process(number)).collect();
    let stays = a.clone();
    stage.cpu(1, move |system| {
        system.load(&stays);
        rounds(|start| {
            while machine::now() < start + 30_000 {
                look(system, P);
                dawdle(200);
            }
        });
    });
    stage.cpu(0, move |system| {
        rounds(|start| {
            for _ in 0..4 {
                system.load(&a);
                for _ in 0..1 + machine::random_below(5) {
                    system.load(&others[machine::random_below(5) as usize]);
                }
            }
            system.load(&a);
            write(system, &a, 1);
            about(20_000, 1200).come(start);
            system.drop_pages(&a, P, 1);
        });
        assert!(
            system.engine.kernel().counts().rolled_over >= 2,
            "tags rolled over twice"
        );
    });
}

#[track_caller]
fn a_tag_is_kept_over_two_roll_overs(fault: Bug) {
    for reach in [Reach::Ipi, Reach::Broadcast, Reach::LocalFirst] {
        let design = Policy {
            tags: Tags::System,
            reach,
            ..IPI
        }
        .on(Machine {
            tag_limit: 5,
            ..Machine::PCID
        });
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&Scene::new(2, design), fault, symptom, roll_over_twice_under_a_reader);
    }
}

/// 49, arm64 0ebea8088095, 2015: when a tag that CPUs had kept over a roll-over was renewed, only the first CPU's copy
/// was. The next roll-over took the others' tag for an old one: their space continued under another tag, and flushes
/// missed them.
#[test]
fn second_roll_over_renews_the_tag_on_every_cpu() {
    a_tag_is_kept_over_two_roll_overs(Bug::FirstReservationRenewed);
}

/// 50, Linux ae120d9edfe9, 2013: a CPU stayed in its space from one roll-over to the next. At the second it had no
/// active tag, and the tag that it had reserved at the first was ignored.
#[test]
fn second_roll_over_keeps_the_tag_of_a_cpu_that_stayed() {
    a_tag_is_kept_over_two_roll_overs(Bug::ReservationForgotten);
}

/// 53, Phoenix-RTOS 829: kernel pages that are not global are cached under every tag. A flush of one reached the loaded
/// tag only.
#[test]
fn kernel_page_flush_covers_unloaded_tags() {
    for design in [IPI, LOG] {
        let design = design.on(Machine {
            split: true,
            ..Machine::PCID
        });
        let scene = Scene::new(2, design);
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::KernelEntriesUnderOtherTags, symptom, |stage| {
            let pages = stage.system.kernel_pages();
            let (a, b) = (stage.process(1), stage.process(2));
            stage.cpu(0, move |system| {
                rounds(|start| {
                    system.map_kernel(&pages, 0);
                    until(start + 10_000);
                    system.unmap_kernel(&pages, 0, 1);
                });
            });
            stage.cpu(1, move |system| {
                rounds(|start| {
                    system.load(&a);
                    until(start + 5_000);
                    system.touch_kernel(0);
                    system.load(&b);
                    until(start + 25_000);
                    system.load(&a);
                    system.touch_kernel(0);
                });
            });
        });
    }
}

/// 54, nested VMX, 2026: a guest's tag was not flushed when its virtual CPU moved to another processor and back, so
/// entries from its earlier stay there were used. Here the owner of a tag is a process.
#[test]
fn tag_is_flushed_when_its_owner_returns_to_a_cpu() {
    for design in [IPI, LOG, PREEMPTIBLE] {
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&Scene::new(2, design), Bug::TagOfEarlierLife, symptom, |stage| {
            let (a, b) = (stage.process(1), stage.process(2));
            for cpu in 0..2 {
                let (a, b) = (a.clone(), b.clone());
                stage.cpu(cpu, move |system| {
                    rounds(|start| {
                        // On CPU 0, then on CPU 1, then on CPU 0 again.
                        let turns = if cpu == 0 {
                            [true, false, true]
                        } else {
                            [false, true, false]
                        };
                        for (turn, here) in turns.into_iter().enumerate() {
                            until(start + 12_000 * turn as u64);
                            system.load(if here { &a } else { &b });
                            if here {
                                look(system, P);
                                write(system, &a, 1);
                            }
                            until(start + 12_000 * turn as u64 + 6_000);
                            if here && turn == 1 {
                                system.drop_pages(&a, P, 1);
                            }
                        }
                    });
                });
            }
        });
    }
}
