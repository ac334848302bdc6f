//! Demotions, with other CPUs acting in the middle of them.

use crate::promotion::{PROMOTED_AT_4, flushes_until_demotion, promoted};
use crate::{OnHost, Sys, World, flush, run, space, world};
use shootdown::{Design, Event, Machine, Range, Token};
use std::cell::RefCell;

/// One tag in addition to the slots: the next space to be promoted gets it.
const ONE_TAG: Design = PROMOTED_AT_4.on(Machine {
    tag_limit: 1 + PROMOTED_AT_4.slots as u32 + 1,
    ..Machine::PCID
});

type Tokens = RefCell<Vec<Token<'static, 'static, &'static World, 1>>>;

/// A space that is being demoted, on slots of CPUs 0 and 1: the next flush finds no CPU on the tag. CPUs 2 to 11 run
/// another space.
fn nearly_demoted() -> (&'static World, &'static Sys, &'static OnHost, &'static OnHost) {
    let (world, engine) = world(ONE_TAG, 12);
    let (one, other) = (promoted(world, engine, 1), space(engine, 2));
    run(world, engine, 2..12, other);
    assert_eq!(flushes_until_demotion(world, engine, one), Some(3));
    assert_eq!(world.interrupted(), [1], "it leaves the tag");
    assert!(one.system_tag().is_some());
    // From here on the window for promotion of CPU 8 is open.
    world.now.set(32 - 8);
    (world, engine, one, other)
}

fn demoted(world: &World) -> bool {
    world.saw(|event| *event == Event::Demoted)
}

#[test]
fn demoted_tag_is_invalidated_before_reuse() {
    let (world, engine, one, other) = nearly_demoted();
    // While the tag is invalidated, CPU 8 tries to get it.
    *world.on_broadcast.borrow_mut() = Some(Box::new(move || {
        // The flush itself comes first.
        *world.on_broadcast.borrow_mut() = Some(Box::new(move || {
            world.on(8, || flush(engine, other));
            assert_eq!(other.system_tag(), None, "the tag is not clean");
        }));
    }));
    flush(engine, one);
    assert!(world.on_broadcast.borrow().is_none(), "both were seen");
    assert_eq!(one.system_tag(), None);
    world.on(8, || flush(engine, other));
    assert!(other.system_tag().is_some());
}

#[test]
fn batch_interrupts_cpus_demoted_to_slots() {
    let (world, engine, one, _) = nearly_demoted();
    let mut batch = engine.batch();
    batch.add(one, Range::page(0x1000));
    let _done = batch.finish();
    assert!(one.system_tag().is_some(), "the demotion is not over");
    assert_eq!(
        world.interrupted(),
        [1],
        "a broadcast under the tag does not reach its slot"
    );
}

#[test]
fn flush_after_a_demotion_does_not_free_the_tag_again() {
    let (world, engine, one, other) = nearly_demoted();
    // CPU 0 has found no CPU on the tag, and looks for its other targets. Meanwhile CPU 1 has ended the demotion, and
    // another space has the tag.
    *world.on_target.borrow_mut() = Some(Box::new(move || {
        world.on(1, || flush(engine, one));
        assert!(demoted(world) && one.system_tag().is_none());
        world.on(8, || flush(engine, other));
        assert!(other.system_tag().is_some());
    }));
    flush(engine, one);
    assert!(world.on_target.borrow().is_none() && !demoted(world));
    let third = space(engine, 3);
    run(world, engine, 6..12, third);
    world.on(8, || flush(engine, third));
    assert_eq!(third.system_tag(), None, "there is no other tag");
}

#[test]
fn flush_of_an_earlier_demotion_does_not_end_a_later_one() {
    let (world, engine, one, _) = nearly_demoted();
    let tokens: &'static Tokens = Box::leak(Box::default());
    // CPU 0 has found no CPU on the tag. Meanwhile CPU 1 has ended the demotion, and the space was promoted and is
    // being demoted again: now CPU 0 is on the tag.
    *world.on_target.borrow_mut() = Some(Box::new(move || {
        let by_1 = |times: u32| world.on(1, || (0..times).for_each(|_| flush(engine, one)));
        by_1(1);
        assert!(demoted(world));
        run(world, engine, 2..6, one);
        world.now.set(32 - 1);
        by_1(3);
        assert!(world.saw(|event| *event == Event::Promoted));
        run(world, engine, 2..6, space(engine, 3));
        by_1(2);
        world.deaf.set(true);
        world.on(1, || {
            tokens.borrow_mut().push(engine.dispatch(one, Range::page(0x1000)))
        });
        world.deaf.set(false);
        assert!(world.saw(|event| matches!(event, Event::Demoting { .. })));
    }));
    flush(engine, one);
    assert!(world.on_target.borrow().is_none());
    assert!(!demoted(world) && one.system_tag().is_some(), "CPU 0 was on the tag");
    // SAFETY: one thread, which selects the CPU.
    unsafe { engine.on_ipi() };
    world.on(1, || tokens.take().into_iter().for_each(|token| drop(token.wait())));
    flush(engine, one);
    assert!(demoted(world) && one.system_tag().is_none());
}

#[test]
fn demotion_ends_only_after_the_slot_is_loaded() {
    let (world, engine) = world(ONE_TAG, 12);
    let (one, other) = (promoted(world, engine, 1), space(engine, 2));
    run(world, engine, 2..12, other);
    (0..2).for_each(|_| flush(engine, one));
    let tokens: &'static Tokens = Box::leak(Box::default());
    // CPU 1 is about to load a slot; CPU 2 flushes.
    *world.on_load.borrow_mut() = Some(Box::new(move || {
        if world.cpu.get() == 1 && tokens.borrow().is_empty() {
            world.deaf.set(true);
            let token = world.on(2, || engine.dispatch(one, Range::page(0x1000)));
            world.deaf.set(false);
            tokens.borrow_mut().push(token);
            assert!(!demoted(world), "the tag is still loaded");
        }
    }));
    // The third sample in a row.
    flush(engine, one);
    assert_eq!(tokens.borrow().len(), 1);
    // SAFETY: one thread, which selects the CPU.
    (0..2).for_each(|cpu| world.on(cpu, || unsafe { engine.on_ipi() }));
    world.on(2, || tokens.take().into_iter().for_each(|token| drop(token.wait())));
    flush(engine, one);
    assert!(demoted(world) && one.system_tag().is_none());
}
