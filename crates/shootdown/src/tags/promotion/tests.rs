//! Another CPU promotes or ends the same space at every point; a space ends while a CPU is leaving it.

use super::*;
use crate::adaptive::costs::{Costs, Interrupts};
use crate::cpu::state::{PerCpu, State};
use crate::design::{Order, Reach, Requests, Tags};
use crate::engine::Storage;
use crate::hooks::{Root, Way};
use crate::tag_words;
use crate::testing::interleave::{self, InterleavedWord};
use crate::testing::mock_kernel::{
    AIMED, AIMED_AT, CLOCK, CPU, DESIGN, EVENTS, InWorld, ON_WAIT, SEEN, STEPS, Seen, Sys, World, all_answer, handle,
    on, three,
};
use crate::{Design, Machine, Policy};
use std::boxed::Box;
use std::vec::Vec;

/// Points at which another CPU intervenes.
const MOMENTS: u32 = 60;

/// Three CPUs that have a space on slots, and `tags` spare tags.
fn with_tags(tags: u32) -> (&'static Sys, InWorld) {
    three(
        Policy {
            tags: Tags::Hybrid { promote_at: 2 },
            ..DESIGN
        }
        .on(Machine {
            tag_limit: 1 + u32::from(DESIGN.slots) + tags,
            ..Machine::PCID
        }),
    )
}

/// Takes all remaining tags.
fn left(engine: &Sys) -> Vec<Tag> {
    engine.tags.reclaim(|| {});
    core::iter::from_fn(|| engine.tags.allocate()).collect()
}

#[test]
fn one_of_two_simultaneous_promotions_succeeds_without_leak() {
    for moment in 0..MOMENTS {
        let (engine, space) = with_tags(4);
        interleave::after(moment, move || on(1, || engine.promote(space)));
        engine.promote(space);
        interleave::never();
        let tag = space.system_tag().expect("it was promoted");
        let left = left(engine);
        assert!(
            left.len() == 3 && !left.contains(&tag),
            "at operation {moment}: {left:?}, {tag:?}"
        );
    }
}

#[test]
fn retired_space_is_not_promoted() {
    let (engine, space) = with_tags(1);
    (0..3).for_each(|cpu| on(cpu, || engine.switch_to_kernel()));
    let _end = engine.retire(space);
    // By a CPU that flushed it earlier and was preempted.
    engine.promote(space);
    assert_eq!(space.system_tag(), None);
    let _end = engine.retire(space);
    assert_eq!(left(engine).len(), 1);
}

#[test]
fn dirty_tags_are_read_before_the_broadcast_that_cleans_them() {
    let (engine, space) = with_tags(1);
    engine.promote(space);
    (0..3).for_each(|cpu| on(cpu, || engine.switch_to_kernel()));
    let _end = engine.retire(space);
    STEPS.take();
    assert!(engine.allocate_tag().is_some());
    assert_eq!(STEPS.take(), ["published", "broadcast"]);
}

#[test]
fn retiring_a_promoted_space_ends_the_tag_shortage() {
    let (engine, space) = with_tags(1);
    let other: InWorld = Box::leak(Box::new(engine.space(Root(2))));
    let short = || engine.tag_shortage.0.load(Ordering::Relaxed);
    engine.promote(space);
    engine.promote(other);
    assert_eq!((other.system_tag(), short()), (None, 1));
    (0..3).for_each(|cpu| on(cpu, || engine.switch_to_kernel()));
    let _end = engine.retire(space);
    assert_eq!(short(), 0);
    // Or when another promotion finds one.
    engine.tag_shortage.0.store(1, Ordering::Relaxed);
    engine.promote(other);
    assert!(other.system_tag().is_some() && short() == 0);
}

