//! Flushes under system-wide tags that stay on one CPU, and those that do not.

use crate::{flush, run, space, world};
use shootdown::Policy;

#[test]
fn local_first_flush_is_local_until_a_second_cpu_was_active() {
    let (world, engine) = world(Policy::ARM_LOCAL_FIRST, 3);
    let (one, other) = (space(engine, 1), space(engine, 2));
    run(world, engine, 0..1, one);
    let done = || {
        let before = (world.invalidations.get(), world.broadcasts.get());
        flush(engine, one);
        (world.invalidations.get() - before.0, world.broadcasts.get() - before.1)
    };
    assert_eq!(done(), (1, 0));
    run(world, engine, 1..2, one);
    assert_eq!(done(), (0, 1));
    run(world, engine, 1..2, other);
    assert_eq!(done(), (0, 1), "it may hold entries under the tag");
}
