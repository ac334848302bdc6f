//! Measures costs with the clocks that kernels have: precise ones, constant ones, ones that run backwards.

use shootdown::{
    Broadcast, BroadcastLimits, Costs, CpuMask, Engine, Event, Kernel, Local, Machine, Native, PerCpu, Policy, Range,
    Root, Storage, Stride, Tag, tag_words,
};
use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;

/// How the clock behaves.
#[derive(Clone, Copy, PartialEq)]
enum Clock {
    Good,
    /// Steps of a millisecond.
    Coarse,
    Constant,
    Backwards,
}

/// Two CPUs; the second answers as soon as it is interrupted. Every operation takes its own time.
struct Timed {
    clock: Clock,
    now: Cell<u64>,
    broadcast_ns: Cell<u64>,
    /// This many broadcasts take 1 ns.
    flukes: Cell<u32>,
    cpu: Cell<usize>,
    interrupted: Cell<bool>,
    pins: Cell<u32>,
    /// The task migrates to CPU 1 as soon as it is not pinned, which takes 5 ns.
    migrates: Cell<bool>,
    /// Time to invalidate a page, and a tag.
    local_ns: Cell<(u64, u64)>,
    /// An invalidation was timed while its task could have migrated.
    adrift: Cell<bool>,
    moved: RefCell<Vec<(u64, u64)>>,
    measured: Cell<u32>,
}

// SAFETY: each test uses its kernel from one thread.
unsafe impl Sync for Timed {}

impl Timed {
    fn new(clock: Clock) -> Self {
        Timed {
            clock,
            now: Cell::new(1 << 40),
            broadcast_ns: Cell::new(600),
            flukes: Cell::new(0),
            cpu: Cell::new(0),
            interrupted: Cell::new(false),
            pins: Cell::new(0),
            migrates: Cell::new(false),
            local_ns: Cell::new((50, 120)),
            adrift: Cell::new(false),
            moved: RefCell::default(),
            measured: Cell::new(0),
        }
    }

    fn pass(&self, ns: u64) {
        self.now.set(self.now.get() + ns);
    }
}

// SAFETY: one thread; no translations.
unsafe impl Kernel<1> for &Timed {
    const PREEMPTIBLE: bool = true;
    type Facade = Native;
    fn cpu(&self) -> usize {
        self.cpu.get()
    }
    fn interrupts_off(&self) -> u64 {
        0
    }
    fn interrupts_restore(&self, _saved: u64) {}
    fn send_ipi(&self, _targets: &CpuMask<1>) {
        self.pass(900);
        self.interrupted.set(true);
    }
    fn pin(&self) {
        self.pins.set(self.pins.get() + 1);
    }
    fn unpin(&self) {
        self.pins.set(self.pins.get() - 1);
        if self.migrates.get() && self.pins.get() == 0 {
            self.pass(5);
            self.cpu.set(1);
        }
    }
    fn invalidate(&self, what: Local) {
        self.adrift.set(self.adrift.get() || self.pins.get() == 0);
        let (page, tag) = self.local_ns.get();
        self.pass(if matches!(what, Local::Page { .. }) { page } else { tag });
    }
    fn load_root(&self, _root: Root, _tag: Tag, _keep: bool) {}
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        Some(BroadcastLimits {
            max_pages: 8,
            max_large_pages: 8,
        })
    }
    fn broadcast(&self, _what: Broadcast) {}
    fn broadcast_sync(&self) {
        let flukes = self.flukes.get();
        self.flukes.set(flukes.saturating_sub(1));
        self.pass(if flukes > 0 { 1 } else { self.broadcast_ns.get() });
    }
    fn now_ns(&self) -> u64 {
        match self.clock {
            Clock::Good => self.now.get(),
            Clock::Coarse => self.now.get() / 1_000_000 * 1_000_000,
            Clock::Constant => 7,
            Clock::Backwards => u64::MAX - self.now.get(),
        }
    }
    fn event(&self, event: Event) {
        match event {
            Event::ThresholdMoved { from, to, .. } => self.moved.borrow_mut().push((from, to)),
            Event::Measured { .. } => self.measured.set(self.measured.get() + 1),
            _ => {}
        }
    }
}

/// An engine of one CPU: the costs of interrupts keep their assumed values, the others are measured.
fn with_engine(kernel: &Timed, body: impl FnOnce(&Engine<&Timed, 1>)) {
    let design = Policy {
        sample_one_in: 1,
        ..Policy::ADAPTIVE
    }
    .on(Machine::PCID);
    let mut cpus = [PerCpu::<Native>::new(), PerCpu::new()];
    let mut tags: Vec<AtomicU64> = (0..tag_words(design.machine.tag_limit))
        .map(|_| AtomicU64::new(0))
        .collect();
    let engine = Engine::new(
        kernel,
        design,
        Root(0),
        Storage {
            cpus: &mut cpus,
            tags: &mut tags,
        },
    );
    engine.cpu_online();
    body(&engine);
}

