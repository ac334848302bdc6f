//! Promotion and demotion.

use crate::{OnHost, Sys, World, flush, run, space, world};
use shootdown::{Demotion, Event, Machine, Policy, Range, Tags};

/// Promoted at four CPUs; every flush is a sample.
pub const PROMOTED_AT_4: Policy = Policy {
    tags: Tags::Hybrid { promote_at: 4 },
    sample_one_in: 1,
    demote_after: 3,
    consider_window_ns: 1,
    ..Policy::ADAPTIVE
};

pub fn promoted(world: &'static World, engine: &Sys, root: u64) -> &'static OnHost {
    let space = space(engine, root);
    run(world, engine, 0..6, space);
    // The first is broadcast and promotes, the second moves CPUs to the tag, the third finds that they have moved.
    (0..3).for_each(|_| flush(engine, space));
    assert!(space.system_tag().is_some() && world.saw(|event| *event == Event::Promoted));
    assert_eq!(world.interrupted().len(), 5);
    space
}

/// Flushes until the space gives its tag back, at most ten times. Returns how many flushes that took.
pub fn flushes_until_demotion(world: &World, engine: &Sys, space: &OnHost) -> Option<u32> {
    world.events.take();
    (1..=10).find(|_| {
        flush(engine, space);
        world.saw(|event| matches!(event, Event::Demoting { .. }))
    })
}

#[test]
fn space_is_promoted_at_the_designs_number_of_active_cpus() {
    for (active, is) in [(3, false), (4, true), (5, true)] {
        let (world, engine) = world(PROMOTED_AT_4, 6);
        let space = space(engine, 1);
        run(world, engine, 0..active, space);
        flush(engine, space);
        let promoting = world.events.take().into_iter().find_map(|event| match event {
            Event::Promoting { active, costs: None } => Some(active),
            _ => None,
        });
        assert_eq!(
            promoting,
            is.then_some(4),
            "{active} CPUs; no more are counted than are needed"
        );
        assert_eq!(space.system_tag().is_some(), is);
    }
}

#[test]
fn any_tag_broadcast_promotes_at_once_while_tags_are_left() {
    let seldom = Policy {
        sample_one_in: 1 << 20,
        ..PROMOTED_AT_4
    }
    .on(Machine {
        tag_limit: 1 + PROMOTED_AT_4.slots as u32 + 1,
        ..Machine::PCID
    });
    let (world, engine) = world(seldom, 12);
    let (few, many, more) = (space(engine, 1), space(engine, 2), space(engine, 3));
    run(world, engine, 0..3, few);
    run(world, engine, 4..8, many);
    run(world, engine, 8..12, more);
    (0..4).for_each(|_| flush(engine, few));
    assert_eq!(few.system_tag(), None, "active on too few, however often");
    world.events.take();
    world.on(4, || flush(engine, many));
    assert!(many.system_tag().is_some());
    let looked = |event: &Event| matches!(event, Event::Promoting { .. });
    assert!(world.saw(looked));
    // There was only one tag.
    world.on(8, || flush(engine, more));
    assert_eq!(more.system_tag(), None);
    assert!(world.saw(looked));
    world.on(8, || flush(engine, more));
    assert!(!world.saw(looked), "it is known that there is none");
}

#[test]
fn promotion_counts_cpus_in_the_kernel_but_not_lazy_ones() {
    for idle in [false, true] {
        let (world, engine) = world(PROMOTED_AT_4, 6);
        let space = space(engine, 1);
        run(world, engine, 0..4, space);
        world.on(3, || match idle {
            true => engine.enter_lazy(),
            false => assert!(engine.enter_kernel(space)),
        });
        flush(engine, space);
        assert_eq!(space.system_tag().is_some(), !idle);
    }
}

#[test]
fn space_on_half_the_promotion_threshold_is_demoted_after_a_streak() {
    for (left, after) in [(3, None), (2, Some(3)), (1, Some(3))] {
        let (world, engine) = world(PROMOTED_AT_4, 6);
        let (one, other) = (promoted(world, engine, 1), space(engine, 9));
        run(world, engine, left..6, other);
        assert_eq!(flushes_until_demotion(world, engine, one), after, "active on {left}");
    }
}

#[test]
fn sample_with_more_cpus_resets_the_demotion_streak() {
    let (world, engine) = world(PROMOTED_AT_4, 6);
    let (one, other) = (promoted(world, engine, 1), space(engine, 9));
    run(world, engine, 1..6, other);
    flush(engine, one);
    flush(engine, one);
    run(world, engine, 1..6, one);
    flush(engine, one);
    run(world, engine, 1..6, other);
    assert_eq!(flushes_until_demotion(world, engine, one), Some(3));
    // A demotion does the same, for a space that is promoted again.
    flush(engine, one);
    assert_eq!(one.system_tag(), None);
    run(world, engine, 1..6, one);
    (0..3).for_each(|_| flush(engine, one));
    assert!(one.system_tag().is_some());
    run(world, engine, 1..6, other);
    assert_eq!(flushes_until_demotion(world, engine, one), Some(3));
}

#[test]
fn tag_shortage_demotes_a_little_used_space_at_once() {
    let design = PROMOTED_AT_4.on(Machine {
        tag_limit: 1 + PROMOTED_AT_4.slots as u32 + 1,
        ..Machine::PCID
    });
    for (left, gives_up) in [(6, true), (7, false)] {
        let (world, engine) = world(design, 12);
        let one = space(engine, 1);
        run(world, engine, 0..8, one);
        (0..3).for_each(|_| flush(engine, one));
        assert!(one.system_tag().is_some());
        assert_eq!(
            flushes_until_demotion(world, engine, one),
            None,
            "no other space wants it"
        );
        let (other, third) = (space(engine, 2), space(engine, 3));
        run(world, engine, 8..12, other);
        // Then CPU 8 considers promotion.
        world.now.set(32 - 8);
        world.on(8, || flush(engine, other));
        assert!(other.system_tag().is_none() && world.saw(|event| *event == Event::TagsExhausted));
        run(world, engine, left..8, third);
        flush(engine, one);
        let seen = world.events.take();
        let short = seen.iter().any(
            |event| matches!(event, Event::Demoting { active, reason: Demotion::TagsShort } if *active == left as u32),
        );
        assert_eq!(
            short, gives_up,
            "active on {left}: one and a half times what promotes, or more"
        );
        if gives_up {
            flush(engine, one);
            assert_eq!(one.system_tag(), None);
            world.on(8, || flush(engine, other));
            assert!(other.system_tag().is_some(), "the tag is free");
            // The shortage is over: the next space to shrink needs the full number of samples.
            world.on(8, || (0..2).for_each(|_| flush(engine, other)));
            run(world, engine, 9..12, third);
            world.on(8, || assert_eq!(flushes_until_demotion(world, engine, other), Some(3)));
        }
    }
}

#[test]
fn demotion_interrupts_each_cpu_on_the_tag_once() {
    let (world, engine) = world(PROMOTED_AT_4, 6);
    let (one, other) = (promoted(world, engine, 1), space(engine, 9));
    run(world, engine, 3..6, other);
    world.on(1, || engine.enter_lazy());
    world.on(2, || engine.enter_lazy());
    flush(engine, one);
    flush(engine, one);
    assert_eq!(world.interrupted(), [0; 0]);
    flush(engine, one);
    assert_eq!(world.interrupted(), [1, 2], "the lazy ones let go of the tag");
    let before = world.broadcasts.get();
    flush(engine, one);
    assert!(world.saw(|event| *event == Event::Demoted) && one.system_tag().is_none());
    assert!(world.broadcasts.get() > before, "the tag is invalidated everywhere");
    let before = world.broadcasts.get();
    flush(engine, one);
    assert_eq!((world.broadcasts.get(), world.interrupted()), (before, vec![]));
}

#[test]
fn demotion_continues_while_a_cpu_is_on_the_tag() {
    let (world, engine) = world(PROMOTED_AT_4, 6);
    let (one, other) = (promoted(world, engine, 1), space(engine, 9));
    run(world, engine, 2..6, other);
    (0..2).for_each(|_| flush(engine, one));
    // CPU 1 is asked to leave the tag, and does not take the interrupt.
    world.deaf.set(true);
    let mut tokens: Vec<_> = (0..4).map(|_| engine.dispatch(one, Range::page(0x1000))).collect();
    let seen = world.events.take();
    assert!(seen.iter().any(|event| matches!(
        event,
        Event::Demoting {
            active: 2,
            reason: Demotion::Shrunk
        }
    )));
    assert!(!seen.contains(&Event::Demoted) && one.system_tag().is_some());
    world.deaf.set(false);
    world.on(1, || {
        world.masked.set(true);
        // SAFETY: one thread, which selects the CPU.
        unsafe { engine.on_ipi() };
        world.masked.set(false);
    });
    tokens.drain(..).for_each(|token| drop(token.wait()));
    flush(engine, one);
    assert!(world.saw(|event| *event == Event::Demoted) && one.system_tag().is_none());
}
