//! Each named barrier is executed where its instruction set needs it: between table writes and an invalidation, between
//! words and an interrupt, between words and a root load. Interrupts are sent pinned, and invalidations are completed.
//! On one host thread, under every preset, so barriers that are no-ops on x86 are checked too.

mod at_random;
mod caches;
mod chosen;
mod clocks;
mod focused;
mod happens_before;
mod interleaving;
mod memory;
mod play;
mod tracked_words;
mod variants;
mod work;
mod world;

use shootdown::{Design, Errata, Machine, Policy, Range, Root, Stride, Tags, Unmapped};
use world::{Broadcasts, CPUS, engine, on, unmap, write_tables};

/// Each sound preset; variants that promote and demote at once; and variants with few tags, so that they run out.
fn designs() -> impl Iterator<Item = (&'static str, Design)> {
    let presets = Design::PRESETS.iter().filter(|(name, ..)| *name != "none");
    presets.flat_map(|&(name, design, _)| {
        let tags = match design.policy.tags {
            Tags::Hybrid { .. } | Tags::HybridByCost { .. } => Tags::Hybrid { promote_at: 2 },
            tags => tags,
        };
        let design = Policy {
            tags,
            slots: 2,
            sample_one_in: 1,
            demote_after: 1,
            consider_window_ns: 1,
            ..design.policy
        }
        .on(Machine {
            tag_limit: 7,
            ..design.machine
        });
        let split = design.policy.on(Machine {
            split: true,
            tag_limit: 4096,
            ..design.machine
        });
        let repeat = design.policy.on(Machine {
            errata: Errata {
                repeat: true,
                ..design.machine.errata
            },
            ..design.machine
        });
        [(name, design), (name, split), (name, repeat)]
    })
}

const PAGES: u64 = 3;

fn page(page: u64) -> Range {
    Range::page(page * 4096)
}

fn some_pages() -> Range {
    Range::pages(0, PAGES * 4096, Stride::Size4K)
}

#[test]
fn each_barrier_precedes_the_operation_it_orders() {
    for (name, design) in designs() {
        for broadcasts in Broadcasts::ALL.into_iter().filter(|all| all.fits(&design)) {
            println!("{name}, split {}, broadcasts {broadcasts:?}", design.machine.split);
            let engine = engine(design, broadcasts);
            let spaces: Vec<_> = (1..=6).map(|root| engine.space(Root(root))).collect();
            let space = &spaces[0];
            // SAFETY: spaces live until the end of the round, when every CPU has left.
            let run = |cpu, space| on(cpu, || unsafe { engine.switch_to(space) });
            (0..CPUS).for_each(|cpu| run(cpu, space));
            for round in 0..4 {
                unmap(engine, space, page(round % PAGES));
                unmap(engine, space, some_pages().with_tables());
                unmap(engine, space, Range::WHOLE);
                on(1, || unmap(engine, space, page(0)));
                on(2, || engine.enter_lazy());
                unmap(engine, space, page(1));
                unmap(engine, space, page(1).with_tables());
                run(2, space);
                // All CPUs but one have left: demotion, where the design has it. More spaces than tags: roll-over.
                run(1, &spaces[1 + round as usize]);
                on(2, || engine.switch_to_kernel());
                unmap(engine, space, page(2));
                unmap(engine, space, page(2));
                unmap(engine, &spaces[1 + round as usize], page(0));
                for other in &spaces {
                    run(2, other);
                    unmap(engine, other, page(0));
                }
                (1..CPUS).for_each(|cpu| run(cpu, space));
            }
            for kernel_range in [page(8), some_pages().with_tables(), Range::WHOLE] {
                write_tables();
                let _done = engine.flush_kernel(kernel_range);
                engine.kernel().is_settled();
            }
            let mut batch = engine.batch();
            for other in &spaces {
                write_tables();
                batch.add(other, page(0));
            }
            let _done = batch.finish();
            engine.kernel().is_settled();
            engine.flush_pending(space);
            write_tables();
            match engine.flush_later(space, page(0), 1) {
                Unmapped::Now(_) => {}
                Unmapped::Later(deferral) => {
                    (0..CPUS).for_each(|cpu| on(cpu, || engine.tick()));
                    let over = engine.deferrals_over();
                    (0..CPUS).for_each(|cpu| on(cpu, || engine.tick()));
                    let again = engine.deferrals_over();
                    let later = engine.release(deferral, &over);
                    assert!(later.or_else(|deferral| engine.release(deferral, &again)).is_ok());
                }
            }
            engine.kernel().is_settled();
            on(1, || drop(engine.walk(space)));
            write_tables();
            let _free = engine.flush_tables(space, some_pages());
            engine.kernel().is_settled();
            // No thread of any space runs again.
            (0..CPUS).for_each(|cpu| on(cpu, || engine.enter_lazy()));
            for other in &spaces {
                write_tables();
                let _end = engine.retire(other);
                engine.kernel().is_settled();
            }
            for cpu in 0..CPUS {
                on(cpu, || engine.cpu_offline());
                engine.kernel().is_settled();
            }
        }
    }
}

#[test]
fn reassigned_tags_hold_no_entries() {
    for (name, design) in designs() {
        println!("{name}, split {}", design.machine.split);
        let engine = engine(design, true);
        let spaces: Vec<_> = (1..=30).map(|root| engine.space(Root(root))).collect();
        let lasting = engine.space(Root(31));
        for (round, space) in spaces.iter().enumerate() {
            for cpu in 0..CPUS {
                // SAFETY: spaces live until the end of the round, when every CPU has left.
                on(cpu, || unsafe { engine.switch_to(space) });
            }
            unmap(engine, space, page(0));
            unmap(engine, space, page(1));
            match round % 3 {
                0 => on(1, || engine.enter_lazy()),
                1 => on(1, || engine.switch_to_kernel()),
                // SAFETY: as above.
                _ => on(1, || unsafe { engine.switch_to(&lasting) }),
            }
            unmap(engine, space, page(0));
            on(0, || engine.enter_lazy());
            on(2, || {
                let _end = engine.retire(space);
            });
            engine.kernel().is_settled();
        }
    }
}