#[test]
fn space_retired_twice_frees_its_tag_once() {
    for moment in 0..MOMENTS {
        let (engine, space) = with_tags(1);
        let other: InWorld = Box::leak(Box::new(engine.space(Root(2))));
        engine.promote(space);
        (0..3).for_each(|cpu| on(cpu, || engine.switch_to_kernel()));
        interleave::after(moment, move || {
            on(1, || {
                let _end = engine.retire(space);
                // Its tag has another owner.
                engine.tags.reclaim(|| {});
                engine.promote(other);
            })
        });
        let _end = engine.retire(space);
        interleave::never();
        assert_eq!(space.system_tag(), None);
        let left = left(engine);
        assert_eq!(
            left.len(),
            usize::from(other.system_tag().is_none()),
            "at operation {moment}"
        );
    }
}

/// Ends the space; `on_wait` runs after each poll of a waiter. Returns the recorded hook calls.
fn retire(engine: &'static Sys, space: InWorld, on_wait: impl FnMut(u32) + 'static) -> Vec<Seen> {
    SEEN.take();
    ON_WAIT.set(Some(Box::new(on_wait)));
    let _end = engine.retire(space);
    ON_WAIT.set(None);
    SEEN.take()
}

/// Ends a space that CPU 2 leaves at the third request.
fn retire_while_one_stays(engine: &'static Sys, space: InWorld) -> Vec<Seen> {
    on(1, || engine.switch_to_kernel());
    let mut asked = 0;
    retire(engine, space, move |_| {
        asked += 1;
        if asked == 3 {
            on(2, || engine.switch_to_kernel());
        }
        all_answer(engine);
    })
}

/// The interrupts among the recorded calls.
fn interrupts(seen: &[Seen]) -> Vec<&Seen> {
    seen.iter().filter(|seen| matches!(seen, Seen::Sent(_))).collect()
}

#[test]
fn retire_interrupts_a_cpu_that_is_switching_away() {
    let (engine, space) = with_tags(1);
    (0..2).for_each(|cpu| on(cpu, || engine.switch_to_kernel()));
    // CPU 2 is in the middle of a switch, and still has the root loaded.
    engine.cpus[2].publish(State::switching(space.id + 1));
    let seen = retire(engine, space, move |_| {
        engine.cpus[2].publish(State::KERNEL);
        all_answer(engine);
        // And in the middle of the next switch, which does not involve this space.
        engine.cpus[2].publish(State::switching(space.id + 1));
    });
    assert_eq!(interrupts(&seen), [&Seen::Sent([2].into())]);
}

#[test]
fn retire_interrupts_a_cpu_again_that_answered_before_its_switch() {
    let (engine, space) = with_tags(1);
    (0..2).for_each(|cpu| on(cpu, || engine.switch_to_kernel()));
    let mut asked = 0;
    let seen = retire(engine, space, move |_| {
        asked += 1;
        if asked == 2 {
            // Its switch is over: only then can it be interrupted.
            engine.cpus[2].publish(State::KERNEL);
        }
        all_answer(engine);
        if asked == 1 {
            // It runs the space, and has answered. It then begins to switch to another: its state names that one, and
            // the root of this one is still loaded.
            engine.cpus[2].publish(State::switching(space.id + 1));
        }
    });
    assert_eq!(interrupts(&seen), [&Seen::Sent([2].into()), &Seen::Sent([2].into())]);
}

#[test]
fn retire_unloads_the_space_locally_after_migration() {
    let (engine, space) = with_tags(1);
    // CPU 0 sends a request to CPUs 1 and 2, which run it. Both answer. CPU 1 leaves, and the requester moves to CPU 2,
    // which has become lazy.
    on(0, || engine.switch_to_kernel());
    let seen = retire(engine, space, move |_| {
        all_answer(engine);
        on(1, || engine.switch_to_kernel());
        on(2, || engine.enter_lazy());
        CPU.set(2);
    });
    CPU.set(0);
    assert_eq!(engine.cpus[2].state().id(), 0);
    assert_eq!(
        interrupts(&seen),
        [&Seen::Sent([1, 2].into())],
        "it does not interrupt itself"
    );
}

