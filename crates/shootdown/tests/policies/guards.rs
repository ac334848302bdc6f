//! Lockless walks through the public interface: guards, which CPUs are interrupted for a freed table, grace periods.

use super::{Sys, World, tables};
use shootdown::{Flushed, Free, Native, Policy, Range, Retired, Root, Space, Unmapped, Walkers};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Four CPUs without broadcasts.
fn world(walkers: Walkers, base: Policy) -> (&'static World, &'static Sys, Space<Native, 1>) {
    let (world, engine) = super::world(Policy { walkers, ..base }, 4);
    world.has_none.set(true);
    (world, engine, engine.space(Root(1)))
}

#[test]
fn walk_masks_interrupts_until_the_outermost_guard_drops() {
    for walkers in [
        Walkers::InterruptAll,
        Walkers::Precise,
        Walkers::Sticky,
        Walkers::Adaptive,
    ] {
        let (world, engine, space) = world(walkers, Policy::IPI);
        let other = engine.space(Root(2));
        let outer = engine.walk(&space);
        let inner = engine.walk(&other);
        let again = engine.walk(&space);
        assert!(world.masked.get());
        drop(again);
        drop(inner);
        assert!(world.masked.get(), "{walkers:?}: the outer walk goes on");
        drop(outer);
        assert!(!world.masked.get());
        let _free = engine.flush_tables(&space, tables());
    }
}

#[test]
fn sticky_walker_is_interrupted_once_for_many_walks() {
    let (world, engine, space) = world(Walkers::Sticky, Policy::IPI);
    world.on(2, || (0..100).for_each(|_| drop(engine.walk(&space))));
    assert!(world.interrupted().is_empty());
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), [2]);
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), [], "it has been forgotten");
    world.on(2, || drop(engine.walk(&space)));
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), [2], "it has registered anew");
}

#[test]
fn sticky_walker_of_another_space_is_not_interrupted() {
    let (world, engine, space) = world(Walkers::Sticky, Policy::IPI);
    let others: Vec<_> = (2..9).map(|root| engine.space(Root(root))).collect();
    world.on(1, || others.iter().for_each(|other| drop(engine.walk(other))));
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), []);
    // More spaces than slots: a walk that lost its slot is still in its space's set.
    for other in &others {
        let _free = engine.flush_tables(other, tables());
        assert_eq!(world.interrupted(), [1], "space {}", other.id());
        let _free = engine.flush_tables(other, tables());
        assert_eq!(world.interrupted(), []);
    }
}

#[test]
fn ended_published_walk_causes_no_ipi() {
    for walkers in [Walkers::Precise, Walkers::PreciseExchange, Walkers::GracePeriod] {
        let (world, engine, space) = world(walkers, Policy::IPI);
        world.on(3, || drop(engine.walk(&space)));
        let _retired = engine.flush_tables_later(&space, tables());
        assert_eq!(world.interrupted(), [], "{walkers:?}");
    }
}

#[test]
fn published_and_nested_walks_are_found() {
    let (world, engine, space) = world(Walkers::Precise, Policy::IPI);
    let other = engine.space(Root(2));
    let outer = world.on(3, || engine.walk(&space));
    let inner = world.on(3, || engine.walk(&other));
    world.masked.set(false); // what is off on CPU 3 is not off here
    for walked in [&space, &other] {
        let _free = engine.flush_tables(walked, tables());
        assert_eq!(world.interrupted(), [3]);
    }
    world.on(3, || drop(inner));
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), [3], "the outer walk is left");
    world.on(3, || drop(outer));
    for walked in [&space, &other] {
        let _free = engine.flush_tables(walked, tables());
        assert_eq!(world.interrupted(), []);
    }
}

#[test]
fn interrupt_all_interrupts_every_online_cpu() {
    let (world, engine, space) = world(Walkers::InterruptAll, Policy::IPI);
    world.on(2, || engine.cpu_offline());
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), [1, 3]);
}

#[test]
fn one_ipi_serves_flush_and_walkers() {
    let log = Policy {
        requests: shootdown::Requests::Log,
        ..Policy::IPI
    };
    for base in [Policy::IPI, log] {
        for walkers in [Walkers::InterruptAll, Walkers::Sticky, Walkers::Adaptive] {
            let (world, engine, space) = world(walkers, base);
            // SAFETY: the space outlives the engine's use of it: its world is not used after this.
            world.on(1, || unsafe { engine.switch_to(&space) });
            world.on(1, || drop(engine.walk(&space)));
            world.on(3, || drop(engine.walk(&space)));
            let _free = engine.flush_tables(&space, tables());
            let expected = if walkers == Walkers::InterruptAll {
                vec![1, 2, 3]
            } else {
                vec![1, 3]
            };
            assert_eq!(world.interrupted(), expected, "{walkers:?}");
        }
    }
}

