//! The common flush: which policies have one, what it does in which order, and what it leaves to the general path.

mod full_queue;

use crate::Space;
use crate::adaptive::costs::{Costs, Interrupts};
use crate::cpu::state::POSTED;
use crate::cpuset::{CpuSet, Others};
use crate::design::{Departure, Machine, Order, Policy, Targets, Wait};
use crate::facade::{Native, Word};
use crate::flush::Flush;
use crate::flush::state::Straight;
use crate::flush::straight::Common;
use crate::hooks::{Broadcast, Event, Root, Tag};
use crate::range::{Range, Stride};
use crate::space::Mode;
use crate::testing::interleave;
use crate::testing::mock_kernel::{
    BROADCAST, BROADCASTS, DESIGN, EVENTS, FAILS, InWorld, ON_WAIT, PINS, SEEN, STEPS, Seen, Sys, World, all_answer,
    many, on,
};
use crate::transport::request::{Asked, Request, TAKEN_BACK};
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec::Vec;

use Seen::{BeforeIpi, Here, Sent, Synchronised, Waited};

const POSTS: Policy = Policy {
    stuck_ns: 0,
    sample_one_in: 1 << 20,
    ..Policy::ADAPTIVE
};

/// So many CPUs that run one space, where a broadcast costs more than to interrupt one of them.
fn running(policy: Policy, cpus: usize) -> (&'static Sys, InWorld) {
    let (engine, space) = many(policy, cpus);
    let costs = Costs {
        broadcast_from: 2,
        ..Costs::PRIORS
    };
    engine.costs.store(&costs, Interrupts::of(&costs));
    (engine, space)
}

/// What is seen of a flush of `range` by CPU 0; the others answer at the first look.
fn flush(engine: &'static Sys, space: &Space<World, 1>, range: Range) -> Vec<Seen> {
    SEEN.take();
    EVENTS.take();
    ON_WAIT.set(Some(Box::new(|_| all_answer(engine))));
    let _done = engine.flush(space, range);
    ON_WAIT.set(None);
    assert_eq!(PINS.get(), 0, "as often unpinned as pinned");
    SEEN.take()
}

#[test]
fn wait_of_the_common_flush_serves_requests_unless_the_handler_does() {
    for wait in [Wait::SpinServing, Wait::Spin] {
        let (engine, space) = running(Policy { wait, ..DESIGN }, 2);
        let asked: &'static Request<World> = Box::leak(Box::new(Request::sending()));
        asked.write(&Asked::CATCH_UP.encode(0, &Range::WHOLE), 0, 0);
        assert!(engine.cpus[0].queue.put(1, asked).is_some());
        asked.sent(1);
        let mut looks = 0;
        ON_WAIT.set(Some(Box::new(move |_| {
            looks += 1;
            if asked.is_complete() || looks > 3 {
                all_answer(engine);
            }
        })));
        let _done = engine.flush(space, Range::page(0x1000));
        ON_WAIT.set(None);
        assert_eq!(asked.is_complete(), wait == Wait::SpinServing);
    }
}

#[test]
fn straight_path_exists_only_for_simple_policies() {
    for (policy, straight) in [
        (Policy::IPI, Straight::Descriptor),
        (Policy::PREEMPTIBLE, Straight::Descriptor),
        (Policy::ADAPTIVE, Straight::Post),
        (Policy::IPI_PER_CPU, Straight::Never),
        (Policy::IPI_TRIM, Straight::Never),
        (Policy::BROADCAST, Straight::Never),
        (Policy::ARM_BROADCAST, Straight::RollOver),
        (Policy::NONE, Straight::Control),
        (
            Policy {
                departure: Departure::WhenShared { looks: 2 },
                ..Policy::IPI
            },
            Straight::Never,
        ),
        (
            Policy {
                targets: Targets::All,
                ..Policy::IPI
            },
            Straight::Never,
        ),
    ] {
        assert_eq!(Straight::of(&policy), straight, "{policy:?}");
    }
}

#[test]
fn set_reports_its_only_other_member() {
    let set = CpuSet::<Native, 9>::new();
    let is = |cpu, other: Option<usize>| match (set.others(cpu), other) {
        (Others::None, None) => true,
        (Others::One(found), Some(other)) => found == other,
        _ => false,
    };
    assert!(is(3, None));
    set.join(3);
    assert!(is(3, None) && is(70, Some(3)));
    set.join(500);
    assert!(is(3, Some(500)) && is(500, Some(3)));
    assert!(matches!(set.others(70), Others::More));
    set.leave(500);
    set.join(5);
    assert!(matches!(set.others(70), Others::More));
    assert!(is(5, Some(3)));
    // As CPU 5, but in another word.
    set.leave(3);
    set.join(64 + 5);
    assert!(is(5, Some(64 + 5)));
}

