//! Tests when a space gets and gives back a system-wide tag, when CPUs that have left are looked for, when walks change
//! to another mode, and how long deferred frames wait. They check the exact sample, flush or nanosecond. The kernel
//! runs on one host thread, and interrupts are taken at once.

mod batches;
mod deferral;
mod demotion;
mod guards;
mod kernel;
mod local_first;
mod promotion;
mod tag_policy;
mod targets;
mod walks;

use shootdown::{
    Broadcast, BroadcastLimits, CpuMask, Design, Engine, Event, Kernel, Local, Native, PerCpu, Policy, Range, Requests,
    Root, Space, Storage, Stride, Tag, Unmapped, Walkers, Way, tag_words,
};
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::atomic::AtomicU64;

type Sys = Engine<'static, &'static World, 1>;
type OnHost = Space<Native, 1>;

/// The test selects the CPU. An interrupt runs its handler before the sender continues.
#[derive(Default)]
struct World {
    engine: OnceCell<&'static Sys>,
    cpu: Cell<usize>,
    masked: Cell<bool>,
    now: Cell<u64>,
    /// How far the clock advances at each interrupt, and at each synchronisation of a broadcast.
    interrupts_take: Cell<u64>,
    broadcasts_take: Cell<u64>,
    interrupted: RefCell<Vec<usize>>,
    invalidations: Cell<u32>,
    broadcasts: Cell<u32>,
    last_broadcast: Cell<Option<Broadcast>>,
    /// Broadcasts that were synchronised.
    synchronised: Cell<u32>,
    /// Interrupts are not taken.
    deaf: Cell<bool>,
    /// There is no broadcast hardware.
    has_none: Cell<bool>,
    /// Broadcasts are carried out by interrupts.
    by_interrupts: Cell<bool>,
    /// Broadcasts are targeted at CPUs.
    targeted: Cell<bool>,
    /// Called at every invalidation, and at the next broadcast.
    on_invalidation: RefCell<Option<Box<dyn Fn()>>>,
    on_broadcast: RefCell<Option<Box<dyn Fn()>>>,
    /// Pins that have not ended.
    pins: Cell<u32>,
    /// Called at the next pin.
    on_pin: RefCell<Option<Box<dyn Fn()>>>,
    /// Called when the next target has been found online: it may go offline now.
    on_target: RefCell<Option<Box<dyn Fn()>>>,
    /// Called when all targets have carried out the next interrupt, before its sender continues.
    on_answer: RefCell<Option<Box<dyn Fn()>>>,
    /// Called before each root load.
    on_load: RefCell<Option<Box<dyn Fn()>>>,
    events: RefCell<Vec<Event>>,
}

// SAFETY: each test uses its world from one thread.
unsafe impl Sync for World {}

// SAFETY: one thread, which selects the CPU; no translations.
unsafe impl Kernel<1> for &'static World {
    const PREEMPTIBLE: bool = false;
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
        for target in targets.iter().filter(|_| !self.deaf.get()) {
            self.interrupted.borrow_mut().push(target);
            let (me, masked) = (self.cpu.replace(target), self.masked.replace(true));
            // SAFETY: one thread, which selects the CPU.
            unsafe { self.engine.get().expect("set").on_ipi() };
            self.cpu.set(me);
            self.masked.set(masked);
        }
        self.now.set(self.now.get() + self.interrupts_take.get());
        let act = self.on_answer.borrow_mut().take();
        act.iter().for_each(|act| act());
    }
    fn invalidate(&self, _what: Local) {
        self.invalidations.set(self.invalidations.get() + 1);
        if let Some(act) = &*self.on_invalidation.borrow() {
            act();
        }
    }
    fn load_root(&self, _root: Root, _tag: Tag, _keep: bool) {
        if let Some(act) = &*self.on_load.borrow() {
            act();
        }
    }
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        (!self.has_none.get()).then_some(BroadcastLimits {
            max_pages: 8,
            max_large_pages: 8,
        })
    }
    fn broadcast_interrupts(&self) -> bool {
        self.by_interrupts.get()
    }
    fn broadcast_is_targeted(&self) -> bool {
        self.targeted.get()
    }
    fn broadcast(&self, what: Broadcast) {
        assert!(!self.has_none.get(), "there are no broadcasts");
        self.last_broadcast.set(Some(what));
        self.broadcasts.set(self.broadcasts.get() + 1);
        let act = self.on_broadcast.borrow_mut().take();
        act.iter().for_each(|act| act());
    }
    fn broadcast_sync(&self) {
        self.synchronised.set(self.synchronised.get() + 1);
        self.now.set(self.now.get() + self.broadcasts_take.get());
    }
    fn flush_at_entry(&self, _cpu: usize) -> bool {
        let act = self.on_target.borrow_mut().take();
        act.iter().for_each(|act| act());
        false
    }
    fn unpin(&self) {
        self.pins.set(self.pins.get() - 1);
    }
    fn pin(&self) {
        self.pins.set(self.pins.get() + 1);
        let act = self.on_pin.borrow_mut().take();
        act.iter().for_each(|act| act());
    }
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

