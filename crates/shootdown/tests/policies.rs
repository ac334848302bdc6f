//! When a space gets a system-wide tag and gives it back, when CPUs that have left are looked for, when walks go over to another
//! mode, how long deferred frames wait: exactly then, and not one sample, flush or nanosecond earlier or later. In a kernel on one
//! host thread whose interrupts are taken at once.

use shootdown::{
    Broadcast, BroadcastLimits, CpuMask, Departure, Design, Engine, Event, Kernel, Local, Native, PerCpu, Range, Root,
    Space, Storage, Stride, Tag, Tags, Unmapped, Walkers, tag_words,
};
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::atomic::AtomicU64;

type Sys = Engine<'static, &'static World, 1>;
type OnHost = Space<Native, 1>;

/// CPUs switched by hand; an interrupt runs its handler before the sender goes on.
#[derive(Default)]
struct World {
    engine: OnceCell<&'static Sys>,
    cpu: Cell<usize>,
    masked: Cell<bool>,
    now: Cell<u64>,
    interrupted: RefCell<Vec<usize>>,
    invalidations: Cell<u32>,
    broadcasts: Cell<u32>,
    events: RefCell<Vec<Event>>,
}

// SAFETY: each test uses its world from one thread.
unsafe impl Sync for World {}

impl Kernel<1> for &'static World {
    type Facade = Native;
    fn cpu(&self) -> usize {
        self.cpu.get()
    }
    fn interrupts_off(&self) -> u64 {
        u64::from(self.masked.replace(true))
    }
    fn interrupts_restore(&self, saved: u64) {
        self.masked.set(saved != 0);
    }
    fn send_ipi(&self, targets: &CpuMask<1>) {
        for target in targets.iter() {
            self.interrupted.borrow_mut().push(target);
            let (me, masked) = (self.cpu.replace(target), self.masked.replace(true));
            self.engine.get().expect("set").on_ipi();
            self.cpu.set(me);
            self.masked.set(masked);
        }
    }
    fn invalidate(&self, _what: Local) {
        self.invalidations.set(self.invalidations.get() + 1);
    }
    fn load_root(&self, _root: Root, _tag: Tag, _keep: bool) {}
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        Some(BroadcastLimits {
            max_pages: 8,
            max_large_pages: 8,
        })
    }
    fn broadcast(&self, _what: Broadcast) {
        self.broadcasts.set(self.broadcasts.get() + 1);
    }
    fn broadcast_sync(&self) {}
    fn now_ns(&self) -> u64 {
        self.now.get()
    }
    fn event(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }
}

impl World {
    fn on<T>(&self, cpu: usize, body: impl FnOnce() -> T) -> T {
        let me = self.cpu.replace(cpu);
        let result = body();
        self.cpu.set(me);
        result
    }

    /// CPUs interrupted since the last call.
    fn interrupted(&self) -> Vec<usize> {
        self.interrupted.take()
    }

    /// Whether something like `event` happened since the last call.
    fn saw(&self, event: impl Fn(&Event) -> bool) -> bool {
        self.events.take().iter().any(event)
    }
}

fn world(design: Design, cpus: usize) -> (&'static World, &'static Sys) {
    let design = Design { stuck_ns: 0, ..design };
    let world: &'static World = Box::leak(Box::default());
    let storage = Storage {
        cpus: Vec::leak((0..cpus).map(|_| PerCpu::new()).collect()),
        tags: Vec::leak((0..tag_words(design.tag_limit)).map(|_| AtomicU64::new(0)).collect()),
    };
    let engine: &'static Sys = Box::leak(Box::new(Engine::new(world, design, Root(0), storage)));
    assert!(world.engine.set(engine).is_ok());
    (0..cpus).for_each(|cpu| world.on(cpu, || engine.cpu_online()));
    (world, engine)
}

fn space(engine: &Sys, root: u64) -> &'static OnHost {
    Box::leak(Box::new(engine.space(Root(root))))
}

/// These CPUs run that space, in user mode.
fn run(world: &World, engine: &Sys, cpus: std::ops::Range<usize>, space: &OnHost) {
    // SAFETY: spaces are leaked.
    cpus.for_each(|cpu| world.on(cpu, || unsafe { engine.switch_to(space) }));
}

fn flush(engine: &Sys, space: &OnHost) {
    let _done = engine.flush(space, Range::page(0x1000));
}