#[test]
fn promotion_reports_a_cpu_stuck_in_a_switch() {
    let (engine, space) = three(Policy {
        tags: Tags::Hybrid { promote_at: 2 },
        stuck_ns: 10,
        ..DESIGN
    });
    engine.cpus[2].publish(State::switching(space.id));
    // The bound is set at the second poll, and exceeded at the 258th.
    CLOCK.set(std::vec![100, 0]);
    ON_WAIT.set(Some(Box::new(move |round| {
        if round == 300 {
            engine.cpus[2].publish(State::loaded(space.id, true));
        }
    })));
    SEEN.take();
    let _stragglers = engine.stragglers(space, 0, false);
    ON_WAIT.set(None);
    assert!(SEEN.take().contains(&Seen::Stuck(2)));
}

#[test]
fn no_report_without_a_late_cpu() {
    let (engine, space) = three(Policy { stuck_ns: 0, ..DESIGN });
    let seen = retire_while_one_stays(engine, space);
    assert_eq!(interrupts(&seen).len(), 3, "it was asked again");
    assert!(!seen.contains(&Seen::Stuck(2)), "{seen:?}");
}

#[test]
fn retire_interrupts_and_reports_a_cpu_until_it_unloads() {
    for requests in [Requests::PerRequest, Requests::Log] {
        a_cpu_that_runs_it_is_asked(requests);
    }
}

fn a_cpu_that_runs_it_is_asked(requests: Requests) {
    let (engine, space) = three(Policy {
        requests,
        stuck_ns: 1,
        ..DESIGN
    });
    let mut seen = retire_while_one_stays(engine, space);
    seen.retain(|seen| *seen != Seen::Here);
    let asked = || [Seen::BeforeIpi, Seen::Sent([2].into()), Seen::Waited];
    let expected = asked()
        .into_iter()
        .chain([Seen::Stuck(2)])
        .chain(asked())
        .chain(asked());
    assert_eq!(seen, expected.collect::<Vec<_>>());
}

