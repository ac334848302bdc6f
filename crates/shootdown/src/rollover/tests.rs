//! Whose tags a roll-over keeps, and who stays in the set of a space that has one.

use crate::Design;
use crate::design::{Departure, Requests, Tags};
use crate::hooks::{Event, Root};
use crate::noted::{DESIGN, EVENTS, InWorld, Sys, on, three};
use std::boxed::Box;

/// Six tags for three CPUs, which run one space.
fn with_six(design: Design) -> (&'static Sys, InWorld) {
    three(Design {
        tags: Tags::System,
        tag_limit: DESIGN.first_tag + 6,
        ..design
    })
}

/// CPU 0 runs new spaces, one after the other, until tags roll over; how many that took.
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
fn a_cpu_that_is_off_keeps_no_tag() {
    for (off, spaces) in [(false, 3), (true, 4)] {
        let (engine, _) = with_six(DESIGN);
        // One of its own for each.
        for cpu in 1..3 {
            let space: InWorld = Box::leak(Box::new(engine.space(Root(3))));
            // SAFETY: the space is leaked.
            on(cpu, || unsafe { engine.switch_to(space) });
        }
        // What was reserved for it at a roll-over before it went is kept at that one only.
        until_they_roll_over(engine);
        if off {
            on(2, || engine.cpu_offline());
        }
        until_they_roll_over(engine);
        assert_eq!(until_they_roll_over(engine), spaces, "the others keep theirs");
    }
}

#[test]
fn a_cpu_that_may_hold_entries_under_such_a_tag_stays_in_the_set_whoever_asks_it_to_leave() {
    let (engine, space) = with_six(Design {
        requests: Requests::PerRequest,
        departure: Departure::WhenAsked { trim_ns: 1 },
        ..DESIGN
    });
    assert_eq!(engine.departure(), Departure::AtSwitch);
    on(1, || {
        engine.switch_to_kernel();
        // The requester found the space on per-CPU slots, before it was first loaded.
        engine.leave_departed(core::ptr::from_ref(space).expose_provenance() as u64);
    });
    assert!(space.cpus.contains(1));
}
