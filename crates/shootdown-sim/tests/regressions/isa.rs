//! Bugs that only AArch64 and RISC-V machines show, and their tags.

use super::roles::*;
use super::scene::*;
use shootdown::{Design, Machine, Policy, Reach, Tags};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::{Aarch64, Access, Isa, Riscv64, Rule};
use shootdown_sim::machine;
use shootdown_sim::os::PAGE;
use std::cell::Cell;
use std::rc::Rc;

/// Tags for two CPUs that roll over with the third space.
const FEW_TAGS: u32 = 1 + 3;

fn on(isa: Isa, design: impl Into<Design>) -> Scene {
    let mut design = design.into();
    design.policy.stuck_ns = 0;
    Scene {
        isa,
        ..Scene::new(2, design)
    }
}

fn arm(design: impl Into<Design>) -> Scene {
    on(Isa::Aarch64(Aarch64::default()), design)
}

/// Its harts keep cached entries under an ASID that they leave.
fn riscv(design: impl Into<Design>) -> Scene {
    let harts = Riscv64 {
        root_load_ends_walks: true,
        ..Riscv64::default()
    };
    on(Isa::Riscv64(harts), design)
}

/// CPU 0 withdraws `pages` pages while CPU 1 keeps reading them.
fn withdraw_under_a_reader(pages: u64) -> impl Fn(&Stage) {
    move |stage| {
        let a = stage.process(1);
        stage.withdraws_pages(0, &a, pages, at(10_000));
        stage.cpu(1, move |system| {
            system.load(&a);
            rounds(|start| {
                until(start + 8_000);
                while machine::now() < start + 25_000 {
                    look(system, P + machine::random_below(pages) * PAGE);
                    dawdle(200);
                }
            });
        });
    }
}

/// 17, ArceOS 2008: no barrier between the table write and the invalidation.
#[test]
fn an_invalidation_does_not_overtake_the_table_write() {
    for design in [Policy::ARM_BROADCAST, Policy::ARM_LOCAL_FIRST] {
        let mut scene = arm(design);
        scene.store_delay = 1_500;
        let symptom = Symptom::Breaks(Rule::C1);
        contract(&scene, Bug::NoPublishBeforeInvalidation, symptom, |stage| {
            let a = stage.process(1);
            stage.withdraws_pages(0, &a, 1, at(10_000));
            // It reads for the first time about when the entry is cleared: before that is visible, it fills.
            stage.reads_pages(1, &a, 1, about(10_000, 2_000));
        });
    }
}

/// 17, the same kernel: the fallback for a range too large to walk was the local form.
#[test]
fn range_above_the_ceiling_is_broadcast_not_local() {
    let design = Policy {
        ceiling: 2,
        ..Policy::ARM_BROADCAST
    };
    let mut scene = arm(design);
    scene.limits = Some(shootdown::BroadcastLimits {
        max_pages: 1,
        max_large_pages: 1,
    });
    contract(
        &scene,
        Bug::WholeTagOnlyHere,
        Symptom::Breaks(Rule::C1),
        withdraw_under_a_reader(3),
    );
}

/// 47, proposal of 2015: the handler answers without a barrier between its local invalidation and the answer.
#[test]
fn handler_acknowledges_after_its_invalidation_completes() {
    let page_by_page = Policy {
        ceiling: 33,
        ..Policy::ARM_IPI
    };
    for design in [Policy::ARM_IPI, page_by_page, LOG] {
        contract(
            &arm(design),
            Bug::AcknowledgeBeforeLocalSync,
            Symptom::Breaks(Rule::C1),
            withdraw_under_a_reader(2),
        );
    }
    let svinval = Isa::Riscv64(Riscv64 {
        svinval: true,
        ..Riscv64::default()
    });
    contract(
        &on(svinval, Policy::ARM_IPI),
        Bug::AcknowledgeBeforeLocalSync,
        Symptom::Breaks(Rule::C1),
        withdraw_under_a_reader(2),
    );
}

/// Both CPUs alternate between more spaces than there are tags, or slots.
fn take_turns(stage: &Stage) {
    let spaces = [1, 2, 3, 4].map(|number| stage.process(number));
    for cpu in 0..2 {
        let spaces = spaces.clone();
        stage.cpu(cpu, move |system| {
            rounds(|start| {
                for (process, turn) in spaces.iter().zip(0..) {
                    until(start + turn * 9_000);
                    system.load(process);
                    write(system, process, 2);
                }
            });
        });
    }
}

