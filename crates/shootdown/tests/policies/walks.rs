//! Registered and published walks.

use crate::{OnHost, Sys, World, run, space, tables, world};
use shootdown::{Event, Policy, Walkers};

const ADAPTIVE: Policy = Policy {
    walkers: Walkers::Adaptive,
    ..Policy::IPI
};

/// Frees tables `frees` times, `ns` apart. Each free finds one walker, CPU 1, which has walked `walks` times since the
/// last. Returns how many CPUs were interrupted.
fn free(world: &World, engine: &Sys, space: &OnHost, frees: u32, ns: u64, walks: u32) -> usize {
    for _ in 0..frees {
        world.now.set(world.now.get() + ns);
        world.on(1, || (0..walks).for_each(|_| drop(engine.walk(space))));
        let _free = engine.flush_tables(space, tables());
    }
    world.interrupted().len()
}

#[test]
fn walks_are_published_if_registrations_serve_too_few() {
    let design = Policy {
        walkers: Walkers::Adaptive,
        ..Policy::IPI
    };
    // An interrupt costs 40 barriers, and three more because there is one walker.
    for (walks, published) in [(42, true), (43, false)] {
        let (world, engine) = world(design, 4);
        let one = space(engine, 1);
        assert_eq!(free(world, engine, one, 15, 10, walks), 15, "not before the 16th");
        let changes = usize::from(published) * 3;
        assert_eq!(
            free(world, engine, one, 1, 10, walks),
            1 + changes,
            "{walks} walks each"
        );
        assert_eq!(world.saw(|event| *event == Event::WalksChanged), published);
        assert_eq!(free(world, engine, one, 15, 10, walks), if published { 0 } else { 15 });
    }
}

#[test]
fn too_few_registrations_keep_the_mode() {
    let design = Policy {
        walkers: Walkers::Adaptive,
        ..Policy::IPI
    };
    let (world, engine) = world(design, 4);
    let one = space(engine, 1);
    assert_eq!(free(world, engine, one, 15, 10, 1), 15);
    assert_eq!(free(world, engine, one, 1, 10, 0), 0, "15 of 16");
    assert!(!world.saw(|event| *event == Event::WalksChanged));
    assert_eq!(free(world, engine, one, 15, 10, 1), 15, "and counts anew");
    assert_eq!(free(world, engine, one, 1, 10, 1), 1 + 3);
}

#[test]
fn walks_are_registered_again_once_frees_are_four_times_rarer() {
    let design = Policy {
        walkers: Walkers::Adaptive,
        ..Policy::IPI
    };
    for (ns, again) in [(400, false), (401, true)] {
        let (world, engine) = world(design, 4);
        let one = space(engine, 1);
        assert_eq!(free(world, engine, one, 16, 100, 1), 16 + 3);
        assert_eq!(free(world, engine, one, 16, 100, 1), 0, "as often as before");
        assert_eq!(
            free(world, engine, one, 16, ns, 1),
            usize::from(again) * 3,
            "{ns} ns apart"
        );
        let registered = free(world, engine, one, 1, ns, 1);
        assert_eq!(
            registered,
            usize::from(again),
            "the walker is registered, or has published itself"
        );
    }
}

#[test]
fn change_to_published_walks_clears_registrations() {
    let design = Policy {
        walkers: Walkers::Adaptive,
        ..Policy::IPI
    };
    let (world, engine) = world(design, 4);
    let one = space(engine, 1);
    // The freeing CPUs are registered too. CPU 3 stayed registered because it runs the space.
    run(world, engine, 3..4, one);
    run(world, engine, 0..1, one);
    drop(engine.walk(one));
    world.on(3, || drop(engine.walk(one)));
    while !world.saw(|event| *event == Event::WalksChanged) {
        free(world, engine, one, 1, 10, 1);
    }
    (0..4).for_each(|cpu| world.on(cpu, || engine.switch_to_kernel()));
    (0..4).for_each(|cpu| world.on(cpu, || drop(engine.walk(one))));
    world.interrupted();
    for free_from in 0..4 {
        world.on(free_from, || drop(engine.flush_tables(one, tables())));
        assert_eq!(
            world.interrupted(),
            [0; 0],
            "no CPU is registered, notified from CPU {free_from}"
        );
    }
    // A published walk in progress is found, also of CPUs that were registered.
    for walker in 0..4 {
        let walk = world.on(walker, || engine.walk(one));
        world.masked.set(false);
        world.on((walker + 1) % 4, || drop(engine.flush_tables(one, tables())));
        assert_eq!(world.interrupted(), [walker]);
        world.on(walker, || drop(walk));
    }
}