#[test]
fn calibration_measures_with_a_fine_clock() {
    let kernel = Timed::new(Clock::Good);
    with_engine(&kernel, |engine| {
        kernel.adrift.set(false);
        let costs = engine.calibrate();
        assert!(!kernel.adrift.get(), "it measures the CPU that it is on");
        assert_eq!((costs.broadcast_ns, costs.page_ns, costs.tag_ns), (600, 50, 120));
        assert_eq!(costs.interrupt_ns, Costs::PRIORS.interrupt_ns, "no CPU to interrupt");
        assert_eq!(engine.costs(), costs);
    });
}

/// The task chose CPU 1 as a target and has since migrated there: a round trip without a target is not a sample.
#[test]
fn calibration_takes_no_ipi_sample_after_migration_to_the_target() {
    let kernel = Timed::new(Clock::Good);
    with_engine(&kernel, |engine| {
        kernel.cpu.set(1);
        engine.cpu_online();
        kernel.cpu.set(0);
        kernel.migrates.set(true);
        let costs = engine.calibrate();
        assert!(!kernel.interrupted.get(), "no other CPU was left to interrupt");
        assert_eq!(costs.interrupt_ns, Costs::PRIORS.interrupt_ns);
        assert_eq!(costs.disturbed_ns, Costs::PRIORS.disturbed_ns);
    });
}

#[test]
fn calibration_ignores_two_outliers_of_eight() {
    for (flukes, measured) in [(2, 600), (3, 1)] {
        let kernel = Timed::new(Clock::Good);
        kernel.flukes.set(flukes);
        with_engine(&kernel, |engine| assert_eq!(engine.calibrate().broadcast_ns, measured));
    }
}

#[test]
fn costly_broadcast_is_not_chosen() {
    let kernel = Timed::new(Clock::Good);
    kernel.broadcast_ns.set(100_000);
    with_engine(&kernel, |engine| {
        assert_eq!(engine.calibrate().broadcast_from, u64::MAX);
    });
}

#[test]
fn useless_clock_leaves_the_priors() {
    for clock in [Clock::Coarse, Clock::Constant, Clock::Backwards] {
        let kernel = Timed::new(clock);
        with_engine(&kernel, |engine| {
            assert_eq!(engine.calibrate(), Costs::PRIORS);
            let space = engine.space(Root(1));
            // SAFETY: the space lives until the engine has left it.
            unsafe { engine.switch_to(&space) };
            for page in 0..100 {
                let _done = engine.flush(&space, Range::pages(page << 12, (page + 1) << 12, Stride::Size4K));
            }
            engine.switch_to_kernel();
            assert_eq!(engine.costs(), Costs::PRIORS);
            assert_eq!(kernel.measured.get(), 0);
            assert!(kernel.moved.borrow().is_empty());
        });
    }
}

#[test]
fn request_without_targets_is_no_sample() {
    let kernel = Timed::new(Clock::Good);
    with_engine(&kernel, |engine| {
        let space = engine.space(Root(1));
        // SAFETY: the space lives until the engine has left it.
        unsafe { engine.switch_to(&space) };
        let before = kernel.now.get();
        let _done = engine.flush(&space, Range::page(0));
        assert!(kernel.now.get() > before, "it takes time");
        assert_eq!((kernel.measured.get(), engine.costs()), (0, Costs::PRIORS));
        engine.switch_to_kernel();
    });
}

#[test]
fn requests_are_sampled_only_with_a_clock_proven_at_calibration() {
    for (page, tag, broadcast) in [(50, 0, 0), (0, 120, 0), (0, 0, 600), (0, 0, 0)] {
        let kernel = Timed::new(Clock::Good);
        kernel.local_ns.set((page, tag));
        kernel.broadcast_ns.set(broadcast);
        with_engine(&kernel, |engine| {
            engine.calibrate();
            let space = engine.space(Root(1));
            let on = |cpu: usize, what: &dyn Fn()| {
                kernel.cpu.set(cpu);
                what();
            };
            // Two CPUs have it, so its requests are broadcast. Each takes one step of the clock from here on.
            on(1, &|| engine.cpu_online());
            for cpu in 0..2 {
                // SAFETY: the space lives until the engine has left it.
                on(cpu, &|| unsafe { engine.switch_to(&space) });
            }
            kernel.broadcast_ns.set(5000);
            on(0, &|| drop(engine.flush(&space, Range::page(0))));
            let tells = page + tag + broadcast > 0;
            assert_eq!(kernel.measured.get() > 0, tells, "{page}, {tag}, {broadcast}");
            (0..2).for_each(|cpu| on(cpu, &|| engine.switch_to_kernel()));
        });
    }
}