#[test]
fn walker_that_runs_the_space_stays_registered() {
    let (world, engine, space) = world(Walkers::Adaptive, Policy::IPI);
    // SAFETY: the space outlives the engine's use of it.
    world.on(1, || unsafe { engine.switch_to(&space) });
    for _ in 0..100 {
        world.on(1, || drop(engine.walk(&space)));
        let _free = engine.flush_tables(&space, tables());
        assert_eq!(
            world.interrupted(),
            [1],
            "and the space does not change its mode, which would interrupt all"
        );
    }
    // A registration that was kept is found after the CPU stops running the space.
    world.on(1, || engine.switch_to_kernel());
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), [1]);
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), []);
}

#[test]
fn nmi_walk_is_found_in_every_tracking_mode() {
    for walkers in [Walkers::Precise, Walkers::Sticky, Walkers::Adaptive] {
        let (world, engine, space) = world(walkers, Policy::IPI);
        let walk = world.on(1, || engine.walk_from_nmi(&space));
        let _free = engine.flush_tables(&space, tables());
        assert_eq!(world.interrupted(), [1]);
        world.on(1, || drop(walk));
        let _free = engine.flush_tables(&space, tables());
        assert_eq!(world.interrupted(), []);
    }
}

#[test]
fn nmi_walks_on_two_cpus_are_both_found() {
    let (world, engine, space) = world(Walkers::Precise, Policy::IPI);
    let walks = [1, 3].map(|cpu| world.on(cpu, || engine.walk_from_nmi(&space)));
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), [1, 3]);
    for (cpu, walk) in [1, 3].into_iter().zip(walks) {
        world.on(cpu, || drop(walk));
    }
}

#[test]
fn grace_period_ends_once_every_cpu_was_outside_a_walk() {
    let (world, engine, space) = world(Walkers::GracePeriod, Policy::IPI);
    let Retired::Later(first) = engine.flush_tables_later(&space, tables()) else {
        panic!("no CPU is interrupted");
    };
    let over = |grace| engine.graces_over().proof(grace).is_some();
    assert!(!over(first));
    world.on(1, || engine.quiescent());
    world.on(2, || engine.cpu_offline());
    assert!(!over(first), "CPU 3 has said nothing");
    let Retired::Later(second) = engine.flush_tables_later(&space, tables()) else {
        panic!("no CPU is interrupted");
    };
    world.on(3, || engine.quiescent());
    assert!(over(first));
    assert!(!over(second), "CPU 1 has not been seen since");
    world.on(1, || engine.quiescent());
    assert!(over(second));
}

#[test]
fn retire_tables_interrupts_instead_of_waiting_for_a_grace_period() {
    let (world, engine, space) = world(Walkers::GracePeriod, Policy::IPI);
    let flushed = engine.flush(&space, tables().with_tables());
    assert_eq!(world.interrupted(), []);
    let _free = engine.retire_tables(&space, &flushed);
    assert_eq!(world.interrupted(), [1, 2, 3]);
}

#[test]
fn flush_without_tables_is_no_proof_for_table_pages() {
    for base in [
        Policy::IPI,
        Policy::ADAPTIVE,
        Policy {
            free: Free::Synchronous,
            ..Policy::IPI
        },
    ] {
        for walkers in [Walkers::None, Walkers::Precise] {
            let (world, engine, _) = world(walkers, base);
            let (one, other) = (super::space(engine, 1), super::space(engine, 2));
            let batch = |tables: Range| {
                let mut batch = engine.batch();
                batch.add(one, tables);
                batch.add(one, Range::page(0x1000));
                batch.finish()
            };
            type Proof<'a> = &'a dyn Fn(Range) -> Flushed;
            let ways: [Proof<'_>; 4] = [
                &|range| engine.flush(one, range),
                &|range| engine.dispatch(one, range).wait(),
                &|range| engine.flush_while(one, range, || {}).0,
                &batch,
            ];
            for way in ways {
                for with_tables in [true, false] {
                    super::run(world, engine, 0..2, one);
                    world.on(1, || engine.enter_lazy());
                    let range = if with_tables { tables().with_tables() } else { tables() };
                    let flushed = way(range);
                    assert_eq!(world.interrupted().contains(&1), with_tables, "it is lazy");
                    let free = catch_unwind(AssertUnwindSafe(|| drop(engine.retire_tables(one, &flushed))));
                    assert_eq!(free.is_ok(), with_tables || cfg!(not(debug_assertions)), "{walkers:?}");
                    world.interrupted();
                }
            }
            super::run(world, engine, 0..2, other);
            world.on(1, || engine.enter_lazy());
            let retired = engine.retire(one);
            let _free = engine.retire_tables(one, &retired);
            for has_none in [true, false] {
                world.has_none.set(has_none);
                let kernel = engine.flush_kernel(tables().with_tables());
                for proof in [&retired, &kernel] {
                    let free = catch_unwind(AssertUnwindSafe(|| drop(engine.retire_tables(other, proof))));
                    assert_eq!(free.is_err(), cfg!(debug_assertions), "not of this space");
                    world.interrupted();
                }
            }
        }
    }
}

