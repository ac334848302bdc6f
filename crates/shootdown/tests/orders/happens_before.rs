//! What one CPU does before it reports is known to the CPU that frees: frames, tables, deferred frames. After a flush
//! no CPU can fill from what was withdrawn. The schedule has no overlap, so only releases, acquires and fences decide.

use crate::clocks;
use crate::interleaving::{self, Came};
use crate::memory::{Memory, Withdrawn};
use crate::world::{Broadcasts, CPUS, Strict, Strictly, deliver, engine, on, on_without_interrupts, write_tables};
use shootdown::{CpuSet, Free, Range, Retired, Root, Space, Stride, Tags, Unmapped};

type StrictSpace = Space<Strict, 1>;

fn page() -> Range {
    Range::page(0)
}

fn tables() -> Range {
    Range::pages(0, 4096, Stride::Size4K)
}

/// Every CPU runs `space` and uses its memory. Then each CPU runs `then`, and `free` runs on CPU 0. Afterwards all
/// return.
fn freed_after(engine: &Strictly, space: &StrictSpace, then: impl Fn(usize), free: impl Fn(&Memory) -> Withdrawn) {
    let memory = Memory::default();
    for cpu in 0..CPUS {
        on(cpu, || {
            // SAFETY: the test keeps its spaces.
            unsafe { engine.switch_to(space) };
            memory.touch();
        });
    }
    (0..CPUS).for_each(|cpu| on(cpu, || then(cpu)));
    let withdrawn = free(&memory);
    for cpu in 0..CPUS {
        on(cpu, || {
            // SAFETY: as above.
            unsafe { engine.switch_to(space) };
            withdrawn.is_seen();
        });
    }
}

#[test]
fn freed_frames_happen_after_their_last_use() {
    for (name, design) in crate::designs().chain(crate::variants::variants()) {
        for broadcasts in Broadcasts::ALL.into_iter().filter(|all| all.fits(&design)) {
            println!("{name}, split {}, broadcasts {broadcasts:?}", design.machine.split);
            let engine = engine(design, broadcasts);
            let (space, other) = (engine.space(Root(1)), engine.space(Root(2)));
            let flush = |range: Range| {
                let (space, engine) = (&space, &engine);
                move |memory: &Memory| {
                    let withdrawn = Withdrawn::now();
                    let _done = engine.flush(space, range);
                    memory.free();
                    withdrawn
                }
            };
            let only = |wanted: usize, what: fn(&Strictly, &StrictSpace)| {
                let (engine, other) = (&engine, &other);
                move |cpu: usize| {
                    if cpu == wanted {
                        what(engine, other);
                    }
                }
            };
            for range in [page(), tables().with_tables(), Range::WHOLE, page()] {
                freed_after(engine, &space, |_| {}, flush(range));
                freed_after(engine, &space, only(1, |engine, _| engine.enter_lazy()), flush(range));
                freed_after(
                    engine,
                    &space,
                    only(1, |engine, _| engine.switch_to_kernel()),
                    flush(range),
                );
                // SAFETY: the test keeps its spaces.
                let leave = only(1, |engine, other| unsafe { engine.switch_to(other) });
                freed_after(engine, &space, leave, flush(range));
                let kernel = |cpu| {
                    if cpu > 0 && engine.enter_kernel(&space) {
                        deliver();
                    }
                };
                freed_after(engine, &space, kernel, flush(range));
                let off = |cpu| {
                    if cpu == 2 {
                        engine.cpu_offline();
                    }
                };
                let flushed = |memory: &Memory| {
                    let withdrawn = flush(range)(memory);
                    on(2, || engine.cpu_online());
                    // Under system-wide tags it reads no generation: it was seen offline, and the barriers are enough.
                    // Where broadcasts reach it, they inform its walker.
                    if design.policy.tags == Tags::System
                        || (broadcasts == Broadcasts::Aimed && design.policy.tags != Tags::PerCpu)
                    {
                        Withdrawn::nothing()
                    } else {
                        withdrawn
                    }
                };
                freed_after(engine, &space, off, flushed);
                let batched = |memory: &Memory| {
                    let withdrawn = Withdrawn::now();
                    let mut batch = engine.batch();
                    batch.add(&space, range);
                    let _done = batch.finish();
                    memory.free();
                    withdrawn
                };
                freed_after(engine, &space, |_| {}, batched);
            }
        }
    }
}

