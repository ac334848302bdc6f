//! Which CPUs are targets, and what a target does if the space has changed since.

use super::{World, flush, run, space, tables, world};
use shootdown::{Ack, Departure, Design, Errata, Event, Machine, Order, Policy, Range, Requests, Tags, Targets};

#[test]
fn targets_all_interrupts_every_cpu() {
    for requests in [Requests::Log, Requests::PerRequest] {
        let design = Policy {
            targets: Targets::All,
            requests,
            ..Policy::IPI
        };
        let (world, engine) = world(design, 3);
        let one = space(engine, 1);
        run(world, engine, 0..1, one);
        flush(engine, one);
        assert_eq!(world.interrupted(), [1, 2], "{requests:?}");
    }
}

#[test]
fn departed_cpu_stays_in_the_set_if_requests_can_trim_it() {
    let (asked, shared) = (
        Departure::WhenAsked { trim_ns: 1000 },
        Departure::WhenShared { looks: 16 },
    );
    for (departure, requests, stays) in [
        (Departure::AtSwitch, Requests::PerRequest, false),
        (Departure::AtSwitch, Requests::Log, false),
        (asked, Requests::PerRequest, true),
        (asked, Requests::PerCpu, false),
        (asked, Requests::Log, false),
        (shared, Requests::PerRequest, true),
        (shared, Requests::PerCpu, false),
        (shared, Requests::Log, true),
    ] {
        let (world, engine) = world(
            Policy {
                departure,
                requests,
                ..Policy::IPI
            },
            2,
        );
        let one = space(engine, 1);
        run(world, engine, 0..2, one);
        run(world, engine, 1..2, space(engine, 2));
        assert_eq!(one.cpus().contains(1), stays, "{departure:?}, {requests:?}");
    }
}

/// CPU 1 has left a space that CPU 0 runs. CPU 2 has it loaded in lazy TLB mode.
fn one_has_left_and_one_is_lazy(
    design: impl Into<Design>,
) -> (&'static World, &'static super::Sys, &'static super::OnHost) {
    let (world, engine) = world(design, 3);
    let one = space(engine, 1);
    run(world, engine, 0..3, one);
    run(world, engine, 1..2, space(engine, 2));
    world.on(2, || engine.enter_lazy());
    world.interrupted();
    (world, engine, one)
}

#[test]
fn trimming_skips_lazy_cpus() {
    for (departure, requests) in [
        (Departure::WhenShared { looks: 1 }, Requests::Log),
        (Departure::WhenShared { looks: 1 }, Requests::PerRequest),
        (Departure::WhenAsked { trim_ns: 10 }, Requests::PerRequest),
    ] {
        let (world, engine, one) = one_has_left_and_one_is_lazy(Policy {
            departure,
            requests,
            ..Policy::IPI
        });
        if matches!(departure, Departure::WhenAsked { .. }) {
            flush(engine, one);
            assert_eq!(world.interrupted(), [], "the first look only says when");
            world.now.set(10);
        }
        flush(engine, one);
        assert_eq!(world.interrupted(), [1], "{departure:?}, {requests:?}");
        assert!(!one.cpus().contains(1) && one.cpus().contains(2));
    }
}

#[test]
fn dispatched_flush_trims_unless_posted() {
    for (requests, asks) in [(Requests::PerRequest, true), (Requests::Log, false)] {
        let (world, engine, one) = one_has_left_and_one_is_lazy(Policy {
            departure: Departure::WhenShared { looks: 1 },
            requests,
            ..Policy::IPI
        });
        let _done = engine.dispatch(one, Range::page(0x1000)).wait();
        assert_eq!(world.interrupted() == [1], asks, "{requests:?}");
        assert_eq!(one.cpus().contains(1), !asks);
    }
}

/// Promotes at once, when CPU 2's window is open.
const HYBRID: Policy = Policy {
    tags: Tags::Hybrid { promote_at: 2 },
    consider_window_ns: 1,
    ..Policy::BROADCAST
};

/// CPU 2's window opens, and no other's.
fn open_window(world: &World) {
    world.now.set(world.now.get().next_multiple_of(32) + 30);
}

