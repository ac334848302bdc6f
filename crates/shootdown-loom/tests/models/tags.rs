//! System-wide tags: a space gets a tag, gets a new one, or returns to its own, at a critical point.

use super::{IPI, Model, TWO, comes_back, finds, sound};
use shootdown::{Machine, Policy, Tags, Walkers};
use shootdown_known_bugs::Bug;
use shootdown_loom::World;

const PROMOTION: Model = Model {
    design: Policy {
        tags: Tags::Hybrid { promote_at: 1 },
        slots: 1,
        consider_window_ns: 1,
        walkers: Walkers::None,
        stuck_ns: 0,
        ..Policy::BROADCAST
    }
    .on(Machine {
        tag_limit: 4,
        ..Machine::PCID
    }),
    broadcast: true,
    preemptions: 3,
    ..TWO
};

/// A space is promoted by its first flush and broadcast by its second, while a CPU switches in.
fn promoted<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(0, |world| world.switch_to(0));
    world.run([
        |world| {
            world.unmap(0);
            assert!(world.space(0).system_tag().is_some(), "CPU 0's window is open");
            world.unmap(1);
        },
        |world| {
            world.switch_to(0);
            world.access(1);
            world.poll();
            world.access(1);
        },
    ]);
}

#[test]
fn promotion() {
    sound("promotion", PROMOTION, promoted);
    // A broadcast is a message here, which orders more than an instruction does: mutants of barriers are not detected.
    finds("promotion", PROMOTION, Bug::GiveUpWaiting, promoted);
}

pub(crate) const ROLL_OVER: Model = Model {
    design: Policy {
        tags: Tags::System,
        ..IPI
    }
    .on(Machine {
        tag_limit: 4,
        ..Machine::PCID
    }),
    ..TWO
};

/// The third of three tags is taken. CPU 0 needs a fourth while CPU 1, which has entries under two of them, switches to
/// the same space.
fn rolled_over<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(1, |world| {
        world.switch_to(1);
        world.access(0);
        world.switch_to(0);
        world.access(0);
    });
    world.on(0, |world| world.switch_to(2));
    world.run([
        |world| {
            world.switch_to(3);
            world.access(0);
        },
        |world| {
            world.switch_to(3);
            world.access(0);
            world.switch_to(0);
            world.access(0);
        },
    ]);
}

#[test]
fn roll_over() {
    sound("roll-over", ROLL_OVER, rolled_over);
    finds("roll-over", ROLL_OVER, Bug::TagReusedWithoutFlush, rolled_over);
}

/// A lazy CPU returns after a roll-over, which another CPU made before it withdrew a page.
fn rolled_over_lazy<const WEAK: u8>(world: &'static World<WEAK>) {
    world.on(1, |world| {
        world.switch_to(0);
        world.access(0);
        world.engine.enter_lazy();
    });
    world.on(0, |world| {
        world.switch_to(1);
        world.switch_to(2);
    });
    world.run([
        |world| {
            world.switch_to(3);
            world.switch_to(0);
            world.unmap(0);
        },
        |world| {
            world.switch_to(0);
            world.poll();
            world.access(0);
        },
    ]);
}

#[test]
fn roll_over_under_a_lazy_cpu() {
    let model = Model {
        preemptions: 2,
        ..ROLL_OVER
    };
    sound("roll-over, lazy", model, rolled_over_lazy);
    finds("roll-over, lazy", model, Bug::LazyKeepsOldTag, rolled_over_lazy);
}

/// Space 0 has lost its tag. While a page is withdrawn from it, CPU 1 gets it another.
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
fn new_tag_against_unmap() {
    let model = Model {
        preemptions: 3,
        ..ROLL_OVER
    };
    sound("new tag", model, gets_a_tag);
    finds("new tag", model, Bug::GiveUpWaiting, gets_a_tag);
}

/// CPU 1 returns to space 0, which still has a tag, while CPU 0 takes a tag when none is left, and withdraws a page.
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
fn roll_over_against_lockless_switch() {
    let model = Model {
        preemptions: 3,
        ..ROLL_OVER
    };
    sound("roll-over, switch", model, returns_at_a_roll_over);
    finds("roll-over, switch", model, Bug::GiveUpWaiting, returns_at_a_roll_over);
}