#[test]
fn ended_deferral_is_no_proof_for_table_pages() {
    let base = Policy {
        free: Free::Deferred,
        ..Policy::IPI
    };
    let (world, engine, _) = world(Walkers::Precise, base);
    let one = super::space(engine, 1);
    let refuses = |proof: Flushed| {
        let free = catch_unwind(AssertUnwindSafe(|| drop(engine.retire_tables(one, &proof))));
        assert_eq!(free.is_err(), cfg!(debug_assertions));
    };
    super::run(world, engine, 0..1, one);
    let Unmapped::Now(alone) = engine.flush_later(one, tables(), 1) else {
        panic!("no other space has it");
    };
    refuses(alone);
    super::run(world, engine, 0..2, one);
    let Unmapped::Later(deferral) = engine.flush_later(one, tables(), 1) else {
        panic!("CPU 1 has it");
    };
    let proofs = (0..2).map(|_| {
        (0..4).for_each(|cpu| world.on(cpu, || engine.tick()));
        engine.deferrals_over()
    });
    let over = proofs.last().expect("two");
    refuses(engine.release(deferral, &over).expect("every CPU has ticked"));
}

#[test]
fn tables_cannot_be_freed_inside_a_walk() {
    for walkers in [
        Walkers::Precise,
        Walkers::Sticky,
        Walkers::InterruptAll,
        Walkers::GracePeriod,
    ] {
        let (_, engine, space) = world(walkers, Policy::IPI);
        let walk = engine.walk(&space);
        let freed = catch_unwind(AssertUnwindSafe(|| {
            let _free = engine.flush_tables(&space, tables());
        }));
        assert!(freed.is_err(), "{walkers:?}");
        drop(walk);
    }
}

#[test]
fn policy_without_walks_interrupts_no_cpu_and_refuses_walks() {
    let (world, engine, space) = world(Walkers::None, Policy::IPI);
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), []);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(engine.walk(&space)))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(engine.walk_from_nmi(&space)))).is_err());
}

#[test]
fn many_frees_and_few_walks_switch_to_published_walks() {
    let (world, engine, space) = world(Walkers::Adaptive, Policy::IPI);
    let mut interrupts = 0;
    for _ in 0..200 {
        world.on(1, || drop(engine.walk(&space)));
        let _free = engine.flush_tables(&space, tables());
        interrupts += world.interrupted().len();
    }
    // One for each free until the mode changes, all CPUs for the change, none afterwards.
    assert!((16..40).contains(&interrupts), "{interrupts}");
}

#[test]
fn many_walks_and_few_frees_keep_registrations() {
    let (world, engine, space) = world(Walkers::Adaptive, Policy::IPI);
    let mut interrupts = 0;
    for _ in 0..100 {
        world.on(1, || (0..200).for_each(|_| drop(engine.walk(&space))));
        let _free = engine.flush_tables(&space, tables());
        interrupts += world.interrupted().len();
    }
    assert_eq!(interrupts, 100);
}

#[test]
fn nested_nmi_walks_are_found_until_the_outermost_ends() {
    let (world, engine, space) = world(Walkers::Precise, Policy::IPI);
    let outer = world.on(1, || engine.walk_from_nmi(&space));
    let inner = world.on(1, || engine.walk_from_nmi(&space));
    world.on(1, || drop(inner));
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), [1]);
    world.on(1, || drop(outer));
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), []);
}

