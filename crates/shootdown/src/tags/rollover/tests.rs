//! Which tags a roll-over keeps, and which CPUs stay in the set of a space that has one.

use crate::design::{Departure, Requests, Tags};
use crate::facade::Word;
use crate::hooks::{Event, Root};
use crate::range::Range;
use crate::testing::interleave;
use crate::testing::mock_kernel::{CLOCK, DESIGN, EVENTS, InWorld, ON_WAIT, SEEN, Seen, Sys, all_answer, on, three};
use crate::{Machine, Policy};
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::vec;

/// Six tags for three CPUs, which run one space.
fn with_six(policy: Policy) -> (&'static Sys, InWorld) {
    three(
        Policy {
            tags: Tags::System,
            ..policy
        }
        .on(Machine {
            tag_limit: 1 + 6,
            ..Machine::PCID
        }),
    )
}

/// CPU 0 runs new spaces, one after the other, until tags roll over. Returns how many it ran.
fn until_they_roll_over(engine: &'static Sys) -> usize {
    EVENTS.take();
    (1..10)
        .find(|_| {
            let space: InWorld = Box::leak(Box::new(engine.space(Root(2))));
            // SAFETY: the space is leaked.
            unsafe { engine.switch_to(space) };
            EVENTS.take().contains(&Event::RollOver)
        })
        .expect("there are six tags")
}

#[test]
fn offline_cpu_reserves_no_tag_at_roll_over() {
    for (off, spaces) in [(false, 3), (true, 4)] {
        let (engine, _) = with_six(DESIGN);
        // Each runs a space of its own.
        for cpu in 1..3 {
            let space: InWorld = Box::leak(Box::new(engine.space(Root(3))));
            // SAFETY: the space is leaked.
            on(cpu, || unsafe { engine.switch_to(space) });
        }
        // The tag reserved for it at a roll-over before it went offline is kept at that roll-over only.
        until_they_roll_over(engine);
        if off {
            on(2, || engine.cpu_offline());
        }
        until_they_roll_over(engine);
        assert_eq!(until_they_roll_over(engine), spaces, "the others keep theirs");
    }
}

#[test]
fn trim_before_tag_assignment_keeps_possible_holders_in_the_set() {
    let mut met = 0;
    for operation in 0..60 {
        let (engine, _) = with_six(Policy {
            requests: Requests::PerRequest,
            departure: Departure::WhenAsked { trim_ns: 0 },
            ..DESIGN
        });
        let space: InWorld = Box::leak(Box::new(engine.space(Root(2))));
        let other: InWorld = Box::leak(Box::new(engine.space(Root(3))));
        // SAFETY: spaces are leaked.
        let run = move |space: InWorld| on(1, || unsafe { engine.switch_to(space) });
        // CPU 1 runs the space while CPU 0 flushes it for the first time: it is on slots when CPU 0 begins.
        interleave::after(operation, move || run(space));
        // CPU 1 has left it again when the request arrives.
        ON_WAIT.set(Some(Box::new(move |_| {
            run(other);
            all_answer(engine);
        })));
        CLOCK.set(vec![2; 9]);
        let _done = engine.flush(space, Range::page(0x1000));
        let asked = ON_WAIT.take().is_some() && engine.cpus[1].own_state().id() == other.id;
        interleave::never();
        met += u32::from(asked);
        assert!(!asked || space.cpus.contains(1), "at operation {operation}");
    }
    assert!(met > 0, "it never got a request");
}

#[test]
fn stuck_holder_of_the_roll_over_lock_is_reported() {
    let (engine, _) = with_six(Policy { stuck_ns: 10, ..DESIGN });
    let space: InWorld = Box::leak(Box::new(engine.space(Root(2))));
    let lock = &engine.rollover.lock.0;
    lock.store(3, Ordering::Relaxed);
    // The bound is set at the second poll, and exceeded at the 258th.
    CLOCK.set(vec![110, 100]);
    ON_WAIT.set(Some(Box::new(move |round| {
        // A request that is served here would signal that the switch is over.
        engine.cpus[0].post.store(1, Ordering::Relaxed);
        if round == 300 {
            lock.store(0, Ordering::Relaxed);
        }
    })));
    SEEN.take();
    // SAFETY: the space is leaked.
    unsafe { engine.switch_to(space) };
    ON_WAIT.set(None);
    let seen = SEEN.take();
    assert_eq!(seen.iter().filter(|seen| **seen == Seen::Stuck(2)).count(), 1);
    assert_eq!(seen.iter().filter(|seen| **seen == Seen::Waited).count(), 300);
    assert_eq!(
        engine.cpus[0].post.load(Ordering::Relaxed),
        1,
        "nothing is served in the middle of a switch"
    );
    assert_eq!(engine.cpus[0].own_state().id(), space.id);
}
