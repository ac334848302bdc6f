//! Whether a batch interrupts its targets or broadcasts its ranges under every tag, and whether gathers are samples.

use crate::tag_policy::{BY_COST, changes, on_six};
use crate::{OnHost, Sys, World, flush, run, space, world};
use shootdown::{Broadcast, Errata, Event, Freed, Machine, Policy, Range, Stride, Tags, Way};

/// No space gets a tag, so only the choice of the way is left.
const ON_SLOTS: Policy = Policy {
    tags: Tags::PerCpu,
    ..Policy::ADAPTIVE
};

/// CPUs 1 to `targets` run a space. Interrupting one costs 1,000 ns and 500 of its own, a broadcast `broadcasts_take`.
fn on_others(targets: usize, broadcasts_take: u64) -> (&'static World, &'static Sys, &'static OnHost) {
    under(ON_SLOTS, targets, broadcasts_take)
}

/// The same under another policy.
fn under(policy: Policy, targets: usize, broadcasts_take: u64) -> (&'static World, &'static Sys, &'static OnHost) {
    let (world, engine) = world(policy, 8);
    world.interrupts_take.set(1000);
    world.broadcasts_take.set(broadcasts_take);
    engine.calibrate();
    let space = space(engine, 1);
    run(world, engine, 1..1 + targets, space);
    forget(world);
    (world, engine, space)
}

/// [`ON_SLOTS`]; one request in so many is a sample.
const fn sampling(one_in: u32) -> Policy {
    Policy {
        sample_one_in: one_in,
        ..ON_SLOTS
    }
}

fn forget(world: &World) {
    world.interrupted();
    world.events.take();
    world.broadcasts.set(0);
    world.synchronised.set(0);
}

fn pages(count: u64) -> impl Iterator<Item = Range> {
    (0..count).map(|page| Range::page(0x10_0000 * (page + 1)))
}

fn batch(engine: &Sys, space: &OnHost, ranges: impl IntoIterator<Item = Range>) {
    let mut batch = engine.batch();
    ranges.into_iter().for_each(|range| batch.add(space, range));
    let _done = batch.finish();
}

/// Broadcasts since the last call, if no CPU was interrupted. They are complete.
fn broadcasts(world: &World) -> Option<u32> {
    let broadcasts = world.broadcasts.replace(0);
    assert_eq!(world.synchronised.replace(0) > 0, broadcasts > 0);
    world.interrupted().is_empty().then_some(broadcasts)
}

#[test]
fn few_pages_are_broadcast_with_one_synchronisation() {
    for (count, expected) in [(1, Some(1)), (4, Some(4)), (5, None), (32, None)] {
        let (world, engine, space) = on_others(2, 500);
        batch(engine, space, pages(count));
        assert_eq!(world.synchronised.get(), u32::from(expected.is_some()));
        assert_eq!(broadcasts(world), expected, "{count} pages");
        let chosen = Event::Chose {
            way: Way::Broadcast,
            targets: 2,
        };
        let events = world.events.take();
        assert_eq!(events.contains(&chosen), expected.is_some());
        assert!(!events.contains(&Event::LocalOnly), "it reached two CPUs");
    }
}

#[test]
fn batch_under_a_tag_reaches_all_cpus() {
    let (world, engine) = world(Policy::ARM_BROADCAST, 4);
    let space = space(engine, 1);
    run(world, engine, 0..1, space);
    for count in [1, 16, 17] {
        forget(world);
        batch(engine, space, pages(count));
        assert_eq!(broadcasts(world), Some(count as u32));
        assert!(!world.saw(|event| *event == Event::LocalOnly));
    }
}

