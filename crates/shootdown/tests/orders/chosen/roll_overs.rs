//! Roll-overs: they interrupt switches, and switches interrupt them.

use super::{at_each_operation, designs};
use crate::interleaving;
use crate::play::Play;
use crate::world::{engine, on};
use shootdown::Tags;

/// Number of spaces, larger than the number of tags. The last space of [`fill`] is [`tags`] minus one.
const SPACES: u64 = 8;

fn tags(play: &Play) -> usize {
    let machine = play.engine.machine();
    machine.tag_limit as usize - usize::from(machine.first_tag)
}

/// CPU 1 runs space 1, has run space 0, and may return to it under its tag. Every other tag belongs to another space.
fn fill(play: &'static Play) {
    (0..2).for_each(|space| on(1, || play.enter(space)));
    (2..tags(play)).for_each(|space| on(0, || play.enter(space)));
}

fn rolls_over(play: &'static Play) {
    (2..SPACES as usize).for_each(|space| on(0, || play.enter(space)));
}

/// CPU 2 runs every space and withdraws pages. A CPU that runs the space under another tag could still use them.
fn everything_is_withdrawn(play: &'static Play) {
    (0..SPACES as usize).for_each(|space| {
        on(2, || {
            play.enter(space);
            play.unmap(space, &play.random);
        });
    });
    (0..SPACES as usize).for_each(|space| on(1, || play.enter(space)));
}

#[test]
fn no_cpu_runs_under_a_tag_reassigned_by_roll_over() {
    let of_cpu_1 = |play: &'static Play| on(1, || play.enter(0));
    for (name, design) in designs(|design| design.policy.tags == Tags::System) {
        println!("{name}: a roll-over comes in on a switch");
        at_each_operation(design, (SPACES, 4), fill, of_cpu_1, rolls_over, everything_is_withdrawn);
        println!("{name}: one roll-over comes in on a switch after another");
        let after_another = |play| {
            fill(play);
            rolls_over(play);
        };
        at_each_operation(
            design,
            (SPACES, 4),
            after_another,
            of_cpu_1,
            rolls_over,
            everything_is_withdrawn,
        );
        println!("{name}: a roll-over comes in on a switch that takes a tag");
        let all_but_one = |play: &'static Play| {
            on(1, || play.enter(1));
            (2..tags(play)).for_each(|space| on(0, || play.enter(space)));
        };
        at_each_operation(
            design,
            (SPACES, 4),
            all_but_one,
            of_cpu_1,
            rolls_over,
            everything_is_withdrawn,
        );
        println!("{name}: a switch comes in on a roll-over");
        let rolls_over = |play: &'static Play| on(0, || play.enter(tags(play)));
        at_each_operation(design, (SPACES, 4), fill, rolls_over, of_cpu_1, everything_is_withdrawn);
    }
}

/// CPU 1 takes a tag, and flushes everything because of a roll-over. Then CPU 0 takes one.
#[test]
fn roll_over_lock_publishes_to_its_next_holder() {
    for (name, design) in designs(|design| design.policy.tags == Tags::System) {
        println!("{name}");
        interleaving::begin(None, 0);
        let play = Play::new(engine(design, true), SPACES, 0);
        fill(play);
        rolls_over(play);
        play.engine.kernel().touched.take();
        on(1, || play.enter(0));
        let touched = play.engine.kernel().touched.take();
        assert!(touched.is_used_by(1), "it has flushed");
        on(0, || {
            play.enter(1);
            touched.free();
        });
    }
}