#[test]
fn freed_tables_happen_after_the_last_walk() {
    for (name, design) in crate::designs().filter(|(_, design)| !design.machine.split) {
        println!("{name}");
        let engine = engine(design, true);
        let (space, memory) = (engine.space(Root(1)), Memory::default());
        for round in 0..40 {
            for cpu in 1..CPUS {
                on(cpu, || {
                    let walk = engine.walk(&space);
                    memory.touch();
                    drop(walk);
                });
            }
            write_tables();
            match engine.flush_tables_later(&space, tables()) {
                Retired::Now(_) => {}
                Retired::Later(grace) => {
                    (1..CPUS).for_each(|cpu| on(cpu, || engine.quiescent()));
                    assert!(engine.graces_over().proof(grace).is_some(), "round {round}");
                }
            }
            memory.free();
            engine
                .kernel()
                .now
                .set(1 + round * if round < 20 { 10 } else { 100_000 });
        }
    }
}

#[test]
fn deferred_frames_happen_after_their_last_use() {
    for (name, design) in crate::designs().filter(|(name, _)| *name == "deferred") {
        println!("{name}, split {}", design.machine.split);
        let engine = engine(design, false);
        let space = engine.space(Root(1));
        for tickless in [false, true] {
            let deferred = |memory: &Memory| {
                let withdrawn = Withdrawn::now();
                if let Unmapped::Later(mut deferral) = engine.flush_later(&space, page(), 1) {
                    loop {
                        (1..CPUS).for_each(|cpu| on(cpu, || engine.tick()));
                        engine.tick();
                        match engine.release(deferral, &engine.deferrals_over()) {
                            Ok(_) => break,
                            Err(not_yet) => deferral = not_yet,
                        }
                    }
                }
                memory.free();
                withdrawn
            };
            let stop = |cpu| {
                if tickless && cpu == 2 {
                    engine.tick_stops();
                }
            };
            freed_after(engine, &space, stop, deferred);
            freed_after(engine, &space, |_| {}, deferred);
            on(2, || engine.tick_resumes());
            freed_after(engine, &space, |_| {}, deferred);
        }
    }
}

#[test]
fn flush_pending_orders_after_flushes_of_other_cpus() {
    for (name, design) in crate::designs().filter(|(_, design)| design.policy.free != Free::Synchronous) {
        println!("{name}, split {}", design.machine.split);
        let engine = engine(design, true);
        let (space, memory) = (engine.space(Root(1)), Memory::default());
        on(0, || {
            // SAFETY: the test keeps its spaces.
            unsafe { engine.switch_to(&space) };
            memory.touch();
        });
        let mut batch = engine.batch();
        on(1, || batch.add(&space, page()));
        on(2, || engine.flush_pending(&space));
        on(1, || {
            engine.flush_pending(&space);
            memory.free();
        });
        let _done = batch.finish();
    }
}

/// A set with a summary.
type Large = CpuSet<Strict, 9>;

#[test]
fn cpu_seen_outside_a_large_set_has_left() {
    /// In the second word, as is the requester in the last case.
    const LEAVES: usize = 70;
    let looks: [fn(&Large) -> bool; 3] = [
        |set| set.is_empty(),
        |set| !set.has_others(0, 9 * 64),
        |set| !set.has_others(LEAVES + 1, 9 * 64),
    ];
    for is_gone in looks {
        for operation in 0.. {
            clocks::reset();
            let set: &Large = Box::leak(Box::new(CpuSet::new()));
            let memory: &Memory = Box::leak(Box::default());
            let look = move || {
                if is_gone(set) {
                    memory.free();
                }
            };
            on_without_interrupts(1, || {
                set.join(LEAVES);
                memory.touch();
            });
            let leaves = || on_without_interrupts(1, || set.leave(LEAVES));
            let came = interleaving::together(operation, None, leaves, move || on_without_interrupts(0, look));
            if came == Came::Never {
                on_without_interrupts(0, look);
                break;
            }
        }
        assert!(is_gone(&Large::new()));
    }
}