/// Begins to promote the space, on CPU 2, while its window is open.
fn promote(world: &'static World, engine: &'static super::Sys, one: &'static super::OnHost) {
    open_window(world);
    world.on(2, || flush(engine, one));
    assert!(one.system_tag().is_some());
}

#[test]
fn target_adopts_the_new_tag_from_any_generation() {
    for requests in [Requests::PerRequest, Requests::Log] {
        let (world, engine) = world(Policy { requests, ..HYBRID }, 3);
        let one = space(engine, 1);
        run(world, engine, 0..3, one);
        // CPU 0 has read that the space is on slots, and looks for its targets.
        *world.on_target.borrow_mut() = Some(Box::new(move || promote(world, engine, one)));
        flush(engine, one);
        assert!(one.system_tag().is_some(), "it was promoted meanwhile");
        for cpu in 0..3 {
            let is_on_tag = world.on(cpu, || engine.user_access_ok(one));
            assert!(is_on_tag, "CPU {cpu}, {requests:?}");
        }
    }
}

#[test]
fn work_overlapping_a_broadcast_precedes_its_sync() {
    for (errata, issued, interrupted) in [
        (Errata::NONE, 1, [].as_slice()),
        (
            Errata {
                repeat: true,
                ..Errata::NONE
            },
            2,
            &[],
        ),
        (
            Errata {
                interrupt_too: true,
                ..Errata::NONE
            },
            1,
            &[1, 2],
        ),
    ] {
        let design = Policy {
            order: Order::Concurrent,
            ..HYBRID
        }
        .on(Machine {
            errata,
            ..Machine::PCID
        });
        let (world, engine) = world(design, 3);
        let one = space(engine, 1);
        run(world, engine, 0..3, one);
        promote(world, engine, one);
        world.now.set(0);
        (0..3).for_each(|_| flush(engine, one));
        world.interrupted();
        world.events.take();
        world.broadcasts.set(0);
        let synchronised = || world.synchronised.get();
        let before = synchronised();
        let (_done, meanwhile) = engine.flush_while(one, Range::page(0x1000), || synchronised() - before);
        assert_eq!(
            (world.broadcasts.get(), world.interrupted().as_slice()),
            (issued, interrupted)
        );
        assert_eq!(synchronised() - before, issued, "{errata:?}");
        // If it takes more than one synchronisation, everything is complete by then.
        assert_eq!(meanwhile, if errata == Errata::NONE { 0 } else { issued });
        assert!(world.saw(|event| matches!(event, Event::Broadcast { instructions } if *instructions == issued)));
    }
}

#[test]
fn user_access_is_refused_between_early_ack_and_invalidation() {
    for requests in [Requests::PerRequest, Requests::Log] {
        for range in [Range::page(0x1000), Range::WHOLE, tables()] {
            let (world, engine) = world(
                Policy {
                    ack: Ack::Early,
                    requests,
                    ..Policy::IPI
                },
                2,
            );
            let one = space(engine, 1);
            run(world, engine, 0..2, one);
            *world.on_invalidation.borrow_mut() = Some(Box::new(move || {
                assert!(!engine.user_access_ok(one), "CPU {}, {requests:?}", world.cpu.get());
            }));
            for _ in 0..3 {
                let before = world.invalidations.get();
                let _done = engine.flush(one, range);
                assert!(world.invalidations.get() >= before + 2, "both invalidate");
                (0..2).for_each(|cpu| assert!(world.on(cpu, || engine.user_access_ok(one))));
            }
        }
    }
}

#[test]
fn unlimited_trim_period_never_trims() {
    let design = Policy {
        departure: Departure::WhenAsked { trim_ns: u64::MAX },
        ..Policy::IPI
    };
    let (world, engine) = world(design, 3);
    let one = space(engine, 1);
    run(world, engine, 0..3, one);
    world.on(2, || engine.switch_to_kernel());
    world.now.set(1000);
    for _ in 0..3 {
        flush(engine, one);
        assert_eq!(world.interrupted(), [1]);
        world.now.set(world.now.get() + 1_000_000_000);
    }
}
