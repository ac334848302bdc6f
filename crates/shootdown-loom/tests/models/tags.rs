//! Tags of the whole system: a space gets a new one, or comes back to its own, at the wrong moment.

use super::{Model, ROLL_OVER, comes_back, finds, sound};
use shootdown_known_bugs::Bug;
use shootdown_loom::World;

/// The tag of space 0 is no longer its own; while a page is withdrawn from it, CPU 1 gets it another.
fn gets_a_tag<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(1, |world| {
        world.switch_to(0);
        world.switch_to(1);
    });
    world.on(0, |world| {
        world.switch_to(2);
        world.switch_to(3);
    });
    world.run([|world| world.unmap(0), |world| comes_back(world)]);
}

#[test]
fn a_new_tag_against_an_unmap() {
    let model = Model {
        preemptions: 3,
        ..ROLL_OVER
    };
    sound("new tag", model, gets_a_tag);
    finds("new tag", model, Bug::GiveUpWaiting, gets_a_tag);
}

/// CPU 1 comes back to space 0, which has a tag still, while CPU 0 takes a tag when none is left, and withdraws a page.
fn returns_at_a_roll_over<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(1, |world| {
        world.switch_to(0);
        world.access(0);
        world.switch_to(1);
    });
    world.on(0, |world| world.switch_to(2));
    world.run([
        |world| {
            world.switch_to(3);
            world.switch_to(0);
            world.unmap(0);
        },
        |world| comes_back(world),
    ]);
}

#[test]
fn a_roll_over_against_a_switch_that_takes_no_lock() {
    let model = Model {
        preemptions: 3,
        ..ROLL_OVER
    };
    sound("roll-over, switch", model, returns_at_a_roll_over);
    finds("roll-over, switch", model, Bug::GiveUpWaiting, returns_at_a_roll_over);
}
