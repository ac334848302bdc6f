//! One thing comes in on another, at each of its operations in turn, while loads find what was there before where they
//! may: what takes several things at once, to which runs at random (`at_random.rs`, `focused.rs`) come too seldom.

mod deferrals;
mod roll_overs;
mod walks;

use crate::meddling::{self, Came};
use crate::play::Play;
use crate::variants::variants;
use crate::world::{CPUS, engine, is_busy, on};
use shootdown::Design;

type Thing = (&'static str, fn(&'static Play));

/// After `before`, `other` comes in on `one` at each of its operations in turn; `after` follows, and judges. Of the
/// ways in which loads may find what was there before, some are tried.
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
            meddling::begin(None, 0);
            let play = Play::new(engine(design, true), spaces, seed);
            before(play);
            let other = move || {
                // A handler is not come in on.
                if (0..CPUS).filter(|&cpu| is_busy(cpu)).count() > 1 {
                    meddling::gives_up();
                }
                other(play);
            };
            match meddling::together(operations, Some(seed), || one(play), other) {
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

/// For what happens in the middle of something.
fn leaked<T: Default>() -> &'static T {
    Box::leak(Box::default())
}

fn on_cpu_0(play: &'static Play, what: fn(&'static Play)) {
    on(0, || what(play));
}