/// One instruction takes eight pages. A range of 1 GiB pages, and one that is flushed with its tag, take none.
#[test]
fn instructions_are_counted_not_ranges() {
    let strides = |count: u64, stride: Stride| Range::pages(0, count * stride.bytes(), stride);
    for (ranges, expected) in [
        (vec![strides(32, Stride::Size4K)], Some(4)),
        (vec![strides(9, Stride::Size4K), strides(16, Stride::Size2M)], Some(4)),
        (vec![strides(9, Stride::Size4K), strides(17, Stride::Size2M)], None),
        (vec![strides(33, Stride::Size4K)], None),
        (vec![strides(1, Stride::Size1G)], None),
        (vec![Range::page(0x1000), Range::WHOLE], None),
        (vec![Range::WHOLE, Range::page(0x1000)], None),
    ] {
        let (world, engine, space) = on_others(2, 500);
        batch(engine, space, ranges.iter().copied());
        assert_eq!(broadcasts(world), expected, "{ranges:?}");
        if let [range] = ranges[..] {
            let _done = engine.flush(space, range);
            assert_eq!(broadcasts(world), expected, "a flush of {range:?}");
        }
    }
}

#[test]
fn pages_of_a_batch_are_broadcast_under_every_tag() {
    let (world, engine, space) = on_others(1, 500);
    batch(engine, space, [Range::page(0x7000)]);
    let expected = Broadcast::Kernel {
        address: 0x7000,
        stride: Stride::Size4K,
        count: 1,
        leaf_only: false,
    };
    assert_eq!(world.last_broadcast.get(), Some(expected));
}

/// Three targets cost an interrupt's 1,500 ns and 500 ns for each further one.
#[test]
fn batch_is_broadcast_from_the_threshold_of_a_flush() {
    for (targets, expected) in [(2, None), (3, Some(1))] {
        let (world, engine, space) = on_others(targets, 2300);
        assert_eq!(engine.costs().broadcast_from, 3);
        batch(engine, space, pages(1));
        assert_eq!(broadcasts(world), expected);
        flush(engine, space);
        assert_eq!(broadcasts(world), expected, "as a flush");
    }
}

/// Each instruction counts as much as a broadcast alone. One target costs 1,500 ns, and each further one 500 ns.
#[test]
fn several_broadcasts_must_cost_less_than_interrupts() {
    for (targets, count, cheaper) in [
        (1, 1, true),
        (1, 2, false),
        (2, 2, true),
        (3, 3, false),
        (4, 3, true),
        (5, 4, false),
        (6, 4, true),
    ] {
        let (world, engine, space) = on_others(targets, 1000);
        batch(engine, space, pages(count));
        let expected = cheaper.then_some(count as u32);
        assert_eq!(broadcasts(world), expected, "{count} pages, {targets} targets");
    }
    // Two spaces have two targets together.
    let (world, engine, one) = on_others(1, 1000);
    let other = space(engine, 2);
    run(world, engine, 2..3, other);
    forget(world);
    let mut batch = engine.batch();
    batch.add(one, Range::page(0x1000));
    batch.add(other, Range::page(0x1000));
    let _done = batch.finish();
    assert_eq!(broadcasts(world), Some(2));
}

/// Where broadcasts are carried out by interrupts, each takes time from every CPU: here 500 ns from seven.
#[test]
fn broadcasts_by_interrupts_cost_every_cpu() {
    for (by_interrupts, expected) in [(false, Some(2)), (true, None)] {
        let (world, engine) = world(ON_SLOTS, 8);
        world.by_interrupts.set(by_interrupts);
        world.interrupts_take.set(1000);
        world.broadcasts_take.set(10);
        engine.calibrate();
        let space = space(engine, 1);
        run(world, engine, 1..7, space);
        forget(world);
        assert!(engine.costs().broadcast_from <= 6);
        batch(engine, space, pages(2));
        assert_eq!(broadcasts(world), expected);
    }
}

#[test]
fn batch_without_targets_reaches_no_other_cpu() {
    let (world, engine, _) = on_others(3, 500);
    let idle = space(engine, 2);
    batch(engine, idle, pages(2));
    assert_eq!(broadcasts(world), Some(0));
    assert!(world.saw(|event| *event == Event::LocalOnly));
}