/// Runs `test` on a machine with targeted broadcasts, with a space that has a tag and runs on three CPUs, the last of
/// which has gone offline.
fn aimed(test: impl FnOnce(&'static Sys, InWorld)) {
    AIMED.set(true);
    let (engine, space) = three(Policy {
        tags: Tags::Hybrid { promote_at: 2 },
        reach: Reach::Broadcast,
        order: Order::Concurrent,
        ..DESIGN
    });
    engine.promote(space);
    let tag = space.system_tag().expect("a tag is free");
    (0..3).for_each(|cpu| on(cpu, || engine.adopt_system_tag(&engine.cpus[cpu], space, tag)));
    on(2, || engine.cpu_offline());
    AIMED_AT.take();
    EVENTS.take();
    SEEN.take();
    test(engine, space);
    AIMED.set(false);
}

#[test]
fn targeted_broadcast_includes_departed_holders() {
    aimed(|engine, space| {
        let _done = engine.flush(space, Range::page(0x1000));
        assert_eq!(AIMED_AT.take(), [[1]], "CPU 2 is off, this one does its part itself");
        on(1, || engine.switch_to_kernel());
        let _done = engine.flush(space, Range::page(0x1000));
        assert_eq!(AIMED_AT.take(), [[1]], "it may hold entries, and have them again");
        assert!(EVENTS.take().contains(&Event::Broadcast { instructions: 1 }));
        let seen = SEEN.take();
        assert_eq!(seen.iter().filter(|seen| **seen == Seen::Synchronised).count(), 2);
        assert!(seen.contains(&Seen::Here), "{seen:?}");
    });
}

#[test]
fn targeted_broadcast_without_holders_sends_nothing() {
    aimed(|engine, space| {
        on(1, || engine.cpu_offline());
        SEEN.take();
        EVENTS.take();
        let _done = engine.flush(space, Range::page(0x1000));
        assert_eq!(AIMED_AT.take(), [[0; 0]; 0]);
        assert_eq!(SEEN.take(), [Seen::Here], "nothing is waited for");
        assert_eq!(EVENTS.take(), [Event::LocalOnly]);
    });
}

#[test]
fn targeted_broadcast_is_calibrated_on_one_cpu() {
    aimed(|engine, _| {
        CLOCK.set((0..100_000).rev().collect());
        ON_WAIT.set(Some(Box::new(move |_| all_answer(engine))));
        let costs = engine.calibrate();
        ON_WAIT.set(None);
        let aimed_at = AIMED_AT.take();
        assert!(
            aimed_at.iter().all(|targets| *targets == [1]) && !aimed_at.is_empty(),
            "{aimed_at:?}"
        );
        assert_eq!(costs.broadcast_from, u64::MAX, "none reaches every tag");
        engine.learn(Way::Broadcast, 0, 1);
        assert_eq!(engine.costs().broadcast_from, u64::MAX, "nor however little one takes");
    });
}

#[test]
fn targeted_broadcast_cost_includes_its_targets() {
    let worth = |(engine, space): (&'static Sys, InWorld)| {
        let costs = Costs {
            interrupt_ns: 1000,
            interrupt_more_ns: 100,
            disturbed_ns: 500,
            broadcast_ns: 1700,
            ..Costs::PRIORS
        };
        engine.costs.store(&costs, Interrupts::of(&costs));
        [(); 2].map(|()| engine.should_promote(space, 0, (3, 2), 2))
    };
    assert_eq!(worth(three(DESIGN)), [None, Some((2100, 1700))]);
    aimed(|engine, space| assert_eq!(worth((engine, space)), [None, None], "it would be 1950"));
}

/// The first sample of a space is a request that had targets. Here the second had none, so that half of the requests
/// with interrupts cost less than a broadcast for each.
#[test]
fn one_sample_does_not_promote() {
    let (engine, space) = three(DESIGN);
    let costs = Costs {
        interrupt_ns: 1000,
        disturbed_ns: 500,
        broadcast_ns: 1000,
        ..Costs::PRIORS
    };
    engine.costs.store(&costs, Interrupts::of(&costs));
    assert!(engine.is_new(space));
    assert_eq!(engine.should_promote(space, 0, (2, 2), 1), None);
    assert!(!engine.is_new(space));
    assert_eq!(engine.should_promote(space, 0, (2, 2), 0), None);
}

#[test]
fn flush_while_runs_its_work_before_the_targeted_broadcast_is_synchronised() {
    aimed(|engine, space| {
        // The first ends the transition.
        let _done = engine.flush(space, Range::page(0x1000));
        drop((AIMED_AT.take(), SEEN.take(), EVENTS.take()));
        let (_done, ()) = engine.flush_while(space, Range::page(0x1000), || {
            assert_eq!(AIMED_AT.take(), [[1]]);
            assert!(!SEEN.take().contains(&Seen::Synchronised));
            assert_eq!(EVENTS.take(), []);
        });
        assert_eq!(SEEN.take(), [Seen::Synchronised]);
        assert_eq!(EVENTS.take(), [Event::Broadcast { instructions: 1 }]);
    });
}

#[test]
fn calibration_never_broadcasts_to_its_own_cpu() {
    aimed(|engine, _| {
        AIMED_AT.take();
        on(1, || engine.broadcast_nothing(Some(1)));
        assert!(AIMED_AT.take().is_empty());
        on(0, || engine.broadcast_nothing(Some(1)));
        assert_eq!(AIMED_AT.take(), [[1]]);
    });
}

#[test]
fn holder_of_a_tag_stays_in_the_set_when_trimmed() {
    let asked = |engine: &'static Sys, space: InWorld| {
        on(1, || {
            engine.switch_to_kernel();
            engine.leave_departed(core::ptr::from_ref(space).expose_provenance() as u64);
        });
        space.cpus.contains(1)
    };
    aimed(|engine, space| assert!(asked(engine, space)));
    let (engine, space) = with_tags(1);
    engine.promote(space);
    assert!(
        !asked(engine, space),
        "where broadcasts reach all CPUs the set may be empty"
    );
}