#[test]
fn local_flush_follows_the_policys_order() {
    for (policy, order, expected) in [
        (DESIGN, Order::Serial, [Here, BeforeIpi, Sent([1].into()), Waited, Here]),
        (
            DESIGN,
            Order::Concurrent,
            [BeforeIpi, Sent([1].into()), Here, Waited, Here],
        ),
        (POSTS, Order::Serial, [Here, BeforeIpi, Sent([1].into()), Waited, Here]),
        (
            POSTS,
            Order::Concurrent,
            [BeforeIpi, Sent([1].into()), Here, Waited, Here],
        ),
    ] {
        let (engine, space) = running(Policy { order, ..policy }, 2);
        for _ in 0..2 {
            assert_eq!(flush(engine, space, Range::page(0x1000)), expected, "{order:?}");
            let asked = Event::Interrupted { sent: 1, targets: 1 };
            EVENTS.with_borrow(|events| assert!(events.contains(&asked), "{events:?}"));
        }
    }
}

#[test]
fn sole_cpu_of_a_space_sends_no_request() {
    for policy in [DESIGN, POSTS] {
        let (engine, space) = running(policy, 1);
        assert_eq!(flush(engine, space, Range::page(0x1000)), [Here]);
        EVENTS.with_borrow(|events| assert!(events.contains(&Event::LocalOnly), "{events:?}"));
        // Where it is not loaded its slot is left behind.
        engine.switch_to_kernel();
        assert_eq!(flush(engine, space, Range::page(0x1000)), []);
    }
}

#[test]
fn panic_in_send_ipi_waits_for_the_stack_request() {
    let (engine, space) = running(DESIGN, 2);
    SEEN.take();
    ON_WAIT.set(Some(Box::new(|_| all_answer(engine))));
    FAILS.set(true);
    let panicked = catch_unwind(AssertUnwindSafe(|| engine.flush(space, Range::page(0x1000)))).is_err();
    ON_WAIT.set(None);
    assert!(panicked);
    assert_eq!(SEEN.take(), [Here, BeforeIpi, Sent([1].into()), Waited, Here]);
}

#[test]
fn target_going_offline_is_not_waited_for() {
    for policy in [DESIGN, POSTS] {
        for operation in 0..40 {
            let (engine, space) = running(policy, 2);
            interleave::after(operation, || on(1, || engine.cpu_offline()));
            let seen = flush(engine, space, Range::page(0x1000));
            interleave::never();
            assert!(
                seen.iter().filter(|seen| **seen == Waited).count() <= 1,
                "{operation}: {seen:?}"
            );
        }
    }
}

#[test]
fn target_with_a_pending_ipi_is_not_interrupted_again() {
    // Another CPU's request is posted there already.
    for (policy, put) in [
        (DESIGN, (|engine| put_nothing(engine)) as fn(&Sys)),
        (POSTS, |engine| engine.cpus[1].post.store(POSTED, Ordering::Relaxed)),
    ] {
        let (engine, space) = running(policy, 2);
        put(engine);
        let seen = flush(engine, space, Range::page(0x1000));
        assert!(!seen.iter().any(|seen| matches!(seen, Sent(_))), "{seen:?}");
        let asked = Event::Interrupted { sent: 0, targets: 1 };
        EVENTS.with_borrow(|events| assert!(events.contains(&asked), "{events:?}"));
        // The sender below may still have to send the interrupt, so this one sends it.
        put(engine);
        let _owing = engine.cpus[0].own.sending.set();
        assert!(flush(engine, space, Range::page(0x1000)).contains(&Sent([1].into())));
    }
}

/// A request that its requester has taken back stands in the queue of CPU 1.
fn put_nothing(engine: &Sys) {
    let queue = &engine.cpus[1].queue;
    let slot = queue.claim(1, TAKEN_BACK).expect("there is room");
    queue.publish_slot(slot);
}

#[test]
fn only_spinning_waiters_are_pinned() {
    for (policy, wait, pins) in [
        (DESIGN, Wait::SpinServing, 1),
        (DESIGN, Wait::Preemptible, 0),
        (POSTS, Wait::SpinServing, 1),
        (POSTS, Wait::Preemptible, 0),
    ] {
        let (engine, space) = running(Policy { wait, ..policy }, 2);
        ON_WAIT.set(Some(Box::new(move |_| {
            assert_eq!(PINS.get(), pins, "{wait:?}");
            all_answer(engine);
        })));
        let _done = engine.flush(space, Range::page(0x1000));
        ON_WAIT.set(None);
        assert_eq!(PINS.get(), 0);
    }
}