/// 18, Asterinas 3672: a tag was reused after a root load without a fence, which the emulator did not show.
#[test]
fn a_tag_is_not_reused_without_a_fence() {
    let rolled = Policy::ARM_IPI.on(Machine {
        tag_limit: FEW_TAGS,
        ..Machine::PCID
    });
    let slots = Policy { slots: 2, ..IPI };
    for design in [rolled, slots.into()] {
        contract(
            &riscv(design),
            Bug::TagReusedWithoutFlush,
            Symptom::Breaks(Rule::C4),
            take_turns,
        );
    }
}

/// 44, Linux ae9e9f3d67dc: a hart that went offline stays in the set, and is waited for.
#[test]
fn offline_hart_is_not_waited_for() {
    contract(
        &riscv(Policy::ARM_IPI),
        Bug::WaitForCpuThatIsOff,
        Symptom::Hangs,
        |stage| {
            let a = stage.process(1);
            stage.withdraws_pages(0, &a, 1, at(20_000));
            stage.task(1, {
                let system = stage.system.clone();
                move || {
                    system.online();
                    system.load(&a);
                    look(&system, P);
                    until(ROUND * 3);
                    system.offline();
                }
            });
        },
    );
}

/// A write of satp flushes nothing, and without ASIDs the entries of the previous space have the same number.
#[test]
fn without_asids_a_root_load_is_followed_by_a_fence() {
    contract(
        &riscv(Policy::IPI.on(Machine::NO_TAGS)),
        Bug::NoFenceWithoutAsids,
        Symptom::Breaks(Rule::C4),
        take_turns,
    );
}

/// 46: the tag was read before the entry was cleared, and a roll-over came between: the flush names a tag that the
/// space no longer has.
#[test]
fn tag_is_read_after_the_entry_is_cleared() {
    let mut scene = arm(Policy::ARM_BROADCAST.on(Machine {
        tag_limit: FEW_TAGS,
        ..Machine::PCID
    }));
    scene.store_delay = 1_500;
    scene.tries = 600;
    let symptom = Symptom::Breaks(Rule::C1);
    contract(&scene, Bug::TagReadBeforePublish, symptom, |stage| {
        let spaces = [1, 2, 3, 4, 5, 6].map(|number| stage.process(number));
        let a = spaces[0].clone();
        // Reclaim takes a page of a space that it does not run.
        stage.cpu(0, move |system| {
            rounds(|start| {
                about(30_000, 3_000).come(start);
                system.reclaim(&[(&a, P)]);
            });
        });
        stage.cpu(1, move |system| {
            rounds(|start| {
                system.load(&spaces[0]);
                write(system, &spaces[0], 1);
                // Different spaces each time, so that the space comes back under another tag.
                for _ in 0..3 + machine::random_below(3) {
                    system.load(&spaces[1 + machine::random_below(5) as usize]);
                }
                about(28_500, 3_000).come(start);
                system.load(&spaces[0]);
                look(system, P);
            });
        });
    });
}

/// A hart may cache that a page is not mapped. The fault that maps it fences that, under the tag of a space which a
/// flush of tables has unloaded meanwhile; else the page faults again when the space is loaded again.
#[test]
fn newly_mapped_page_does_not_fault_again_after_an_unload() {
    let pages = 4 * ROUNDS;
    let design = Policy {
        tags: Tags::PerCpu,
        reach: Reach::Ipi,
        ..Policy::ADAPTIVE
    };
    for seed in 0..10 {
        let unloaded = Rc::new(Cell::new(0));
        let last = unloaded.clone();
        let ending = play(&riscv(design), seed, None, &move |stage| {
            let a = stage.process(1);
            let (other, unloaded) = (a.clone(), unloaded.clone());
            stage.cpu(0, move |system| {
                system.load(&a);
                rounds(|start| {
                    let first = (start / ROUND - 1) * 4;
                    for page in first..first + 4 {
                        system.touch(&a, P + page * PAGE, Access::Write);
                    }
                });
                assert_eq!(system.faults(), pages);
                unloaded.set(system.engine.kernel().counts().answers.unloaded);
            });
            stage.cpu(1, move |system| {
                system.load(&other);
                rounds(|start| {
                    for _ in 0..8 {
                        system.flush_space(&other);
                        dawdle(600);
                    }
                    until(start + ROUND / 2);
                });
            });
        });
        ending.assert_clean(seed);
        assert!(last.get() > 0, "the space was never unloaded");
    }
}
