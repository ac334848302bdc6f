//! The extent of a flush: counts, page-table pages, and the frames behind.

use super::roles::*;
use super::scene::*;
use shootdown::{BroadcastLimits, Policy, Range, Stride};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::{Access, Rule};
use shootdown_sim::os::PAGE;

/// 4, Linux, 2025: the largest page count of a broadcast was 0 before CPUID was read. An early flush of a kernel range
/// was cut into pieces of zero pages, an endless loop.
#[test]
fn kernel_flush_with_broadcast_limit_0_terminates() {
    let mut scene = Scene::new(1, BROADCAST);
    scene.limits = Some(BroadcastLimits {
        max_pages: 0,
        max_large_pages: 0,
    });
    scene.tries = 1;
    contract(&scene, Bug::ZeroBroadcastLimit, Symptom::Spins, |stage| {
        let pages = stage.system.kernel_pages();
        stage.cpu(0, move |system| {
            for page in 0..4 {
                system.map_kernel(&pages, page);
                system.touch_kernel(page);
            }
            system.unmap_kernel(&pages, 0, 4);
            for page in 0..4 {
                assert!(!system.touch_kernel(page));
            }
        });
    });
}

/// CPU 1 caches four pages and the links to their table; CPU 0 unmaps them and frees the table.
fn free_a_table_in_use(stage: &Stage) {
    let a = stage.process(1);
    stage.withdraws_tables(0, &a, about(10_000, 1500));
    stage.cpu(1, move |system| {
        system.load(&a);
        rounds(|start| {
            until(start + 6_000);
            look_at_pages(system, 4);
            until(start + 10_000);
            for page in 0..16 {
                dawdle(200);
                look(system, P + page % 4 * PAGE);
            }
        });
    });
}

/// 16, OSv 61b3f772: the leaves were invalidated, but the paging-structure caches kept their links to the freed table.
#[test]
fn a_freed_table_does_not_stay_in_paging_structure_caches() {
    for design in [IPI, LOG, BROADCAST] {
        let mut scene = Scene::new(2, design);
        scene.leaf_only_keeps_psc = true;
        let symptom = Symptom::Breaks(Rule::C3);
        contract(&scene, Bug::TablesNotPurged, symptom, free_a_table_in_use);
    }
}

/// CPU 1 caches links to the tables on both sides of a boundary; CPU 0 clears the leaves, flushes them, and frees both
/// tables with one flush at a stride of 2 MiB.
fn free_two_tables(stage: &Stage) {
    const SPAN: u64 = 512 * PAGE;
    let last = P + SPAN - PAGE;
    let a = stage.system.process(1, 2 * SPAN);
    let b = a.clone();
    stage.cpu(0, move |system| {
        system.load(&a);
        rounds(|start| {
            system.map(&a, last, 2 * PAGE);
            for page in [last, last + PAGE] {
                system.touch(&a, page, Access::Write);
            }
            until(start + 10_000);
            let frames = system.withdraw(&a, last, 2);
            let _done = system
                .engine
                .flush(&a.space, Range::pages(last, last + 2 * PAGE, Stride::Size4K));
            dawdle(1500);
            let tables: Vec<_> = [P, P + SPAN]
                .into_iter()
                .filter_map(|va| system.unlink(&a, va))
                .collect();
            assert_eq!(tables.len(), 2);
            system.flush_and_free(&a, Range::pages(P, P + 2 * SPAN, Stride::Size2M), &tables);
            system.free_frames(frames);
            // The region is still on the list.
            system.unmap(&a, last, 2 * PAGE);
        });
    });
    stage.cpu(1, move |system| {
        system.load(&b);
        rounds(|start| {
            until(start + 6_000);
            for _ in 0..16 {
                look(system, last);
                look(system, last + PAGE);
                dawdle(800);
            }
        });
    });
}

