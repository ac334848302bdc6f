//! System-wide tags: promotion, reclaim, demotion.

use crate::{LIMITS, Memory, Recorder};
use shootdown::{Broadcast, Design, Engine, Machine, Policy, Range, Root, Tags};

/// A space that runs on one CPU is promoted when CPU 0 flushes it and another CPU is in its set.
const PROMOTE_AT_ONCE: Design = Policy {
    tags: Tags::Hybrid { promote_at: 1 },
    slots: 2,
    ..Policy::BROADCAST
}
.on(Machine {
    tag_limit: 1 + 2 + 1,
    ..Machine::PCID
});

/// Runs a new space on CPU 0, flushes it there and retires it. Returns whether it was promoted.
fn promote_and_retire(engine: &Engine<'_, &Recorder, 1>, root: u64) -> bool {
    let space = engine.space(Root(root));
    // SAFETY: the space is retired before it is dropped.
    unsafe { engine.switch_to(&space) };
    let _done = engine.flush(&space, Range::page(0x1000));
    let promoted = space.system_tag().is_some();
    let _done = engine.retire(&space);
    promoted
}

#[test]
fn departed_cpu_of_a_promoted_space_stays_in_the_set_without_requests() {
    let kernel = Recorder {
        limits: LIMITS,
        ..Recorder::default()
    };
    let mut machine = Memory::new(2, PROMOTE_AT_ONCE);
    let engine = machine.engine(&kernel, PROMOTE_AT_ONCE);
    let space = engine.space(Root(1));
    let on = |cpu: usize| kernel.cpu.set(cpu);
    // SAFETY: the space is retired before it is dropped.
    let enter = || unsafe { engine.switch_to(&space) };
    enter();
    for _ in 0..2 {
        // Promotes, and finds no CPU on another tag.
        let _done = engine.flush(&space, Range::page(0x1000));
    }
    let tag = space.system_tag().expect("promoted");
    on(1);
    enter();
    engine.switch_to_kernel();
    assert!(space.cpus().contains(1));
    on(0);
    let _done = engine.flush(&space, Range::page(0x1000));
    assert_eq!(kernel.ipis.get(), 0, "broadcast");
    on(1);
    enter();
    assert_eq!(
        kernel.loads.borrow().last(),
        Some(&(1, tag, true)),
        "fresh by broadcasts"
    );
    engine.switch_to_kernel();
    on(0);
    let _done = engine.retire(&space);
    assert_eq!(kernel.ipis.get(), 0, "no CPU has it loaded");
}

#[test]
fn tag_reclaim_is_pinned_until_the_broadcast_is_synchronised() {
    let kernel = Recorder {
        limits: LIMITS,
        ..Recorder::default()
    };
    let mut machine = Memory::new(2, PROMOTE_AT_ONCE);
    let engine = machine.engine(&kernel, PROMOTE_AT_ONCE);
    assert!(promote_and_retire(&engine, 1), "there is one tag");
    // The hooks check that they are called pinned.
    assert!(promote_and_retire(&engine, 2), "the tag was reclaimed");
    assert!(kernel.broadcasts.borrow().contains(&Broadcast::NonGlobal));
}

#[test]
fn second_retire_does_not_free_another_spaces_tag() {
    let kernel = Recorder {
        limits: LIMITS,
        ..Recorder::default()
    };
    let mut machine = Memory::new(2, PROMOTE_AT_ONCE);
    let engine = machine.engine(&kernel, PROMOTE_AT_ONCE);
    let (a, b, c) = (engine.space(Root(1)), engine.space(Root(2)), engine.space(Root(3)));
    let promote = |space| {
        // SAFETY: the spaces outlive the engine's use of them.
        unsafe { engine.switch_to(space) };
        let _done = engine.flush(space, Range::page(0x1000));
    };
    promote(&a);
    let _done = engine.retire(&a);
    promote(&b);
    let tag = b.system_tag().expect("the tag of the first space was reclaimed");
    let _done = engine.retire(&a);
    promote(&c);
    assert_eq!(c.system_tag(), None, "the tag is in use");
    // SAFETY: as above.
    unsafe { engine.switch_to(&a) };
    let loaded = kernel.loads.borrow().last().map(|&(_, tag, _)| tag);
    assert_ne!(loaded, Some(tag), "a space that ended has no tag of its own");
}