/// Promoted at four CPUs; every flush is a sample.
const PROMOTED_AT_4: Design = Design {
    tags: Tags::Hybrid { promote_at: 4 },
    sample_one_in: 1,
    demote_after: 3,
    consider_window_ns: 1,
    ..Design::ADAPTIVE
};

fn promoted(world: &'static World, engine: &Sys, root: u64) -> &'static OnHost {
    let space = space(engine, root);
    run(world, engine, 0..6, space);
    // The first is broadcast and promotes, the second has CPUs move to the tag, the third finds that they have.
    (0..3).for_each(|_| flush(engine, space));
    assert!(space.system_tag().is_some() && world.saw(|event| *event == Event::Promoted));
    assert_eq!(world.interrupted().len(), 5);
    space
}

/// Flushes until the space gives its tag back, at most ten; how many that took.
fn flushes_until_demotion(world: &World, engine: &Sys, space: &OnHost) -> Option<u32> {
    world.events.take();
    (1..=10).find(|_| {
        flush(engine, space);
        world.saw(|event| matches!(event, Event::Demoting { .. }))
    })
}

#[test]
fn a_space_is_promoted_where_it_is_active_on_as_many_cpus_as_the_design_says() {
    for (active, is) in [(3, false), (4, true), (5, true)] {
        let (world, engine) = world(PROMOTED_AT_4, 6);
        let space = space(engine, 1);
        run(world, engine, 0..active, space);
        flush(engine, space);
        let promoting = world.events.take().into_iter().find_map(|event| match event {
            Event::Promoting { active, from } => Some((active, from)),
            _ => None,
        });
        assert_eq!(
            promoting,
            is.then_some((4, 4)),
            "{active} CPUs; no more are counted than are needed"
        );
        assert_eq!(space.system_tag().is_some(), is);
    }
}

#[test]
fn a_cpu_that_is_in_the_kernel_for_a_moment_counts_and_an_idle_one_does_not() {
    for idle in [false, true] {
        let (world, engine) = world(PROMOTED_AT_4, 6);
        let space = space(engine, 1);
        run(world, engine, 0..4, space);
        world.on(3, || match idle {
            true => engine.enter_lazy(),
            false => assert!(engine.enter_kernel(space)),
        });
        flush(engine, space);
        assert_eq!(space.system_tag().is_some(), !idle);
    }
}

#[test]
fn a_space_on_half_of_what_promotes_is_demoted_after_so_many_samples_in_a_row() {
    for (left, after) in [(3, None), (2, Some(3)), (1, Some(3))] {
        let (world, engine) = world(PROMOTED_AT_4, 6);
        let (one, other) = (promoted(world, engine, 1), space(engine, 9));
        run(world, engine, left..6, other);
        assert_eq!(flushes_until_demotion(world, engine, one), after, "active on {left}");
    }
}

#[test]
fn a_sample_that_finds_the_space_on_more_cpus_begins_the_count_anew() {
    let (world, engine) = world(PROMOTED_AT_4, 6);
    let (one, other) = (promoted(world, engine, 1), space(engine, 9));
    run(world, engine, 1..6, other);
    flush(engine, one);
    flush(engine, one);
    run(world, engine, 1..6, one);
    flush(engine, one);
    run(world, engine, 1..6, other);
    assert_eq!(flushes_until_demotion(world, engine, one), Some(3));
    // And so does a demotion, for a space that is promoted again.
    flush(engine, one);
    assert_eq!(one.system_tag(), None);
    run(world, engine, 1..6, one);
    (0..3).for_each(|_| flush(engine, one));
    assert!(one.system_tag().is_some());
    run(world, engine, 1..6, other);
    assert_eq!(flushes_until_demotion(world, engine, one), Some(3));
}

#[test]
fn while_tags_are_short_a_space_that_hardly_needs_its_tag_gives_it_up_at_once() {
    let design = Design {
        // One tag besides the slots.
        tag_limit: PROMOTED_AT_4.first_tag + PROMOTED_AT_4.slots as u16 + 1,
        ..PROMOTED_AT_4
    };
    for (left, gives_up) in [(6, true), (7, false)] {
        let (world, engine) = world(design, 12);
        let one = space(engine, 1);
        run(world, engine, 0..8, one);
        (0..3).for_each(|_| flush(engine, one));
        assert!(one.system_tag().is_some());
        assert_eq!(flushes_until_demotion(world, engine, one), None, "nobody else wants it");
        let (other, third) = (space(engine, 2), space(engine, 3));
        run(world, engine, 8..12, other);
        // Then it is CPU 8 that considers.
        world.now.set(32 - 8);
        world.on(8, || flush(engine, other));
        assert!(other.system_tag().is_none() && world.saw(|event| *event == Event::TagsExhausted));
        run(world, engine, left..8, third);
        flush(engine, one);
        let seen = world.events.take();
        let short = seen
            .iter()
            .any(|event| matches!(event, Event::Demoting { active, short: true } if *active == left as u32));
        assert_eq!(
            short, gives_up,
            "active on {left}: one and a half times what promotes, or more"
        );
        if gives_up {
            flush(engine, one);
            assert_eq!(one.system_tag(), None);
            world.on(8, || flush(engine, other));
            assert!(other.system_tag().is_some(), "the tag is free");
            // The shortage is over: the next to shrink takes its time.
            world.on(8, || (0..2).for_each(|_| flush(engine, other)));
            run(world, engine, 9..12, third);
            world.on(8, || assert_eq!(flushes_until_demotion(world, engine, other), Some(3)));
        }
    }
}

#[test]
fn a_demotion_interrupts_whoever_is_on_the_tag_lazy_or_not_and_then_nobody() {
    let (world, engine) = world(PROMOTED_AT_4, 6);
    let (one, other) = (promoted(world, engine, 1), space(engine, 9));
    run(world, engine, 3..6, other);
    world.on(1, || engine.enter_lazy());
    world.on(2, || engine.enter_lazy());
    flush(engine, one);
    flush(engine, one);
    assert_eq!(world.interrupted(), []);
    flush(engine, one);
    assert_eq!(world.interrupted(), [1, 2], "the lazy ones let go of the tag");
    let before = world.broadcasts.get();
    flush(engine, one);
    assert!(world.saw(|event| *event == Event::Demoted) && one.system_tag().is_none());
    assert!(world.broadcasts.get() > before, "the tag is invalidated everywhere");
    let before = world.broadcasts.get();
    flush(engine, one);
    assert_eq!((world.broadcasts.get(), world.interrupted()), (before, vec![]));
}

#[test]
fn cpus_that_have_left_are_looked_for_once_in_a_period_and_the_first_time_a_period_after_the_first_look() {
    let design = Design {
        departure: Departure::WhenAsked { trim_ns: 100 },
        ..Design::IPI
    };
    let (world, engine) = world(design, 4);
    let (one, other) = (space(engine, 1), space(engine, 2));
    run(world, engine, 0..4, one);
    run(world, engine, 3..4, other);
    let at = |now, expected: &[usize]| {
        world.now.set(now);
        flush(engine, one);
        assert_eq!(world.interrupted(), expected, "at {now} ns");
    };
    at(1000, &[1, 2]);
    at(1050, &[1, 2]);
    at(1099, &[1, 2]);
    at(1100, &[1, 2, 3]);
    at(1101, &[1, 2]);
    assert!(!one.cpus().contains(3), "it has left when it was asked");
    run(world, engine, 2..3, other);
    at(1199, &[1]);
    at(1200, &[1, 2]);
    assert!(!one.cpus().contains(2));
    // Where nobody has left nothing is looked for, and the period does not begin.
    at(5000, &[1]);
    run(world, engine, 1..2, other);
    at(5001, &[1]);
    at(5002, &[]);
}

#[test]
fn deferred_frames_up_to_the_limit_wait_and_those_beyond_do_not() {
    let design = Design {
        defer_frames: 8,
        ..Design::DEFERRED
    };
    let (world, engine) = world(design, 3);
    let one = space(engine, 1);
    run(world, engine, 0..2, one);
    let later = |frames| engine.flush_later(one, Range::page(0x1000), frames);
    let Unmapped::Later(first) = later(5) else {
        panic!("5 of 8")
    };
    let Unmapped::Later(second) = later(3) else {
        panic!("8 of 8")
    };
    assert_eq!(world.interrupted(), []);
    assert!(matches!(later(1), Unmapped::Now(_)));
    assert_eq!(world.interrupted(), [1]);
    assert!(
        world.on(1, || matches!(later(8), Unmapped::Later(_))),
        "each CPU has a limit of its own"
    );
    let tick = |cpu| world.on(cpu, || engine.tick());
    let over = || {
        (0..2).for_each(tick);
        engine.deferrals_over()
    };
    let _begins_the_next = over();
    let over = over();
    assert!(engine.release(first, &over).is_ok());
    let Unmapped::Later(_) = later(5) else {
        panic!("5 came back")
    };
    assert!(matches!(later(1), Unmapped::Now(_)), "and no more");
    assert!(engine.release(second, &over).is_ok());
    assert!(matches!(later(3), Unmapped::Later(_)));
}

#[test]
fn an_epoch_is_over_when_every_cpu_has_ticked_in_it_and_only_then_does_the_next_begin() {
    let (world, engine) = world(Design::DEFERRED, 3);
    let one = space(engine, 1);
    run(world, engine, 0..3, one);
    let tick = |cpu| world.on(cpu, || engine.tick());
    let later = || match engine.flush_later(one, Range::page(0x1000), 1) {
        Unmapped::Later(deferral) => deferral,
        Unmapped::Now(_) => panic!("it interrupts nobody"),
    };
    let first = later();
    // Everybody is through with the epoch of before: the one that `first` waits for begins.
    (0..3).for_each(tick);
    let first = engine
        .release(first, &engine.deferrals_over())
        .expect_err("it has just begun");
    let before = world.invalidations.get();
    tick(0);
    tick(1);
    tick(1);
    assert_eq!(
        world.invalidations.get(),
        before + 1,
        "CPU 1, once; CPU 0 has flushed what it unmapped"
    );
    // A deferral that is made while some have ticked and others not waits for the next epoch.
    let second = later();
    let first = engine
        .release(first, &engine.deferrals_over())
        .expect_err("CPU 2 has not ticked");
    tick(2);
    let over = engine.deferrals_over();
    assert!(engine.release(first, &over).is_ok());
    let second = engine
        .release(second, &over)
        .expect_err("CPU 1 ticked before it was made");
    (0..3).for_each(tick);
    assert!(engine.release(second, &engine.deferrals_over()).is_ok());
}

#[test]
fn a_cpu_without_ticks_is_interrupted_at_once_and_with_ticks_again_waited_for() {
    let (world, engine) = world(Design::DEFERRED, 3);
    let one = space(engine, 1);
    run(world, engine, 0..3, one);
    let later = || engine.flush_later(one, Range::page(0x1000), 1);
    world.on(2, || engine.tick_resumes());
    world.on(2, || engine.tick_stops());
    assert!(matches!(later(), Unmapped::Now(_)), "it runs the space");
    assert_eq!(world.interrupted(), [1, 2]);
    world.on(2, || engine.tick_resumes());
    let Unmapped::Later(mut waiting) = later() else {
        panic!("it has ticks again")
    };
    let tick = |cpu| world.on(cpu, || engine.tick());
    for _ in 0..3 {
        (0..2).for_each(tick);
        waiting = engine
            .release(waiting, &engine.deferrals_over())
            .expect_err("it has not ticked");
    }
    for _ in 0..2 {
        (0..3).for_each(tick);
        let _ = engine.deferrals_over();
    }
    assert!(engine.release(waiting, &engine.deferrals_over()).is_ok());
    // Elsewhere it does not concern the space, and is not waited for either.
    world.on(2, || engine.switch_to_kernel());
    world.on(2, || engine.tick_stops());
    let other = space(engine, 2);
    run(world, engine, 2..3, other);
    let Unmapped::Later(waiting) = later() else {
        panic!("nobody without ticks runs it")
    };
    for _ in 0..2 {
        (0..2).for_each(tick);
        let _ = engine.deferrals_over();
    }
    assert!(engine.release(waiting, &engine.deferrals_over()).is_ok());
    assert_eq!(world.interrupted(), []);
}

fn tables() -> Range {
    Range::pages(0x20_0000, 0x40_0000, Stride::Size2M)
}

/// Frees tables `frees` times, `ns` apart, each found by one walker of CPU 1 that has walked `walks` times since the last; CPUs
/// interrupted by all of that.
fn free(world: &World, engine: &Sys, space: &OnHost, frees: u32, ns: u64, walks: u32) -> usize {
    for _ in 0..frees {
        world.now.set(world.now.get() + ns);
        world.on(1, || (0..walks).for_each(|_| drop(engine.walk(space))));
        let _free = engine.flush_tables(space, tables());
    }
    world.interrupted().len()
}

#[test]
fn walks_are_published_where_a_registration_serves_fewer_than_an_interrupt_is_worth() {
    let design = Design {
        walkers: Walkers::Adaptive,
        ..Design::IPI
    };
    // An interrupt is worth 40 barriers, and with one walker told three more.
    for (walks, published) in [(42, true), (43, false)] {
        let (world, engine) = world(design, 4);
        let one = space(engine, 1);
        assert_eq!(free(world, engine, one, 15, 10, walks), 15, "not before the 16th");
        let changes = usize::from(published) * 3;
        assert_eq!(
            free(world, engine, one, 1, 10, walks),
            1 + changes,
            "{walks} walks each"
        );
        assert_eq!(world.saw(|event| *event == Event::WalksChanged), published);
        assert_eq!(free(world, engine, one, 15, 10, walks), if published { 0 } else { 15 });
    }
}

#[test]
fn too_few_registrations_decide_nothing() {
    let design = Design {
        walkers: Walkers::Adaptive,
        ..Design::IPI
    };
    let (world, engine) = world(design, 4);
    let one = space(engine, 1);
    assert_eq!(free(world, engine, one, 15, 10, 1), 15);
    assert_eq!(free(world, engine, one, 1, 10, 0), 0, "15 of 16");
    assert!(!world.saw(|event| *event == Event::WalksChanged));
    assert_eq!(free(world, engine, one, 15, 10, 1), 15, "and counts anew");
    assert_eq!(free(world, engine, one, 1, 10, 1), 1 + 3);
}

#[test]
fn walks_are_registered_again_when_frees_have_become_four_times_rarer() {
    let design = Design {
        walkers: Walkers::Adaptive,
        ..Design::IPI
    };
    for (ns, again) in [(400, false), (401, true)] {
        let (world, engine) = world(design, 4);
        let one = space(engine, 1);
        assert_eq!(free(world, engine, one, 16, 100, 1), 16 + 3);
        assert_eq!(free(world, engine, one, 16, 100, 1), 0, "as often as before");
        assert_eq!(
            free(world, engine, one, 16, ns, 1),
            usize::from(again) * 3,
            "{ns} ns apart"
        );
        let registered = free(world, engine, one, 1, ns, 1);
        assert_eq!(
            registered,
            usize::from(again),
            "the walker is registered, or has published itself"
        );
    }
}

#[test]
fn going_over_to_published_walks_forgets_every_registration() {
    let design = Design {
        walkers: Walkers::Adaptive,
        ..Design::IPI
    };
    let (world, engine) = world(design, 4);
    let one = space(engine, 1);
    // Those who told are registered too, and CPU 3 was registered all the time for it runs the space.
    run(world, engine, 3..4, one);
    drop(engine.walk(one));
    world.on(3, || drop(engine.walk(one)));
    while !world.saw(|event| *event == Event::WalksChanged) {
        free(world, engine, one, 1, 10, 1);
    }
    world.on(3, || engine.switch_to_kernel());
    (0..4).for_each(|cpu| world.on(cpu, || drop(engine.walk(one))));
    world.interrupted();
    for free_from in 0..4 {
        world.on(free_from, || drop(engine.flush_tables(one, tables())));
        assert_eq!(
            world.interrupted(),
            [],
            "nobody is registered, told from CPU {free_from}"
        );
    }
    // A published walk under way is found.
    let walk = world.on(2, || engine.walk(one));
    world.masked.set(false);
    drop(engine.flush_tables(one, tables()));
    assert_eq!(world.interrupted(), [2]);
    world.on(2, || drop(walk));
}

#[test]
fn a_design_without_invalidation_asks_for_nothing() {
    let design = Design {
        free: shootdown::Free::Deferred,
        walkers: Walkers::GracePeriod,
        ..Design::NONE
    };
    let (world, engine) = world(design, 3);
    let one = space(engine, 1);
    run(world, engine, 0..3, one);
    world.invalidations.set(0);
    flush(engine, one);
    let flushed = engine.flush(one, tables().with_tables());
    let _ = engine.retire_tables(one, &flushed);
    let _ = engine.flush_kernel(Range::page(0x1000));
    assert!(matches!(
        engine.flush_later(one, Range::page(0x1000), 1),
        Unmapped::Now(_)
    ));
    assert!(matches!(
        engine.flush_tables_later(one, tables()),
        shootdown::Retired::Now(_)
    ));
    let mut batch = engine.batch();
    batch.add(one, Range::page(0x1000));
    let _ = batch.finish();
    engine.settle(one);
    let (interrupted, events) = (world.interrupted(), world.events.take());
    assert_eq!(
        (interrupted.len(), world.invalidations.get(), world.broadcasts.get()),
        (0, 0, 0),
        "{events:?}"
    );
}