#[test]
#[cfg(debug_assertions)]
fn remote_flush_in_the_handler_is_refused() {
    // Two targets take the general path.
    for (policy, cpus) in [(DESIGN, 2), (POSTS, 2), (DESIGN, 3), (POSTS, 3)] {
        let (engine, space) = running(policy, cpus);
        ON_WAIT.set(Some(Box::new(|_| all_answer(engine))));
        let _serving = engine.cpus[0].own.serving.set();
        let refused = catch_unwind(AssertUnwindSafe(|| engine.flush(space, Range::page(0x1000)))).is_err();
        ON_WAIT.set(None);
        assert!(refused, "{cpus} CPUs");
    }
}

#[test]
fn cheaper_broadcast_takes_the_general_path() {
    let is_common = |engine: &Sys, space: InWorld| engine.is_common_target(space, 1);
    let (engine, space) = running(POSTS, 2);
    assert!(is_common(engine, space));
    let costs = Costs {
        broadcast_from: 1,
        ..Costs::PRIORS
    };
    engine.costs.store(&costs, Interrupts::of(&costs));
    assert!(!is_common(engine, space));
    let (engine, space) = running(DESIGN, 2);
    engine.costs.store(&costs, Interrupts::of(&costs));
    assert!(is_common(engine, space));
    on(1, || engine.switch_to_kernel());
    assert!(!is_common(engine, space));
}

#[test]
fn policy_none_takes_no_generation() {
    for order in [Order::Serial, Order::Concurrent] {
        let (engine, space) = running(Policy { order, ..Policy::NONE }, 2);
        let generation = || space.log.generation.load(Ordering::Relaxed);
        let (before, range) = (generation(), Range::page(0x1000));
        assert_eq!(flush(engine, space, range), []);
        let _done = engine.dispatch(space, range).wait();
        let _done = engine.dispatch_with_walkers(space, range).wait();
        let (_done, result) = engine.flush_while(space, range, || 7);
        assert_eq!((result, generation()), (7, before));
        assert_eq!(SEEN.take(), []);
    }
}

/// The kind of a flush of `range` by CPU 0, as its `generation`-th. If the tag rolls over, such a flush.
fn kind_under_tag(engine: &Sys, space: InWorld, range: Range, generation: u64) -> Option<(&'static str, Tag)> {
    let mode = space.mode.0.load(Ordering::Relaxed);
    if let Mode::Rolled { tag, .. } = Mode::unpack(mode) {
        SEEN.take();
        let done = engine.flush_leaf_under_tag(space, &range);
        return match (done.is_some(), &SEEN.take()[..]) {
            (false, []) => None,
            (true, [Here]) => Some(("here", tag)),
            (true, [Synchronised]) => Some(("broadcast", tag)),
            other => panic!("{other:?}"),
        };
    }
    let flush = Flush {
        space,
        range,
        generation,
        mode,
        secondary: 0,
    };
    match engine.common_kind(&flush, 0)? {
        Common::Broadcast(tag) => Some(("broadcast", tag)),
        Common::Alone | Common::One(..) => panic!("the space is not on slots"),
    }
}

const ROLLS: Machine = Machine {
    tag_limit: 256,
    ..Machine::PCID
};

#[test]
fn one_page_under_a_tag_is_common_where_one_broadcast_is_enough() {
    let page = Range::page(0x1000);
    for (policy, cpus, kind) in [
        (Policy::ARM_BROADCAST, 1, Some("broadcast")),
        (Policy::ARM_BROADCAST, 2, Some("broadcast")),
        (Policy::ARM_LOCAL_FIRST, 1, Some("here")),
        (Policy::ARM_LOCAL_FIRST, 2, Some("broadcast")),
        (Policy::ARM_IPI, 2, None),
    ] {
        let (engine, space) = many(policy.on(ROLLS), cpus);
        assert_eq!(
            kind_under_tag(engine, space, page, 1),
            None,
            "the processor does not broadcast"
        );
        BROADCASTS.set(true);
        let found = kind_under_tag(engine, space, page, 1);
        assert_eq!(found.map(|(kind, _)| kind), kind, "{policy:?}");
        assert!(found.is_none_or(|(_, tag)| Some(tag) == space.system_tag()));
        for other in [
            page.with_tables(),
            Range::pages(0x1000, 0x3000, Stride::Size4K),
            Range::pages(0, 1 << 30, Stride::Size1G),
            Range::WHOLE,
        ] {
            assert_eq!(kind_under_tag(engine, space, other, 1), None, "{other:?}");
        }
        let large = Range::pages(0, 1 << 21, Stride::Size2M);
        assert_eq!(kind_under_tag(engine, space, large, 1), found);
        BROADCASTS.set(false);
    }
}