#[test]
fn tick_is_a_quiescent_state() {
    let design = Policy {
        walkers: Walkers::GracePeriod,
        ..Policy::IPI
    };
    let (world, engine) = world(design, 3);
    let one = space(engine, 1);
    let shootdown::Retired::Later(grace) = engine.flush_tables_later(one, tables()) else {
        panic!("no CPU is interrupted")
    };
    let over = || engine.graces_over().proof(grace).is_some();
    assert!(!over());
    world.on(1, || engine.tick());
    assert!(!over());
    world.on(2, || engine.tick());
    assert!(over());
}

#[test]
fn cpu_offline_during_the_mode_change_keeps_no_registration() {
    let design = Policy {
        walkers: Walkers::Adaptive,
        ..Policy::IPI
    };
    let (world, engine) = world(design, 4);
    let one = space(engine, 1);
    world.on(2, || drop(engine.walk(one)));
    world.on(2, || engine.cpu_offline());
    while !world.saw(|event| *event == Event::WalksChanged) {
        free(world, engine, one, 1, 10, 1);
    }
    world.on(2, || engine.cpu_online());
    world.interrupted();
    drop(engine.flush_tables(one, tables()));
    assert_eq!(
        world.interrupted(),
        [0; 0],
        "it is in the set, which the request does not read"
    );
    let walk = world.on(2, || engine.walk(one));
    world.masked.set(false);
    drop(engine.flush_tables(one, tables()));
    assert_eq!(world.interrupted(), [2]);
    world.on(2, || drop(walk));
    drop(engine.flush_tables(one, tables()));
    assert_eq!(
        world.interrupted(),
        [0; 0],
        "that it was registered once costs nothing more"
    );
}

#[test]
fn walk_counts_restart_after_each_decision() {
    let (world, engine) = world(ADAPTIVE, 4);
    let one = space(engine, 1);
    free(world, engine, one, 16, 10, 200);
    assert!(!world.saw(|event| *event == Event::WalksChanged));
    free(world, engine, one, 16, 10, 1);
    assert!(world.saw(|event| *event == Event::WalksChanged));
}

#[test]
fn mode_change_honours_both_modes_and_is_exclusive() {
    let (world, engine) = world(ADAPTIVE, 4);
    let one = space(engine, 1);
    free(world, engine, one, 15, 10, 1);
    world.events.take();
    // Of the last free's interrupts, the first is for its walker, the second for the change.
    world.on(1, || drop(engine.walk(one)));
    *world.on_answer.borrow_mut() = Some(Box::new(move || {
        *world.on_answer.borrow_mut() = Some(Box::new(move || {
            let frees = || world.on(2, || drop(engine.flush_tables(one, tables())));
            world.interrupted();
            // A walk that begins now is interrupted, and so is one that continues later.
            let walk = world.on(3, || engine.walk(one));
            world.masked.set(false);
            frees();
            assert_eq!(world.interrupted(), [3]);
            world.on(3, || drop(walk));
            // However rare frees are, the change is not reverted before it is complete.
            for _ in 0..40 {
                world.now.set(world.now.get() + 1_000_000);
                frees();
            }
            let later = world.on(3, || engine.walk(one));
            core::mem::forget(later);
            world.masked.set(false);
        }));
    }));
    drop(engine.flush_tables(one, tables()));
    let changes = world.events.take();
    let changes = changes.iter().filter(|event| **event == Event::WalksChanged).count();
    assert_eq!(changes, 1);
    world.interrupted();
    drop(engine.flush_tables(one, tables()));
    assert_eq!(world.interrupted(), [3], "its walk goes on");
}

#[test]
fn registered_walker_is_interrupted_during_the_mode_change() {
    let (world, engine) = world(ADAPTIVE, 4);
    let one = space(engine, 1);
    free(world, engine, one, 15, 10, 1);
    world.on(1, || drop(engine.walk(one)));
    world.interrupted();
    // The first interrupt of the last free is for its walker. The next pin is for the change, of which no CPU has been
    // notified yet.
    *world.on_answer.borrow_mut() = Some(Box::new(move || {
        world.on(3, || drop(engine.walk(one)));
        *world.on_pin.borrow_mut() = Some(Box::new(move || {
            world.interrupted();
            world.on(2, || drop(engine.flush_tables(one, tables())));
            assert_eq!(world.interrupted(), [3]);
        }));
    }));
    drop(engine.flush_tables(one, tables()));
    assert!(world.saw(|event| *event == Event::WalksChanged));
    assert_eq!(world.interrupted(), [1, 2, 3], "for the change");
}

#[test]
fn tables_are_flushed_without_walkers() {
    let design = Policy {
        walkers: Walkers::None,
        ..Policy::IPI
    };
    let (world, engine) = world(design, 3);
    let one = space(engine, 1);
    run(world, engine, 0..2, one);
    let before = world.invalidations.get();
    drop(engine.flush_tables(one, tables()));
    assert_eq!(world.interrupted(), [1]);
    assert_eq!(world.invalidations.get(), before + 2, "on CPU 1 and here");
}