fn world(design: impl Into<Design>, cpus: usize) -> (&'static World, &'static Sys) {
    let mut design = design.into();
    design.policy.stuck_ns = 0;
    let world: &'static World = Box::leak(Box::default());
    let storage = Storage {
        cpus: Vec::leak((0..cpus).map(|_| PerCpu::new()).collect()),
        tags: Vec::leak(
            (0..tag_words(design.machine.tag_limit))
                .map(|_| AtomicU64::new(0))
                .collect(),
        ),
    };
    let engine: &'static Sys = Box::leak(Box::new(Engine::new(world, design, Root(0), storage)));
    assert!(world.engine.set(engine).is_ok());
    (0..cpus).for_each(|cpu| world.on(cpu, || engine.cpu_online()));
    (world, engine)
}

fn space(engine: &Sys, root: u64) -> &'static OnHost {
    Box::leak(Box::new(engine.space(Root(root))))
}

/// These CPUs run `space`, in user mode.
fn run(world: &World, engine: &Sys, cpus: std::ops::Range<usize>, space: &OnHost) {
    // SAFETY: spaces are leaked.
    cpus.for_each(|cpu| world.on(cpu, || unsafe { engine.switch_to(space) }));
}

fn flush(engine: &Sys, space: &OnHost) {
    let _done = engine.flush(space, Range::page(0x1000));
}

fn tables() -> Range {
    Range::pages(0x20_0000, 0x40_0000, Stride::Size2M)
}