#[test]
fn workaround_or_split_tags_take_the_general_path_under_a_tag() {
    BROADCASTS.set(true);
    let with = |change: fn(&mut Machine)| {
        let mut machine = ROLLS;
        change(&mut machine);
        let (engine, space) = many(Policy::ARM_BROADCAST.on(machine), 2);
        kind_under_tag(engine, space, Range::page(0x1000), 1)
    };
    assert!(with(|_| {}).is_some());
    for change in [
        (|machine| machine.split = true) as fn(&mut Machine),
        |machine| machine.errata.never_broadcast = true,
        |machine| machine.errata.interrupt_too = true,
        |machine| machine.errata.repeat = true,
    ] {
        assert_eq!(with(change), None);
    }
    BROADCASTS.set(false);
}

#[test]
fn promoted_space_is_common_unless_it_can_lose_its_tag_or_its_mode_changes() {
    BROADCASTS.set(true);
    let tag = Tag(40);
    let at = |policy: Policy, mode: Mode| {
        let (engine, space) = running(policy, 2);
        space.mode.0.store(mode.pack(), Ordering::Relaxed);
        let kind = kind_under_tag(engine, space, Range::page(0x1000), 1);
        space.mode.0.store(Mode::PerCpu.pack(), Ordering::Relaxed);
        kind
    };
    assert_eq!(at(Policy::BROADCAST, Mode::System(tag)), Some(("broadcast", tag)));
    assert_eq!(at(Policy::BROADCAST, Mode::Transition(tag)), None);
    assert_eq!(at(Policy::BROADCAST, Mode::Demoting(tag)), None);
    assert_eq!(at(POSTS, Mode::System(tag)), None);
    BROADCASTS.set(false);
}

#[test]
fn broadcast_of_one_page_is_published_issued_and_synchronised_once() {
    BROADCASTS.set(true);
    let (engine, space) = many(Policy::ARM_BROADCAST.on(ROLLS), 2);
    let tag = space.system_tag().expect("it runs");
    STEPS.take();
    BROADCAST.take();
    assert_eq!(flush(engine, space, Range::page(0x1234)), [Synchronised]);
    assert_eq!(STEPS.take(), ["published", "broadcast"]);
    let page = Broadcast::Pages {
        address: 0x1000,
        stride: Stride::Size4K,
        count: 1,
        tag,
        leaf_only: true,
    };
    assert_eq!(BROADCAST.take(), [page]);
    EVENTS.with_borrow(|events| assert_eq!(events.last(), Some(&Event::Broadcast { instructions: 1 })));
    // A space of one CPU, where the policy looks for others first.
    let (engine, space) = many(Policy::ARM_LOCAL_FIRST.on(ROLLS), 1);
    assert_eq!(flush(engine, space, Range::page(0x1234)), [Here]);
    assert_eq!(BROADCAST.take(), []);
    EVENTS.with_borrow(|events| assert_eq!(events.last(), Some(&Event::LocalOnly)));
    BROADCASTS.set(false);
}

#[test]
fn flush_under_a_roll_over_tag_takes_no_generation() {
    BROADCASTS.set(true);
    for policy in [Policy::ARM_BROADCAST, Policy::ARM_LOCAL_FIRST, Policy::ARM_IPI] {
        for cpus in [1, 2] {
            let (engine, space) = many(policy.on(ROLLS), cpus);
            let generation = || space.log.generation.load(Ordering::Relaxed);
            let before = generation();
            for range in [Range::page(0x1000), Range::page(0x1000).with_tables(), Range::WHOLE] {
                STEPS.take();
                let seen = flush(engine, space, range);
                assert!(!seen.is_empty(), "{range:?} is invalidated");
                assert_eq!(STEPS.take().first(), Some(&"published"));
            }
            assert_eq!(generation(), before, "{policy:?}");
            // Not loaded yet: no tag, so the generation is all that a CPU will find.
            let never = engine.space(Root(0x9000));
            let before = never.log.generation.load(Ordering::Relaxed);
            flush(engine, &never, Range::page(0x1000));
            assert_eq!(never.log.generation.load(Ordering::Relaxed), before + 1);
        }
    }
    BROADCASTS.set(false);
}

#[test]
fn flush_of_a_space_that_no_cpu_runs_is_kept_for_the_next_only_with_a_log() {
    for (policy, logged) in [(DESIGN, false), (POSTS, true)] {
        let (engine, space) = running(policy, 1);
        engine.switch_to_kernel();
        flush(engine, space, Range::page(0x5000));
        let generation = space.log.generation.load(Ordering::Relaxed);
        assert_eq!(space.log.read(generation), logged.then_some(Range::page(0x5000)));
    }
}
