//! The engine on this host's own atomics, embedded in the smallest kernel that can show what it asks for.

use shootdown::{
    Broadcast, BroadcastLimits, CpuMask, Design, Engine, Kernel, Local, Native, PerCpu, Range, Reach, Root, Secondary,
    Storage,
};
use shootdown::{Stride, Stuck, Tag, Tags, tag_words};
use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;

/// A kernel on one host thread: records what the engine asks for. "CPUs" are switched by hand.
#[derive(Default)]
struct Recorder {
    cpu: Cell<usize>,
    masked: Cell<bool>,
    pins: Cell<u32>,
    local: RefCell<Vec<(usize, Local)>>,
    loads: RefCell<Vec<(usize, Tag, bool)>>,
    broadcasts: RefCell<Vec<Broadcast>>,
    synced: Cell<u32>,
    ipis: Cell<usize>,
    limits: Option<BroadcastLimits>,
    now: Cell<u64>,
    on_clock: RefCell<Option<Box<dyn Fn()>>>,
    reported: RefCell<Vec<usize>>,
    /// What a device was told, where there is one; tickets count from 1.
    device: Cell<bool>,
    told: RefCell<Vec<(Root, Secondary)>>,
    awaited: RefCell<Vec<u64>>,
}

// SAFETY: each test uses its kernel from one thread.
unsafe impl Sync for Recorder {}

impl Kernel<1> for &Recorder {
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
        assert!(!targets.contains(self.cpu.get()), "nobody interrupts itself");
        self.ipis.set(self.ipis.get() + targets.len());
    }
    fn invalidate(&self, what: Local) {
        self.local.borrow_mut().push((self.cpu.get(), what));
    }
    fn load_root(&self, _root: Root, tag: Tag, keep: bool) {
        assert!(self.masked.get(), "roots are loaded with interrupts off");
        self.loads.borrow_mut().push((self.cpu.get(), tag, keep));
    }
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        self.limits
    }
    fn now_ns(&self) -> u64 {
        if let Some(act) = &*self.on_clock.borrow() {
            self.now.set(self.now.get() + 1);
            act();
        }
        self.now.get()
    }
    fn stuck(&self, report: Stuck) {
        self.reported.borrow_mut().push(report.target);
    }
    fn secondary(&self, root: Root, told: Secondary) -> u64 {
        assert_ne!(self.pins.get(), 0, "told where migration is forbidden");
        self.told.borrow_mut().push((root, told));
        if self.device.get() {
            self.told.borrow().len() as u64
        } else {
            0
        }
    }
    fn secondary_sync(&self, ticket: u64) {
        self.awaited.borrow_mut().push(ticket);
    }
    fn pin(&self) {
        self.pins.set(self.pins.get() + 1);
    }
    fn unpin(&self) {
        self.pins.set(self.pins.get() - 1);
    }
    fn broadcast(&self, what: Broadcast) {
        assert_ne!(self.pins.get(), 0, "broadcasts are issued where migration is forbidden");
        self.broadcasts.borrow_mut().push(what);
    }
    fn broadcast_sync(&self) {
        assert_ne!(self.pins.get(), 0, "the CPU that issued is the one that synchronises");
        self.synced.set(self.synced.get() + 1);
    }
}

struct Machine {
    cpus: Vec<PerCpu<Native>>,
    tags: Vec<AtomicU64>,
}

