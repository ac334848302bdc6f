//! CPUs that have left a space, and deferred frames.

use crate::{flush, run, space, world};
use shootdown::{Departure, Policy, Range, Requests, Unmapped};

#[test]
fn departed_cpus_are_trimmed_once_per_period() {
    let design = Policy {
        departure: Departure::WhenAsked { trim_ns: 100 },
        ..Policy::IPI
    };
    let (world, engine) = world(design, 4);
    let (one, other) = (space(engine, 1), space(engine, 2));
    run(world, engine, 0..4, one);
    run(world, engine, 3..4, other);
    let at = |now, expected: &[usize]| {
        world.now.set(now);
        flush(engine, one);
        assert_eq!(world.interrupted(), expected, "at {now} ns");
    };
    at(1000, &[1, 2]);
    at(1050, &[1, 2]);
    at(1099, &[1, 2]);
    at(1100, &[1, 2, 3]);
    at(1101, &[1, 2]);
    assert!(!one.cpus().contains(3), "it has left when it was asked");
    run(world, engine, 2..3, other);
    at(1199, &[1]);
    at(1200, &[1, 2]);
    assert!(!one.cpus().contains(2));
    // If no CPU has left, none is looked for, and the period does not begin.
    at(5000, &[1]);
    run(world, engine, 1..2, other);
    at(5001, &[1]);
    at(5002, &[]);
}

#[test]
fn departed_cpus_are_interrupted_after_enough_scans() {
    for requests in [Requests::PerRequest, Requests::Log] {
        let design = Policy {
            departure: Departure::WhenShared { looks: 3 },
            requests,
            ..Policy::IPI
        };
        let (world, engine) = world(design, 4);
        let (one, other) = (space(engine, 1), space(engine, 2));
        run(world, engine, 0..4, one);
        let ask = |expected: &[usize]| {
            flush(engine, one);
            assert_eq!(world.interrupted(), expected, "{requests:?}");
        };
        ask(&[1, 2, 3]);
        run(world, engine, 2..4, other);
        // Only the last CPU in the set leaves it at the switch.
        assert!(one.cpus().contains(2) && one.cpus().contains(3));
        ask(&[1]);
        ask(&[1]);
        // A dispatched request cannot ask them, where its descriptor is on the requester's stack.
        if requests == Requests::Log {
            let token = engine.dispatch(one, Range::page(0x1000));
            assert_eq!(world.interrupted(), [1]);
            let _done = token.wait();
        }
        ask(&[1, 2, 3]);
        assert!(!one.cpus().contains(2) && !one.cpus().contains(3));
        ask(&[1]);
        // Scanned as often, but not since they were last asked.
        run(world, engine, 3..4, one);
        run(world, engine, 3..4, other);
        ask(&[1]);
        ask(&[1]);
        ask(&[1, 3]);
        // No other CPU has it: it leaves at the switch.
        run(world, engine, 1..2, other);
        world.on(0, || flush(engine, one));
        assert!(one.cpus().contains(1), "CPU 0 has it too");
        run(world, engine, 0..1, other);
        run(world, engine, 1..2, one);
        run(world, engine, 1..2, other);
        assert!(one.cpus().contains(1), "CPU 0 is in the set still");
        let (alone, rest) = (space(engine, 3), space(engine, 4));
        run(world, engine, 2..3, alone);
        run(world, engine, 2..3, rest);
        assert!(alone.cpus().is_empty());
    }
}

#[test]
fn frames_beyond_the_deferral_limit_are_flushed_at_once() {
    let design = Policy {
        defer_frames: 8,
        ..Policy::DEFERRED
    };
    let (world, engine) = world(design, 3);
    let one = space(engine, 1);
    run(world, engine, 0..2, one);
    let later = |frames| engine.flush_later(one, Range::page(0x1000), frames);
    let Unmapped::Later(first) = later(5) else {
        panic!("5 of 8")
    };
    let Unmapped::Later(second) = later(3) else {
        panic!("8 of 8")
    };
    assert_eq!(world.interrupted(), [0; 0]);
    assert!(matches!(later(1), Unmapped::Now(_)));
    assert_eq!(world.interrupted(), [1]);
    assert!(
        world.on(1, || matches!(later(8), Unmapped::Later(_))),
        "each CPU has a limit of its own"
    );
    let tick = |cpu| world.on(cpu, || engine.tick());
    let over = || {
        (0..2).for_each(tick);
        engine.deferrals_over()
    };
    let _begins_the_next = over();
    let over = over();
    assert!(engine.release(first, &over).is_ok());
    let Unmapped::Later(_) = later(5) else {
        panic!("5 came back")
    };
    assert!(matches!(later(1), Unmapped::Now(_)), "and no more");
    assert!(engine.release(second, &over).is_ok());
    assert!(matches!(later(3), Unmapped::Later(_)));
}