#[test]
fn calibration_never_interrupts_its_own_cpu() {
    let (engine, _) = with_tags(1);
    ON_WAIT.set(Some(Box::new(move |_| all_answer(engine))));
    let mut targets = CpuMask::EMPTY;
    [1, 2].into_iter().for_each(|cpu| targets.insert(cpu));
    SEEN.take();
    on(1, || engine.round_trip(targets));
    ON_WAIT.set(None);
    assert!(SEEN.take().contains(&Seen::Sent([2].into())));
}

#[test]
fn retire_waits_for_a_cpu_leaving_the_set() {
    let mut met = 0;
    for before in 0..MOMENTS {
        let storage = Storage {
            cpus: Vec::leak((0..3).map(|_| PerCpu::new()).collect()),
            tags: Vec::leak((0..tag_words(4096)).map(|_| InterleavedWord::new(0)).collect()),
        };
        let engine: &Engine<'static, World, 9> =
            Box::leak(Box::new(Engine::new(World, DESIGN.into(), Root(0), storage)));
        let space = engine.space(Root(1));
        for cpu in 0..3 {
            on(cpu, || engine.cpu_online());
        }
        // SAFETY: it is dropped after the CPU has left it.
        on(2, || unsafe { engine.switch_to(&space) });
        let leaves = || on(2, || engine.switch_to_kernel());
        let ends = || {
            // It answers requests.
            ON_WAIT.set(Some(Box::new(|_| on(2, || handle(engine)))));
            let _end = engine.retire(&space);
            ON_WAIT.set(None);
            assert!(space.cpus.is_settled(3), "before operation {before}");
        };
        let in_the_middle = || !space.cpus.contains(2) && !space.cpus.is_settled(3);
        let meets = core::sync::atomic::AtomicBool::new(false);
        interleave::together(&[before, 300, 1000], leaves, || {
            meets.store(in_the_middle(), Ordering::Relaxed);
            ends();
        });
        met += u32::from(meets.into_inner());
    }
    assert!(met > 0, "it was never between its bit and its count");
}

#[test]
fn retire_reports_a_cpu_that_does_not_leave_the_set() {
    let design = Design::from(Policy { stuck_ns: 10, ..DESIGN });
    let mut reported = 0;
    for before in 0..MOMENTS {
        let storage = Storage {
            cpus: Vec::leak((0..3).map(|_| PerCpu::new()).collect()),
            tags: Vec::leak(
                (0..tag_words(design.machine.tag_limit))
                    .map(|_| InterleavedWord::new(0))
                    .collect(),
            ),
        };
        let engine: &Engine<'static, World, 9> = Box::leak(Box::new(Engine::new(World, design, Root(0), storage)));
        let space = engine.space(Root(1));
        for cpu in 0..3 {
            on(cpu, || engine.cpu_online());
        }
        // SAFETY: it is dropped after the CPU has left it.
        on(2, || unsafe { engine.switch_to(&space) });
        let leaves = || on(2, || engine.switch_to_kernel());
        let meets = core::sync::atomic::AtomicBool::new(false);
        interleave::together(&[before, 1500, 1000], leaves, || {
            let in_the_middle = !space.cpus.contains(2) && !space.cpus.is_settled(3);
            meets.store(in_the_middle, Ordering::Relaxed);
            if in_the_middle {
                CLOCK.set((0..100).rev().map(|time| time * 100).collect());
                SEEN.take();
                let _end = engine.retire(&space);
                reported += u32::from(SEEN.take().contains(&Seen::Stuck(2)));
            }
        });
        if !meets.into_inner() {
            on(2, || engine.switch_to_kernel());
        }
    }
    assert!(reported > 0, "it was never between its bit and its count for long");
}