impl Machine {
    fn new(cpus: usize, design: &Design) -> Self {
        Machine {
            cpus: (0..cpus).map(|_| PerCpu::new()).collect(),
            tags: (0..tag_words(design.tag_limit)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn engine<'a>(&'a self, kernel: &'a Recorder, design: Design) -> Engine<'a, &'a Recorder, 1> {
        let engine = Engine::new(
            kernel,
            design,
            Root(0),
            Storage {
                cpus: &self.cpus,
                tags: &self.tags,
            },
        );
        for cpu in 0..self.cpus.len() {
            kernel.cpu.set(cpu);
            engine.cpu_online();
        }
        kernel.cpu.set(0);
        kernel.local.borrow_mut().clear();
        engine
    }
}

#[test]
fn a_space_on_one_cpu_is_flushed_without_interrupts_page_by_page() {
    let (kernel, machine) = (Recorder::default(), Machine::new(4, &Design::IPI));
    let engine = machine.engine(&kernel, Design::IPI);
    let space = engine.space(Root(1));
    // SAFETY: the space outlives the engine's use of it.
    unsafe { engine.switch_to(&space) };
    let _done = engine.flush(&space, Range::pages(0x5000, 0x8000, Stride::Size4K));
    assert_eq!(kernel.ipis.get(), 0);
    let pages: Vec<_> = kernel.local.borrow().iter().map(|&(cpu, what)| (cpu, what)).collect();
    assert_eq!(pages.len(), 3, "{pages:?}");
    for (index, (cpu, what)) in pages.into_iter().enumerate() {
        let address = 0x5000 + index as u64 * 4096;
        assert_eq!(
            (cpu, what),
            (
                0,
                Local::Page {
                    address,
                    stride: Stride::Size4K,
                    tag: Tag(1),
                    leaf_only: true
                }
            )
        );
    }
}

#[test]
fn a_range_above_the_ceiling_flushes_the_tag() {
    let (kernel, machine) = (Recorder::default(), Machine::new(1, &Design::IPI));
    let engine = machine.engine(&kernel, Design::IPI);
    let space = engine.space(Root(1));
    // SAFETY: as above.
    unsafe { engine.switch_to(&space) };
    let _done = engine.flush(&space, Range::pages(0, 34 * 4096, Stride::Size4K));
    assert_eq!(*kernel.local.borrow(), [(0, Local::Tag(Tag(1)))]);
}

#[test]
fn a_slot_that_is_behind_is_flushed_at_its_next_load_and_one_that_is_not_is_kept() {
    let (kernel, machine) = (Recorder::default(), Machine::new(2, &Design::IPI));
    let engine = machine.engine(&kernel, Design::IPI);
    let (a, b) = (engine.space(Root(1)), engine.space(Root(2)));
    // SAFETY: as above.
    unsafe {
        engine.switch_to(&a);
        engine.switch_to(&b);
        engine.switch_to(&a);
    }
    let _done = engine.flush(&b, Range::page(0x1000));
    // SAFETY: as above.
    unsafe { engine.switch_to(&b) };
    let loads: Vec<_> = kernel
        .loads
        .borrow()
        .iter()
        .map(|&(_, tag, keep)| (tag.0, keep))
        .collect();
    assert_eq!(loads, [(1, false), (2, false), (1, true), (2, false)]);
}

#[test]
fn the_flush_log_lets_a_slot_several_generations_behind_catch_up_page_by_page() {
    let design = Design {
        tags: Tags::PerCpu,
        log_reach: 32,
        ..Design::ADAPTIVE
    };
    let (kernel, machine) = (Recorder::default(), Machine::new(2, &design));
    let engine = machine.engine(&kernel, design);
    let (a, b) = (engine.space(Root(1)), engine.space(Root(2)));
    // SAFETY: as above.
    unsafe {
        engine.switch_to(&a);
        engine.switch_to(&b);
    }
    for page in 0..5 {
        let _done = engine.flush(&a, Range::page(page * 4096));
    }
    assert!(
        kernel.local.borrow().is_empty(),
        "the space is not loaded, nothing is due yet"
    );
    // SAFETY: as above.
    unsafe { engine.switch_to(&a) };
    assert_eq!(
        kernel.loads.borrow().last().copied(),
        Some((0, Tag(1), true)),
        "its entries are kept"
    );
    let flushed: Vec<_> = kernel.local.borrow().iter().map(|&(_, what)| what).collect();
    assert_eq!(flushed.len(), 5);
    assert!(
        flushed.iter().all(|what| matches!(what, Local::Page { .. })),
        "{flushed:?}"
    );
}

#[test]
fn what_a_cpu_flushes_alone_leaves_no_entry_and_a_slot_elsewhere_is_flushed_whole() {
    let design = Design {
        tags: Tags::PerCpu,
        log_reach: 32,
        ..Design::ADAPTIVE
    };
    // Alone, and with the company of CPU 1, which has gone lazy.
    for (company, kept) in [(false, false), (true, true)] {
        let (kernel, machine) = (Recorder::default(), Machine::new(3, &design));
        let engine = machine.engine(&kernel, design);
        let (a, b) = (engine.space(Root(1)), engine.space(Root(2)));
        let on = |cpu: usize| kernel.cpu.set(cpu);
        // SAFETY: as above.
        unsafe {
            on(2);
            engine.switch_to(&a);
            engine.switch_to(&b);
            if company {
                on(1);
                engine.switch_to(&a);
                engine.enter_lazy();
            }
            on(0);
            engine.switch_to(&a);
        }
        let _done = engine.flush(&a, Range::page(0x1000));
        assert_eq!(kernel.local.borrow().len(), 1, "its own page, nothing else");
        assert_eq!(kernel.ipis.get(), 0);
        on(2);
        // SAFETY: as above.
        unsafe { engine.switch_to(&a) };
        let load = kernel.loads.borrow().last().copied();
        assert_eq!(load, Some((2, Tag(1), kept)), "company: {company}");
    }
}

#[test]
fn a_log_that_was_overrun_means_the_whole_tag() {
    let design = Design {
        tags: Tags::PerCpu,
        ..Design::ADAPTIVE
    };
    let (kernel, machine) = (Recorder::default(), Machine::new(2, &design));
    let engine = machine.engine(&kernel, design);
    let (a, b) = (engine.space(Root(1)), engine.space(Root(2)));
    // SAFETY: as above.
    unsafe {
        engine.switch_to(&a);
        engine.switch_to(&b);
    }
    for page in 0..=shootdown::LOG_ENTRIES as u64 {
        let _done = engine.flush(&a, Range::page(page * 4096));
    }
    // SAFETY: as above.
    unsafe { engine.switch_to(&a) };
    assert_eq!(
        kernel.loads.borrow().last().copied(),
        Some((0, Tag(1), false)),
        "flushed with the load"
    );
}

#[test]
#[allow(clippy::forget_non_drop, reason = "that it has nothing to drop is what is tested")]
fn a_forgotten_token_leaves_nothing_behind() {
    let (kernel, machine) = (Recorder::default(), Machine::new(2, &Design::ADAPTIVE));
    let engine = machine.engine(&kernel, Design::ADAPTIVE);
    let space = engine.space(Root(1));
    for cpu in [1, 0] {
        kernel.cpu.set(cpu);
        // SAFETY: as above.
        unsafe { engine.switch_to(&space) };
    }
    let token = engine.dispatch(&space, Range::page(0x1000));
    assert!(!token.is_complete());
    assert_eq!(kernel.ipis.get(), 1);
    std::mem::forget(token);
    // A second request finds the first still posted: no second interrupt.
    let token = engine.dispatch(&space, Range::page(0x2000));
    assert_eq!(kernel.ipis.get(), 1);
    kernel.cpu.set(1);
    kernel.masked.set(true);
    engine.on_ipi();
    kernel.masked.set(false);
    kernel.cpu.set(0);
    let _done = token.wait();
    let on_1: Vec<_> = kernel
        .local
        .borrow()
        .iter()
        .filter(|(cpu, _)| *cpu == 1)
        .map(|&(_, what)| what)
        .collect();
    assert_eq!(on_1.len(), 2, "both ranges, by one interrupt: {on_1:?}");
}

#[test]
fn the_user_half_goes_with_the_kernel_half() {
    let design = Design {
        split: true,
        ..Design::IPI
    };
    let (kernel, machine) = (Recorder::default(), Machine::new(1, &design));
    let engine = machine.engine(&kernel, design);
    let space = engine.space(Root(1));
    // SAFETY: as above.
    unsafe { engine.switch_to(&space) };
    kernel.local.borrow_mut().clear();
    let _done = engine.flush(&space, Range::page(0x1000));
    let tags: Vec<_> = kernel
        .local
        .borrow()
        .iter()
        .map(|(_, what)| match what {
            Local::Page { tag, .. } => tag.0,
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    assert_eq!(tags, [1, 1 | shootdown::USER_HALF]);
}

#[test]
fn a_kernel_range_is_broadcast_in_chunks_and_synchronised_once() {
    let limits = Some(BroadcastLimits {
        max_pages: 8,
        max_large_pages: 8,
    });
    let (kernel, machine) = (
        Recorder {
            limits,
            ..Recorder::default()
        },
        Machine::new(2, &Design::BROADCAST),
    );
    let engine = machine.engine(&kernel, Design::BROADCAST);
    let start = 0xffff_8000_0000_0000;
    let _done = engine.flush_kernel(Range::pages(start, start + 20 * 4096, Stride::Size4K));
    let counts: Vec<_> = kernel
        .broadcasts
        .borrow()
        .iter()
        .map(|what| match what {
            Broadcast::Kernel { count, .. } => *count,
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    assert_eq!((counts.as_slice(), kernel.synced.get()), ([8, 8, 4].as_slice(), 1));
}

#[test]
#[should_panic(expected = "system-wide tags must outnumber the CPUs")]
fn fewer_tags_than_cpus_are_refused() {
    let design = Design {
        tags: Tags::System,
        tag_limit: 4,
        ..Design::IPI
    };
    let (kernel, machine) = (Recorder::default(), Machine::new(4, &design));
    let _engine = machine.engine(&kernel, design);
}

const LIMITS: Option<BroadcastLimits> = Some(BroadcastLimits {
    max_pages: 8,
    max_large_pages: 8,
});

/// Every space that runs on one CPU is promoted as soon as CPU 0 flushes it and another CPU has it in its set.
const PROMOTE_AT_ONCE: Design = Design {
    tags: Tags::Hybrid { promote_at: 1 },
    slots: 2,
    tag_limit: 1 + 2 + 1,
    ..Design::BROADCAST
};

/// Runs a new space on CPU 0, flushes it there, retires it; returns whether it was promoted.
fn promote_and_retire(engine: &Engine<'_, &Recorder, 1>, root: u64) -> bool {
    let space = engine.space(Root(root));
    // SAFETY: the space is retired before it is dropped.
    unsafe { engine.switch_to(&space) };
    let _done = engine.flush(&space, Range::page(0x1000));
    let promoted = space.system_tag().is_some();
    let _done = engine.retire(&space);
    promoted
}

#[test]
fn a_cpu_stays_in_the_set_of_a_promoted_space_that_it_leaves_and_is_asked_nothing() {
    let kernel = Recorder {
        limits: LIMITS,
        ..Recorder::default()
    };
    let machine = Machine::new(2, &PROMOTE_AT_ONCE);
    let engine = machine.engine(&kernel, PROMOTE_AT_ONCE);
    let space = engine.space(Root(1));
    let on = |cpu: usize| kernel.cpu.set(cpu);
    // SAFETY: the space is retired before it is dropped.
    let enter = || unsafe { engine.switch_to(&space) };
    enter();
    for _ in 0..2 {
        // Promotes, and finds nobody on another tag.
        let _done = engine.flush(&space, Range::page(0x1000));
    }
    let tag = space.system_tag().expect("promoted");
    on(1);
    enter();
    engine.switch_to_kernel();
    assert!(space.cpus().contains(1));
    on(0);
    let _done = engine.flush(&space, Range::page(0x1000));
    assert_eq!(kernel.ipis.get(), 0, "broadcast");
    on(1);
    enter();
    assert_eq!(
        kernel.loads.borrow().last(),
        Some(&(1, tag, true)),
        "fresh by broadcasts"
    );
    engine.switch_to_kernel();
    on(0);
    let _done = engine.retire(&space);
    assert_eq!(kernel.ipis.get(), 0, "no CPU has it loaded");
}

#[test]
fn tags_are_not_reclaimed_by_a_task_that_may_migrate_before_the_broadcast_is_synchronised() {
    let kernel = Recorder {
        limits: LIMITS,
        ..Recorder::default()
    };
    let machine = Machine::new(2, &PROMOTE_AT_ONCE);
    let engine = machine.engine(&kernel, PROMOTE_AT_ONCE);
    assert!(promote_and_retire(&engine, 1), "there is one tag");
    // The hooks check that they are called pinned.
    assert!(promote_and_retire(&engine, 2), "the tag was reclaimed");
    assert!(kernel.broadcasts.borrow().contains(&Broadcast::NonGlobal));
}

#[test]
fn a_space_that_is_retired_twice_does_not_give_back_a_tag_that_is_somebody_elses() {
    let kernel = Recorder {
        limits: LIMITS,
        ..Recorder::default()
    };
    let machine = Machine::new(2, &PROMOTE_AT_ONCE);
    let engine = machine.engine(&kernel, PROMOTE_AT_ONCE);
    let (a, b, c) = (engine.space(Root(1)), engine.space(Root(2)), engine.space(Root(3)));
    let promote = |space| {
        // SAFETY: the spaces outlive the engine's use of them.
        unsafe { engine.switch_to(space) };
        let _done = engine.flush(space, Range::page(0x1000));
    };
    promote(&a);
    let _done = engine.retire(&a);
    promote(&b);
    let tag = b.system_tag().expect("the tag of the first space was reclaimed");
    let _done = engine.retire(&a);
    promote(&c);
    assert_eq!(c.system_tag(), None, "the tag is in use");
    // SAFETY: as above.
    unsafe { engine.switch_to(&a) };
    let loaded = kernel.loads.borrow().last().map(|&(_, tag, _)| tag);
    assert_ne!(loaded, Some(tag), "a space that ended has no tag of its own");
}

#[test]
fn links_to_a_freed_kernel_table_do_not_stay_under_tags_that_are_not_loaded() {
    for design in [Design::IPI, Design::ADAPTIVE] {
        let (kernel, machine) = (Recorder::default(), Machine::new(2, &design));
        let engine = machine.engine(&kernel, design);
        let range = Range::page(0xffff_8000_0000_0000).with_tables();
        kernel.cpu.set(1);
        engine.cpu_offline();
        kernel.cpu.set(0);
        let _done = engine.flush_kernel(range);
        assert_eq!(
            *kernel.local.borrow(),
            [(0, Local::All)],
            "a page invalidation is not enough"
        );
    }
}

#[test]
fn a_report_does_not_name_a_cpu_that_has_answered() {
    let design = Design {
        stuck_ns: 1,
        ..Design::IPI
    };
    // Leaked, so that the clock can let the other CPUs act while CPU 0 waits.
    let kernel: &'static Recorder = Box::leak(Box::default());
    let machine: &'static Machine = Box::leak(Box::new(Machine::new(3, &design)));
    let engine: &'static _ = Box::leak(Box::new(machine.engine(kernel, design)));
    let space = engine.space(Root(1));
    for cpu in [2, 1, 0] {
        kernel.cpu.set(cpu);
        // SAFETY: the space outlives the engine's use of it.
        unsafe { engine.switch_to(&space) };
    }
    *kernel.on_clock.borrow_mut() = Some(Box::new(move || {
        // CPU 1 answers at once, CPU 2 when it has been reported.
        let answers = if kernel.reported.borrow().is_empty() { 1 } else { 2 };
        let me = kernel.cpu.replace(answers);
        engine.on_ipi();
        kernel.cpu.set(me);
    }));
    let _done = engine.flush(&space, Range::page(0x1000));
    assert_eq!(*kernel.reported.borrow(), [2]);
}

#[test]
fn a_design_whose_slots_have_the_kernels_tag_or_the_user_halves_is_refused() {
    let refused = [
        Design {
            first_tag: 0,
            ..Design::IPI
        },
        Design {
            tag_limit: 6,
            ..Design::IPI
        },
        Design {
            split: true,
            first_tag: shootdown::USER_HALF - 5,
            ..Design::IPI
        },
        Design {
            consider_window_ns: 0,
            ..Design::BROADCAST
        },
        Design {
            tags: Tags::System,
            first_tag: 100,
            tag_limit: 50,
            ..Design::IPI
        },
    ];
    for design in refused {
        let made = std::panic::catch_unwind(|| {
            let (kernel, machine) = (Recorder::default(), Machine::new(1, &design));
            let _engine = machine.engine(&kernel, design);
        });
        assert!(made.is_err(), "{design:?}");
    }
}

/// What a misuse does: a debug build panics, a release build does more than it was asked.
fn panics_in_debug_builds(misuse: impl FnOnce()) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(misuse));
    assert_eq!(outcome.is_err(), cfg!(debug_assertions));
}

#[test]
fn a_cpu_that_comes_online_twice_does_not_hide_what_it_has_loaded() {
    let (kernel, machine) = (Recorder::default(), Machine::new(2, &Design::ADAPTIVE));
    let engine = machine.engine(&kernel, Design::ADAPTIVE);
    let space = engine.space(Root(1));
    kernel.cpu.set(1);
    // SAFETY: the space outlives the engine's use of it.
    unsafe { engine.switch_to(&space) };
    panics_in_debug_builds(|| engine.cpu_online());
    kernel.cpu.set(0);
    let _token = engine.dispatch(&space, Range::page(0x1000));
    assert_eq!(kernel.ipis.get(), 1, "CPU 1 is told");
}

#[test]
fn a_cpu_that_is_off_does_not_load_a_space_with_what_it_had_before() {
    let (kernel, machine) = (Recorder::default(), Machine::new(2, &Design::IPI));
    let engine = machine.engine(&kernel, Design::IPI);
    let space = engine.space(Root(1));
    kernel.cpu.set(1);
    engine.cpu_offline();
    // SAFETY: the space outlives the engine's use of it.
    panics_in_debug_builds(|| unsafe { engine.switch_to(&space) });
    if !cfg!(debug_assertions) {
        assert!(engine.online().contains(1), "it was brought online");
        assert!(kernel.local.borrow().contains(&(1, Local::All)));
    }
}

#[test]
fn secondary_tlbs_are_told_of_each_flush_and_awaited_once_before_the_proof() {
    for reach in [Reach::Ipi, Reach::Broadcast, Reach::LocalFirst] {
        for tags in [Tags::PerCpu, Tags::System] {
            if reach == Reach::LocalFirst && tags == Tags::PerCpu {
                continue;
            }
            let design = Design {
                reach,
                tags,
                ..Design::IPI
            };
            let machine = Machine::new(1, &design);
            let kernel = Recorder {
                limits: Some(BroadcastLimits {
                    max_pages: 8,
                    max_large_pages: 8,
                }),
                ..Recorder::default()
            };
            let engine = machine.engine(&kernel, design);
            let (a, b) = (engine.space(Root(10)), engine.space(Root(20)));
            // SAFETY: both spaces outlive the engine's use of them.
            unsafe { engine.switch_to(&a) };
            let (page, tables) = (Range::page(0x5000), Range::page(0x7000).with_tables());

            kernel.device.set(false);
            let _done = engine.flush(&a, page);
            assert!(kernel.awaited.borrow().is_empty(), "there is nothing to wait for");
            kernel.device.set(true);
            let token = engine.dispatch(&b, page);
            assert!(!token.is_complete(), "the device is not done");
            let _done = token.wait();
            assert_eq!(*kernel.awaited.borrow(), [2]);
            let mut batch = engine.batch();
            batch.add(&a, page);
            batch.add(&b, tables);
            // A request without a space cannot name A's tag: there its range takes a flush of its own. B has none yet.
            let apart = tags == Tags::System && reach == Reach::Ipi;
            assert_eq!(kernel.awaited.borrow().len(), if apart { 2 } else { 1 });
            let _done = batch.finish();
            if apart {
                assert_eq!(kernel.awaited.borrow_mut().remove(1), 3);
            }
            assert_eq!(
                *kernel.awaited.borrow(),
                [2, 4],
                "once for the rest, and the last of it"
            );
            let _done = engine.flush_tables(&a, page);
            let _done = engine.flush_kernel(Range::page(0x9000));
            let _done = engine.retire(&a);
            assert_eq!(*kernel.awaited.borrow(), [2, 4, 5, 6, 7]);
            let flush = |root, range| (Root(root), Secondary::Flush(range));
            assert_eq!(
                *kernel.told.borrow(),
                [
                    flush(10, page),
                    flush(20, page),
                    flush(10, page),
                    flush(20, tables),
                    flush(10, page.with_tables()),
                    flush(0, Range::page(0x9000)),
                    (Root(10), Secondary::End),
                ]
            );
        }
    }
}