/// Its translations are on no other CPU, so they take no room in a batch.
#[test]
fn pages_of_a_space_that_no_cpu_runs_are_not_broadcast() {
    let (world, engine, active) = on_others(1, 500);
    let idle = space(engine, 2);
    let mut batch = engine.batch();
    pages(10).for_each(|range| batch.add(idle, range));
    batch.add(active, Range::page(0x1000));
    let _done = batch.finish();
    assert_eq!(broadcasts(world), Some(1));
}

/// It was no target when its page was added: the CPU that added it ran the space.
#[test]
fn page_of_the_cpu_that_added_it_is_broadcast_after_a_migration() {
    let (world, engine, one) = on_others(1, 500);
    let other = space(engine, 2);
    run(world, engine, 2..3, other);
    forget(world);
    let mut batch = world.on(1, || engine.batch());
    world.on(1, || batch.add(one, Range::page(0x1000)));
    world.on(0, || batch.add(other, Range::page(0x2000)));
    let _done = batch.finish();
    assert_eq!(broadcasts(world), Some(2));
}

/// This CPU catches up by itself.
#[test]
fn own_translations_are_flushed_where_the_others_are_broadcast() {
    let (world, engine, space) = on_others(1, 500);
    run(world, engine, 0..1, space);
    forget(world);
    world.invalidations.set(0);
    *world.on_invalidation.borrow_mut() = Some(Box::new(|| assert_ne!(world.pins.get(), 0, "it may migrate")));
    batch(engine, space, pages(1));
    assert_eq!(broadcasts(world), Some(1));
    assert_eq!((world.invalidations.get(), world.pins.get()), (1, 0));
}

#[test]
fn cpus_of_a_space_that_changes_its_tag_are_interrupted() {
    let (world, engine) = world(crate::promotion::PROMOTED_AT_4, 8);
    let (one, other) = (space(engine, 1), space(engine, 2));
    run(world, engine, 0..4, one);
    run(world, engine, 4..6, other);
    flush(engine, one);
    assert!(one.system_tag().is_some());
    forget(world);
    let mut batch = engine.batch();
    batch.add(other, Range::page(0x1000));
    batch.add(one, Range::page(0x1000));
    let _done = batch.finish();
    assert_eq!(world.interrupted(), [1, 2, 3, 4, 5]);
    assert_eq!(world.broadcasts.get(), 1, "under the tag");
}

#[test]
fn cpus_of_a_space_that_loses_its_tag_are_interrupted() {
    let (world, engine) = world(crate::promotion::PROMOTED_AT_4, 12);
    let (one, other) = (crate::promotion::promoted(world, engine, 1), space(engine, 2));
    run(world, engine, 2..12, other);
    assert!(crate::promotion::flushes_until_demotion(world, engine, one).is_some());
    forget(world);
    let mut batch = engine.batch();
    batch.add(other, Range::page(0x1000));
    batch.add(one, Range::page(0x1000));
    let _done = batch.finish();
    assert_eq!(world.interrupted(), Vec::from_iter(1..12));
}

/// The threshold has a margin of a quarter, and a batch with one broadcast goes the way of a flush within it.
#[test]
fn single_broadcast_follows_the_threshold() {
    let (world, engine, space) = under(sampling(1), 1, 1400);
    world.broadcasts_take.set(1700);
    (0..40).for_each(|_| flush(engine, space));
    let costs = engine.costs();
    assert!(
        costs.broadcast_ns > costs.disturbance_ns(1) && costs.broadcast_from == 1,
        "{costs:?}"
    );
    forget(world);
    batch(engine, space, pages(1));
    assert_eq!(broadcasts(world), Some(1));
}

#[test]
fn batch_is_interrupted_where_a_broadcast_proves_nothing() {
    let errata = Errata {
        interrupt_too: true,
        ..Errata::NONE
    };
    let design = ON_SLOTS.on(Machine {
        errata,
        ..Machine::PCID
    });
    let (world, engine) = world(design, 8);
    let space = space(engine, 1);
    run(world, engine, 1..3, space);
    forget(world);
    batch(engine, space, pages(1));
    assert_eq!(world.interrupted(), [1, 2]);
    assert_eq!(world.broadcasts.get(), 0);
}

