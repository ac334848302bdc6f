//! One action interrupts another at each of its operations in turn, while loads return older values where that is
//! allowed. Covers races that need several events at once, which random runs (`at_random.rs`, `focused.rs`) reach too
//! rarely.

mod deferrals;
mod roll_overs;
mod walks;

use crate::interleaving::{self, Came};
use crate::play::Play;
use crate::variants::variants;
use crate::world::{CPUS, engine, is_busy, on};
use shootdown::Design;

type Thing = (&'static str, fn(&'static Play));

/// After `before`, `other` interrupts `one` at each of its operations in turn. Then `after` checks the result. Some of
/// the ways in which loads may return older values are tried.
fn at_each_operation(
    design: Design,
    (spaces, ways): (u64, u64),
    before: impl Fn(&'static Play),
    one: impl Fn(&'static Play),
    other: impl Fn(&'static Play) + Copy + 'static,
    after: impl Fn(&'static Play),
) {
    for seed in 0..ways {
        for operations in 0.. {
            interleaving::begin(None, 0);
            let play = Play::new(engine(design, true), spaces, seed);
            before(play);
            let other = move || {
                // A handler is not interrupted.
                if (0..CPUS).filter(|&cpu| is_busy(cpu)).count() > 1 {
                    interleaving::gives_up();
                }
                other(play);
            };
            match interleaving::together(operations, Some(seed), || one(play), other) {
                Came::In => after(play),
                Came::Waits => {}
                Came::Never => break,
            }
        }
    }
}

fn designs(wanted: fn(&Design) -> bool) -> impl Iterator<Item = (&'static str, Design)> {
    let all = crate::designs().chain(variants());
    all.filter(move |(_, design)| wanted(design) && !design.machine.split && !design.machine.errata.repeat)
}

/// For state that is used in the middle of an action.
fn leaked<T: Default>() -> &'static T {
    Box::leak(Box::default())
}

fn on_cpu_0(play: &'static Play, what: fn(&'static Play)) {
    on(0, || what(play));
}