/// With TCE an invalidation drops only the upper-level entries on the path to its address: a flush that frees two
/// tables must name an address under each. Without TCE one address was enough, and the mistake stayed hidden.
#[test]
fn a_flush_that_frees_two_tables_names_an_address_under_each() {
    for design in [IPI, LOG, BROADCAST] {
        let mut scene = Scene::new(2, design);
        never_broken(&scene, free_two_tables);
        for seed in 0..scene.tries {
            play(&scene, seed, Some(Bug::TablesNamedOnce), &free_two_tables).assert_clean(seed);
        }
        scene.tce = true;
        contract(&scene, Bug::TablesNamedOnce, Symptom::Breaks(Rule::C3), free_two_tables);
    }
}

/// 16, OSv 73a97f11: frames were freed when the flush had been sent, not when it had been answered. Here the script
/// makes that mistake, not the engine.
#[test]
fn frame_is_freed_only_after_the_wait() {
    let scene = Scene::new(2, LOG);
    let script = |wait_first: bool| {
        move |stage: &Stage| {
            let a = stage.process(1);
            stage.reads_pages(1, &a, 1, at(6_000));
            stage.writes_and(0, &a, 1, at(10_000), move |system, a| {
                let mut frames = system.withdraw(a, P, 1);
                let token = system.engine.dispatch(&a.space, Range::page(P));
                if !wait_first {
                    system.free_frames(std::mem::take(&mut frames));
                }
                let _done = token.wait();
                system.free_frames(frames);
            });
        }
    };
    never_broken(&scene, script(true));
    let wrong = play(&scene, 0, None, &script(false));
    assert!(wrong.shows(Symptom::Breaks(Rule::C2)), "the oracle saw nothing");
}

/// 26, SVSM and a Rust crate: the number of pages less one was passed where the number was meant, so that the last page
/// of each piece stayed.
#[test]
fn broadcast_covers_the_last_page_of_each_chunk() {
    let design = Policy {
        ceiling: 33,
        ..BROADCAST
    };
    let scene = Scene::new(2, design);
    let symptom = Symptom::Breaks(Rule::C1);
    contract(&scene, Bug::BroadcastCountOffByOne, symptom, |stage| {
        let a = stage.process(1);
        stage.reads_pages(1, &a, 4, at(6_000));
        stage.cpu(0, move |system| {
            system.load(&a);
            rounds(|start| {
                write(system, &a, 4);
                until(start + 6_000);
                look_at_pages(system, 4);
                until(start + 10_000);
                system.drop_pages(&a, P, 4);
            });
        });
    });
}

/// 41, FreeBSD a0f64f38a183: pages were promoted to a superpage and only the superpage's base was invalidated; older
/// small entries survived. Here the script makes that mistake, not the engine: it passes the stride of the new entry,
/// not of the old ones.
#[test]
fn small_entries_do_not_survive_a_collapse_that_names_the_small_stride() {
    for design in [IPI, LOG, BROADCAST] {
        let mut scene = Scene::new(2, design);
        scene.seeds = 50;
        let script = |stride: Stride| {
            move |stage: &Stage| {
                let a = stage.process(1);
                stage.reads_pages(1, &a, 4, at(6_000));
                stage.writes_and(0, &a, 4, at(10_000), move |system, a| {
                    let frames = system.withdraw(a, P, 4);
                    system.flush(a, Range::pages(P, P + Stride::Size2M.bytes(), stride));
                    system.free_frames(frames);
                });
            }
        };
        never_broken(&scene, script(Stride::Size4K));
        let wrong = play(&scene, 0, None, &script(Stride::Size2M));
        assert!(wrong.shows(Symptom::Breaks(Rule::C1)), "the oracle saw nothing");
    }
}

/// 51, FreeBSD-EN-26:10: a large range was broadcast with the 2 MiB stride. The instruction then invalidates one
/// address in each 2 MiB, and misses the pages between them.
#[test]
fn small_pages_are_not_broadcast_with_the_large_stride() {
    let design = Policy {
        ceiling: 4,
        ..BROADCAST
    };
    let symptom = Symptom::Breaks(Rule::C1);
    contract(
        &Scene::new(2, design),
        Bug::LargeStrideOverSmallPages,
        symptom,
        |stage| {
            const PAGES: u64 = 16;
            let a = stage.process(1);
            stage.withdraws_pages(0, &a, PAGES, at(15_000));
            stage.reads_pages(1, &a, PAGES, at(8_000));
        },
    );
}