/// The present cost of a few broadcasts says nothing about many.
#[test]
fn space_that_lost_its_tag_for_its_cost_is_interrupted() {
    let (world, engine, space) = on_six(500);
    changes(world, engine, space, 8);
    world.broadcasts_take.set(50_000);
    assert_eq!(changes(world, engine, space, 60), (0, 1));
    world.broadcasts_take.set(500);
    changes(world, engine, space, 600);
    assert_eq!(engine.costs().broadcast_from, 1);
    forget(world);
    batch(engine, space, pages(1));
    assert_eq!(broadcasts(world), None);
    // Without that, the same costs are in favour of a broadcast.
    let other = super::space(engine, 2);
    run(world, engine, 1..6, other);
    forget(world);
    batch(engine, other, pages(1));
    assert_eq!(broadcasts(world), Some(1));
}

/// Interrupts are timed. What several broadcasts take says nothing about one.
#[test]
fn batch_that_interrupts_is_a_sample() {
    for (count, learned) in [(5, true), (2, false)] {
        let (world, engine, space) = under(sampling(1), 1, 500);
        world.interrupts_take.set(3000);
        world.broadcasts_take.set(3000);
        let before = engine.costs();
        batch(engine, space, pages(count));
        let after = engine.costs();
        // By an eighth of the difference.
        let interrupt_ns = before.interrupt_ns + if learned { 250 } else { 0 };
        assert_eq!(
            (after.interrupt_ns, after.broadcast_ns),
            (interrupt_ns, before.broadcast_ns)
        );
    }
}

fn gather_two(engine: &Sys, space: &OnHost) {
    let mut buffer = [0_u64; 4];
    let mut gather = engine.gather(space, &mut buffer, |_: Freed<'_, u64>| {});
    gather.changed(Range::page(0x1000));
    gather.changed(Range::page(0x100_0000));
    gather.finish();
}

/// A gather with a sample is two requests, any other one. Without a tag each range counts, under a tag each gather.
#[test]
fn gathers_are_samples_as_often_as_flushes() {
    let (world, engine, other) = under(sampling(16), 1, 50_000);
    (0..160).for_each(|_| gather_two(engine, other));
    let requests = world.interrupted().len() + world.synchronised.get() as usize;
    assert!((179..=181).contains(&requests), "{requests}");

    let by_cost = Policy {
        sample_one_in: 16,
        ..BY_COST
    };
    let (world, engine, space) = under(by_cost, 6, 500);
    (0..160).for_each(|_| gather_two(engine, space));
    assert!(world.saw(|event| *event == Event::Promoted));
    forget(world);
    (0..160).for_each(|_| gather_two(engine, space));
    assert_eq!(world.interrupted(), []);
    let requests = world.synchronised.get();
    assert!((169..=171).contains(&requests), "{requests}");
}

/// A space of which several ranges are unmapped at a time gets a tag and gives it back, as by single flushes.
#[test]
fn gathers_of_two_ranges_are_samples() {
    for one_in in [1, 4] {
        let design = Policy {
            sample_one_in: one_in,
            ..BY_COST
        };
        let (world, engine) = world(design, 8);
        world.interrupts_take.set(1000);
        world.broadcasts_take.set(500);
        let space = space(engine, 1);
        run(world, engine, 0..6, space);
        let gathers_until = |happens: fn(&Event) -> bool| {
            world.events.take();
            (1..=400).find(|_| {
                gather_two(engine, space);
                world.saw(happens)
            })
        };
        let promoted = gathers_until(|event| *event == Event::Promoted);
        assert!(promoted.is_some_and(|after| after <= 4 * one_in), "{promoted:?}");
        gathers_until(|_| true);
        world.broadcasts_take.set(50_000);
        let demoted = gathers_until(|event| matches!(event, Event::Demoting { .. }));
        assert!(demoted.is_some_and(|after| after <= 60 * one_in), "{demoted:?}");
    }
}