#[test]
fn policy_none_sends_nothing() {
    let design = Policy {
        free: shootdown::Free::Deferred,
        walkers: Walkers::GracePeriod,
        ..Policy::NONE
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
    engine.flush_pending(one);
    let (interrupted, events) = (world.interrupted(), world.events.take());
    assert_eq!(
        (interrupted.len(), world.invalidations.get(), world.broadcasts.get()),
        (0, 0, 0),
        "{events:?}"
    );
}

#[test]
fn adaptive_without_broadcast_hardware_never_broadcasts() {
    let (world, engine) = world(Policy::ADAPTIVE, 4);
    world.has_none.set(true);
    let clock: &'static Cell<u64> = Box::leak(Box::default());
    *world.on_invalidation.borrow_mut() = Some(Box::new(|| {
        clock.set(clock.get() + 100);
        world.now.set(clock.get());
    }));
    let costs = engine.calibrate();
    assert_eq!(costs.broadcast_from, u64::MAX);
    let one = space(engine, 1);
    run(world, engine, 0..4, one);
    (0..100).for_each(|_| flush(engine, one));
    assert_eq!(world.broadcasts.get(), 0);
}

#[test]
fn request_is_broadcast_only_for_short_ranges_of_supported_stride() {
    let design = Policy {
        tags: shootdown::Tags::PerCpu,
        ..Policy::ADAPTIVE
    };
    let (world, engine) = world(design, 8);
    let one = space(engine, 1);
    run(world, engine, 0..8, one);
    // What is broadcast: up to this many pages, eight per instruction; not with strides of 1 GiB.
    let is_broadcast = |range: Range| {
        world.events.take();
        let _ = engine.flush(one, range);
        world.saw(|event| {
            matches!(
                event,
                Event::Chose {
                    way: shootdown::Way::Broadcast,
                    ..
                }
            )
        })
    };
    let pages = |count: u64| Range::pages(0, count * 4096, Stride::Size4K);
    let most = (1..200)
        .rev()
        .find(|&count| is_broadcast(pages(count)))
        .expect("one page is");
    assert_eq!(most % 8, 0, "instructions are used whole");
    assert!((1..=most).all(|count| is_broadcast(pages(count))));
    assert!(!is_broadcast(Range::pages(0, 1 << 30, Stride::Size1G)));
}

#[test]
fn request_without_targets_is_never_broadcast() {
    let design = Policy {
        tags: shootdown::Tags::PerCpu,
        ..Policy::ADAPTIVE
    };
    let (world, engine) = world(design, 4);
    let one = space(engine, 1);
    run(world, engine, 0..2, one);
    (0..40).for_each(|_| flush(engine, one));
    assert_eq!(world.broadcasts.get(), 40, "to one other");
    run(world, engine, 1..2, space(engine, 2));
    (0..4000).for_each(|_| flush(engine, one));
    assert_eq!(world.broadcasts.get(), 40);
}

/// Between the send and the wait the caller does something else.
#[test]
fn what_a_caller_does_before_it_waits_is_not_timed() {
    let design = Policy {
        sample_one_in: 1,
        ..Policy::ADAPTIVE
    };
    let (world, engine) = world(design, 2);
    let one = space(engine, 1);
    run(world, engine, 0..2, one);
    world.interrupts_take.set(1000);
    world.broadcasts_take.set(50_000);
    engine.calibrate();
    let before = engine.costs();
    let token = engine.dispatch(one, Range::page(0x1000));
    world.now.set(world.now.get() + 100_000);
    let _done = token.wait();
    assert!(world.saw(|event| matches!(event, Event::Measured { took_ns: 1000, .. })));
    assert_eq!(engine.costs(), before);
}

#[test]
fn sample_by_interrupts_counts_its_targets() {
    for requests in [Requests::Log, Requests::PerRequest] {
        let design = Policy {
            sample_one_in: 1,
            requests,
            ..Policy::ADAPTIVE
        };
        let (world, engine) = world(design, 4);
        let one = space(engine, 1);
        run(world, engine, 0..4, one);
        world.interrupts_take.set(1000);
        world.broadcasts_take.set(50_000);
        engine.calibrate();
        flush(engine, one);
        let measured = |event: &Event| {
            matches!(
                event,
                Event::Measured {
                    way: Way::Interrupts,
                    targets: 3,
                    ..
                }
            )
        };
        assert!(world.saw(measured), "{requests:?}");
    }
}

#[test]
fn costly_broadcast_is_sampled_less_often() {
    let design = Policy {
        tags: shootdown::Tags::PerCpu,
        sample_one_in: 1,
        ..Policy::ADAPTIVE
    };
    let (world, engine) = world(design, 4);
    let one = space(engine, 1);
    run(world, engine, 0..2, one);
    world.interrupts_take.set(1000);
    let broadcasts = |flushes: u32| {
        let before = world.broadcasts.get();
        (0..flushes).for_each(|_| flush(engine, one));
        world.broadcasts.get() - before
    };
    for (take, least, most) in [(8000, 64, 64), (40_000, 20, 40), (400_000, 1, 5)] {
        world.broadcasts_take.set(take);
        let _until_believed = broadcasts(1000);
        let seen = broadcasts(1024);
        assert!(
            (least..=most).contains(&seen),
            "{seen} of 1024, where they take {take} ns"
        );
    }
    world.broadcasts_take.set(10);
    let _until_believed = broadcasts(20_000);
    let seen = broadcasts(1024);
    assert!(
        (1010..1024).contains(&seen),
        "{seen} of 1024, now that interrupts cost more"
    );
}

#[test]
fn cpu_going_offline_is_not_waited_for_and_catches_up_online() {
    for requests in [shootdown::Requests::PerRequest, shootdown::Requests::PerCpu] {
        let (world, engine) = world(
            Policy {
                requests,
                ..Policy::IPI
            },
            3,
        );
        let one = space(engine, 1);
        for _ in 0..3 {
            run(world, engine, 0..3, one);
            *world.on_target.borrow_mut() = Some(Box::new(move || world.on(1, || engine.cpu_offline())));
            flush(engine, one);
            assert!(!world.interrupted().contains(&0));
            world.on(1, || engine.cpu_online());
            run(world, engine, 0..3, one);
            flush(engine, one);
            assert_eq!(world.interrupted(), [1, 2], "nothing of before is in its way");
        }
    }
}