#[test]
fn nested_walk_of_one_space_does_not_concern_another() {
    for walkers in [Walkers::Precise, Walkers::PreciseExchange] {
        let (world, engine, space) = world(walkers, Policy::IPI);
        let other = engine.space(Root(2));
        let outer = world.on(3, || engine.walk(&space));
        let inner = world.on(3, || engine.walk(&space));
        world.masked.set(false);
        let _free = engine.flush_tables(&other, tables());
        assert_eq!(world.interrupted(), []);
        world.on(3, || drop(inner));
        world.on(3, || drop(outer));
    }
}

#[test]
fn interrupted_walker_stays_registered_only_if_it_runs_the_space() {
    let (world, engine, space) = world(Walkers::Sticky, Policy::IPI);
    // SAFETY: the space outlives the engine's use of it.
    world.on(1, || unsafe { engine.switch_to(&space) });
    for cpu in [1, 3] {
        world.on(cpu, || drop(engine.walk(&space)));
    }
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), [1, 3]);
    world.on(1, || engine.switch_to_kernel());
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), [1]);
}

/// Guards dropped in the order of their creation: the first is gone, the second walk continues.
#[test]
fn walk_outlives_the_guard_taken_before_it() {
    for walkers in [
        Walkers::InterruptAll,
        Walkers::Precise,
        Walkers::PreciseExchange,
        Walkers::Sticky,
        Walkers::GracePeriod,
        Walkers::Adaptive,
    ] {
        let (world, engine, space) = world(walkers, Policy::IPI);
        let (first, second) = world.on(3, || (engine.walk(&space), engine.walk(&space)));
        world.on(3, || drop(first));
        assert!(
            world.masked.get(),
            "{walkers:?}: the second walk goes on with interrupts off"
        );
        world.masked.set(false); // what is off on CPU 3 is not off here
        let _free = engine.flush_tables(&space, tables());
        assert!(
            world.interrupted().contains(&3),
            "{walkers:?}: C3, the walk was not waited for"
        );
        world.masked.set(true);
        world.on(3, || drop(second));
        assert!(!world.masked.get(), "{walkers:?}");
    }
}

#[test]
fn nmi_walk_outlives_the_guard_taken_before_it() {
    let (world, engine, space) = world(Walkers::Precise, Policy::IPI);
    let (first, second) = world.on(1, || (engine.walk_from_nmi(&space), engine.walk_from_nmi(&space)));
    world.on(1, || drop(first));
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), [1]);
    world.on(1, || drop(second));
    let _free = engine.flush_tables(&space, tables());
    assert_eq!(world.interrupted(), []);
}

#[test]
fn cpu_offline_inside_a_walk_is_refused() {
    for walkers in [Walkers::Precise, Walkers::Sticky, Walkers::InterruptAll] {
        let (world, engine, space) = world(walkers, Policy::IPI);
        let walk = world.on(2, || engine.walk(&space));
        let off = catch_unwind(AssertUnwindSafe(|| world.on(2, || engine.cpu_offline())));
        assert!(off.is_err(), "{walkers:?}");
        world.on(2, || drop(walk));
    }
}

/// A debug build panics; a release build flushes the space whose tables are freed.
#[test]
fn foreign_or_tableless_proof_frees_no_tables() {
    let (world, engine, space) = world(Walkers::Precise, Policy::IPI);
    let other = engine.space(Root(2));
    // SAFETY: the space outlives the engine's use of it.
    world.on(1, || unsafe { engine.switch_to(&space) });
    let of_other = engine.flush(&other, tables().with_tables());
    let without_tables = engine.flush(&space, Range::page(0x1000));
    world.interrupted();
    for proof in [of_other, without_tables] {
        let freed = catch_unwind(AssertUnwindSafe(|| {
            let _free = engine.retire_tables(&space, &proof);
        }));
        if cfg!(debug_assertions) {
            assert!(freed.is_err());
        } else {
            assert_eq!(world.interrupted(), [1], "flushed by itself");
        }
    }
}

#[test]
fn batch_proof_frees_tables_of_its_only_space() {
    let (world, engine, space) = world(Walkers::Precise, Policy::IPI);
    let other = engine.space(Root(2));
    // SAFETY: the space outlives the engine's use of it.
    world.on(1, || unsafe { engine.switch_to(&space) });
    for (spaces, flushed_again) in [(&[&space][..], false), (&[&space, &other], true)] {
        let mut batch = engine.batch();
        spaces.iter().for_each(|space| batch.add(space, tables().with_tables()));
        let flushed = batch.finish();
        world.interrupted();
        let _free = engine.retire_tables(&space, &flushed);
        assert_eq!(!world.interrupted().is_empty(), flushed_again);
    }
}