#[test]
fn epoch_ends_once_every_cpu_has_ticked_in_it() {
    let (world, engine) = world(Policy::DEFERRED, 3);
    let one = space(engine, 1);
    run(world, engine, 0..3, one);
    let tick = |cpu| world.on(cpu, || engine.tick());
    let later = || match engine.flush_later(one, Range::page(0x1000), 1) {
        Unmapped::Later(deferral) => deferral,
        Unmapped::Now(_) => panic!("it interrupts no CPU"),
    };
    let first = later();
    // Every CPU has passed the previous epoch: the one that `first` waits for begins.
    (0..3).for_each(tick);
    let first = engine
        .release(first, &engine.deferrals_over())
        .expect_err("it has just begun");
    let before = world.invalidations.get();
    tick(0);
    tick(1);
    tick(1);
    assert_eq!(
        world.invalidations.get(),
        before + 1,
        "CPU 1, once; CPU 0 has flushed what it unmapped"
    );
    // An unmap that is deferred after only some CPUs have ticked waits for the next epoch.
    let second = later();
    let first = engine
        .release(first, &engine.deferrals_over())
        .expect_err("CPU 2 has not ticked");
    assert_eq!(
        later(),
        second,
        "what waits for an epoch that has not begun waits for the same"
    );
    tick(2);
    let over = engine.deferrals_over();
    assert!(engine.release(first, &over).is_ok());
    let second = engine
        .release(second, &over)
        .expect_err("CPU 1 ticked before it was made");
    (0..3).for_each(tick);
    assert!(engine.release(second, &engine.deferrals_over()).is_ok());
}

#[test]
fn tickless_cpu_is_interrupted_until_its_tick_resumes() {
    let (world, engine) = world(Policy::DEFERRED, 3);
    let one = space(engine, 1);
    run(world, engine, 0..3, one);
    let later = || engine.flush_later(one, Range::page(0x1000), 1);
    world.on(2, || engine.tick_resumes());
    world.on(2, || engine.tick_stops());
    assert!(matches!(later(), Unmapped::Now(_)), "it runs the space");
    assert_eq!(world.interrupted(), [1, 2]);
    world.on(2, || engine.tick_resumes());
    let Unmapped::Later(mut waiting) = later() else {
        panic!("it has ticks again")
    };
    let tick = |cpu| world.on(cpu, || engine.tick());
    for _ in 0..3 {
        (0..2).for_each(tick);
        waiting = engine
            .release(waiting, &engine.deferrals_over())
            .expect_err("it has not ticked");
    }
    for _ in 0..2 {
        (0..3).for_each(tick);
        let _ = engine.deferrals_over();
    }
    assert!(engine.release(waiting, &engine.deferrals_over()).is_ok());
    // On another space it is not concerned, and is not waited for either.
    world.on(2, || engine.switch_to_kernel());
    world.on(2, || engine.tick_stops());
    let other = space(engine, 2);
    run(world, engine, 2..3, other);
    let Unmapped::Later(waiting) = later() else {
        panic!("no CPU without ticks runs it")
    };
    for _ in 0..2 {
        (0..2).for_each(tick);
        let _ = engine.deferrals_over();
    }
    assert!(engine.release(waiting, &engine.deferrals_over()).is_ok());
    assert_eq!(world.interrupted(), [0; 0]);
}

#[test]
fn redundant_tick_resume_does_not_count_as_a_flush() {
    let (world, engine) = world(Policy::DEFERRED, 2);
    let one = space(engine, 1);
    run(world, engine, 0..2, one);
    let Unmapped::Later(waiting) = engine.flush_later(one, Range::page(0x1000), 1) else {
        panic!("it interrupts no CPU")
    };
    let _begins_the_next = engine.deferrals_over();
    world.on(1, || engine.tick_resumes());
    engine.tick();
    let waiting = engine.release(waiting, &engine.deferrals_over());
    assert!(waiting.is_err(), "CPU 1 uses the page");
}

#[test]
fn cpu_coming_online_has_ticks() {
    let (world, engine) = world(Policy::DEFERRED, 2);
    let one = space(engine, 1);
    world.on(1, || engine.tick_stops());
    world.on(1, || engine.cpu_offline());
    world.on(1, || engine.cpu_online());
    run(world, engine, 0..2, one);
    let Unmapped::Later(mut waiting) = engine.flush_later(one, Range::page(0x1000), 1) else {
        panic!("every CPU has ticks")
    };
    for _ in 0..3 {
        engine.tick();
        waiting = engine
            .release(waiting, &engine.deferrals_over())
            .expect_err("CPU 1 has not ticked");
    }
}

#[test]
fn interrupt_and_switch_flush_deferrals_like_a_tick() {
    for switches in [false, true] {
        let (world, engine) = world(Policy::DEFERRED, 2);
        let (one, other) = (space(engine, 1), space(engine, 2));
        run(world, engine, 0..2, one);
        let Unmapped::Later(waiting) = engine.flush_later(one, Range::page(0x1000), 1) else {
            panic!("every CPU has ticks")
        };
        let _begins_the_next = engine.deferrals_over();
        match switches {
            true => run(world, engine, 1..2, other),
            false => flush(engine, one),
        }
        engine.tick();
        assert!(engine.release(waiting, &engine.deferrals_over()).is_ok());
    }
}
