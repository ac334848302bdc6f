//! Others promote, and end, the same space at every moment; a space ends while a CPU is on its way out.

use super::*;
use crate::Design;
use crate::hooks::Root;
use crate::interrupt::tests::{DESIGN, InWorld, ON_WAIT, SEEN, Seen, Sys, all_answer, on, three};
use crate::meddled;
use crate::percpu::State;
use std::boxed::Box;
use std::vec::Vec;

/// Moments at which somebody else comes in.
const MOMENTS: u32 = 60;

/// Three CPUs that have a space on slots, and as many tags besides.
fn with_tags(tags: u16) -> (&'static Sys, InWorld) {
    three(Design {
        tags: Tags::Hybrid { promote_at: 2 },
        tag_limit: DESIGN.first_tag + u16::from(DESIGN.slots) + tags,
        ..DESIGN
    })
}

/// Takes every tag that is left.
fn left(engine: &Sys) -> Vec<Tag> {
    engine.tags.reclaim(|| {});
    core::iter::from_fn(|| engine.tags.allocate()).collect()
}

#[test]
fn of_two_who_promote_a_space_one_does_and_no_tag_is_lost() {
    for moment in 0..MOMENTS {
        let (engine, space) = with_tags(4);
        meddled::after(moment, move || on(1, || engine.promote(space)));
        engine.promote(space);
        meddled::never();
        let tag = space.system_tag().expect("somebody has promoted it");
        let left = left(engine);
        assert!(
            left.len() == 3 && !left.contains(&tag),
            "at operation {moment}: {left:?}, {tag:?}"
        );
    }
}

#[test]
fn a_tag_is_given_up_once_also_where_a_space_is_ended_twice() {
    for moment in 0..MOMENTS {
        let (engine, space) = with_tags(1);
        let other: InWorld = Box::leak(Box::new(engine.space(Root(2))));
        engine.promote(space);
        (0..3).for_each(|cpu| on(cpu, || engine.switch_to_kernel()));
        meddled::after(moment, move || {
            on(1, || {
                let _end = engine.retire(space);
                // Its tag has another owner.
                engine.tags.reclaim(|| {});
                engine.promote(other);
            })
        });
        let _end = engine.retire(space);
        meddled::never();
        assert_eq!(space.system_tag(), None);
        let left = left(engine);
        assert_eq!(
            left.len(),
            usize::from(other.system_tag().is_none()),
            "at operation {moment}"
        );
    }
}

#[test]
fn a_cpu_that_is_leaving_a_space_that_ends_is_asked() {
    let (engine, space) = with_tags(1);
    (0..2).for_each(|cpu| on(cpu, || engine.switch_to_kernel()));
    // CPU 2 is in the middle of a switch, and still has the root loaded.
    engine.cpus[2].publish(State::switching(space.id + 1));
    SEEN.take();
    ON_WAIT.set(Some(Box::new(|_| {
        engine.cpus[2].publish(State::KERNEL);
        all_answer(engine);
    })));
    let _end = engine.retire(space);
    ON_WAIT.set(None);
    assert!(SEEN.take().contains(&Seen::Sent([2].into())));
}

#[test]
fn a_cpu_that_runs_a_space_that_ends_is_asked_until_it_has_let_go_and_reported() {
    let (engine, space) = with_tags(1);
    on(1, || engine.switch_to_kernel());
    SEEN.take();
    let mut asked = 0;
    ON_WAIT.set(Some(Box::new(move |_| {
        asked += 1;
        if asked == 3 {
            on(2, || engine.switch_to_kernel());
        }
        all_answer(engine);
    })));
    let _end = engine.retire(space);
    ON_WAIT.set(None);
    let seen: Vec<_> = SEEN
        .take()
        .into_iter()
        .filter(|seen| !matches!(seen, Seen::Here))
        .collect();
    let asked = || [Seen::BeforeIpi, Seen::Sent([2].into()), Seen::Waited];
    let expected = asked()
        .into_iter()
        .chain([Seen::Stuck(2)])
        .chain(asked())
        .chain(asked());
    assert_eq!(seen, expected.collect::<Vec<_>>());
}
