//! The kernel of the simulation, and what its machine can broadcast.

use super::*;

/// The broadcast hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broadcasts {
    None,
    /// To every CPU.
    Everywhere,
    /// Only to the named CPUs; a page under one tag only.
    Aimed,
}

impl Broadcasts {
    pub const ALL: [Broadcasts; 3] = [Broadcasts::Everywhere, Broadcasts::Aimed, Broadcasts::None];

    /// Whether this hardware fits the design: processors with broadcast errata broadcast to all CPUs.
    pub fn fits(self, design: &Design) -> bool {
        self != Broadcasts::Aimed || design.machine.errata == shootdown::Errata::NONE
    }
}

impl From<bool> for Broadcasts {
    fn from(any: bool) -> Self {
        if any { Broadcasts::Everywhere } else { Broadcasts::None }
    }
}

/// The kernel's hooks. Each asserts what must have preceded it.
pub struct TrackingKernel {
    pub broadcasts: Broadcasts,
    pub now: Cell<u64>,
    /// CPUs with broadcasts issued and not synchronised; and the CPUs that those of each reach, one bit each.
    unsynchronised: Cell<u64>,
    reached: Cell<[u64; CPUS]>,
    /// CPUs with local invalidations issued and not synchronised.
    local_unsynchronised: Cell<u64>,
    pins: Cell<u32>,
    pub work: Cell<Work>,
    /// Memory that the invalidating CPU uses.
    pub touched: RefCell<Memory>,
}

impl TrackingKernel {
    pub fn new(broadcasts: Broadcasts) -> Self {
        TrackingKernel {
            broadcasts,
            now: Cell::new(0),
            unsynchronised: Cell::new(0),
            reached: Cell::default(),
            local_unsynchronised: Cell::new(0),
            pins: Cell::new(0),
            work: Cell::default(),
            touched: RefCell::default(),
        }
    }

    fn count(&self, did: Did) {
        let mut work = self.work.get();
        work[did as usize] += 1;
        self.work.set(work);
    }

    /// A broadcast that reaches `cpus`, one bit each.
    fn broadcast_on(&self, cpus: u64, what: Broadcast) {
        tables_are_published("a broadcast");
        assert_ne!(self.broadcasts, Broadcasts::None, "there are no broadcasts");
        self.count(match what {
            Broadcast::Pages { .. } => Did::Bpage,
            Broadcast::Tag(_) => Did::Btag,
            Broadcast::Kernel { .. } | Broadcast::NonGlobal | Broadcast::All => Did::Ball,
        });
        for tag in all_tags().filter(|_| !matches!(what, Broadcast::Pages { .. } | Broadcast::Kernel { .. })) {
            if matches!(what, Broadcast::Tag(of) if of != tag) {
                continue;
            }
            let time = clocks::tick();
            (0..CPUS).filter(|cpu| cpus >> cpu & 1 == 1).for_each(|cpu| {
                cached(cpu, tag, |it| {
                    if let Cached::Of(root) = *it {
                        *it = Cached::NothingSince(root, HERE.get(), time);
                    }
                });
            });
        }
        assert_ne!(self.pins.get(), 0, "broadcasts are issued where migration is forbidden");
        self.unsynchronised.set(self.unsynchronised.get() | 1 << HERE.get());
        let mut reached = self.reached.get();
        reached[HERE.get()] |= cpus;
        self.reached.set(reached);
        caches::with(|caches| caches.broadcast(what, cpus));
    }

    /// Asserts that nothing is left incomplete.
    pub fn is_settled(&self) {
        assert_eq!(self.pins.get(), 0, "a CPU is still pinned");
        assert_eq!(self.unsynchronised.get(), 0, "a broadcast was not synchronised");
        assert_eq!(
            self.local_unsynchronised.get(),
            0,
            "a local invalidation was not synchronised"
        );
        assert!(
            !MASKED.with_borrow(|masked| masked[HERE.get()]),
            "interrupts stay masked"
        );
    }
}

// SAFETY: each test uses its kernel from one thread.
unsafe impl Sync for TrackingKernel {}

// SAFETY: one thread, which selects the CPU; the caches of the test are the subject of its checks.
unsafe impl Kernel<1> for &TrackingKernel {
    const PREEMPTIBLE: bool = true;
    type Facade = Strict;
    fn cpu(&self) -> usize {
        HERE.get()
    }
    fn interrupts_off(&self) -> u64 {
        MASKED.with_borrow_mut(|masked| u64::from(std::mem::replace(&mut masked[HERE.get()], true)))
    }
    fn interrupts_restore(&self, saved: u64) {
        MASKED.with_borrow_mut(|masked| masked[HERE.get()] = saved != 0);
    }
    fn send_ipi(&self, targets: &CpuMask<1>) {
        assert!(
            !unordered(|unordered| unordered.ipi),
            "words were written that no `before_ipi` has ordered before an interrupt"
        );
        tables_are_published("an interrupt that asks for invalidation");
        assert_ne!(self.pins.get(), 0, "interrupts are sent where migration is forbidden");
        assert!(!targets.is_empty(), "no CPU is interrupted");
        for cpu in targets.iter() {
            self.count(Did::Ipi);
            PENDING.set(PENDING.get() | 1 << cpu);
            asks(cpu);
        }
    }
    fn invalidate(&self, what: Local) {
        tables_are_published("an invalidation");
        self.count(match what {
            Local::Page { .. } => Did::Page,
            Local::Tag(_) => Did::Tag,
            Local::Kernel { .. } => Did::Kpage,
            Local::All => Did::All,
        });
        for tag in all_tags() {
            if what == Local::All || what == Local::Tag(tag) {
                cached(HERE.get(), tag, |it| *it = Cached::Nothing);
            }
        }
        self.local_unsynchronised
            .set(self.local_unsynchronised.get() | 1 << HERE.get());
        caches::with(|caches| caches.invalidate(what));
        self.touched.borrow().touch();
    }
    fn local_sync(&self) {
        self.count(Did::Sync);
        self.local_unsynchronised
            .set(self.local_unsynchronised.get() & !(1 << HERE.get()));
        caches::with(caches::Caches::local_sync);
    }
    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        let masked = MASKED.with_borrow(|masked| masked[HERE.get()]);
        assert!(masked, "roots are loaded with interrupts off");
        self.count(if keep { Did::Load } else { Did::Fload });
        assert!(
            !unordered(|unordered| unordered.root_load),
            "words were written that no `before_root_load` has ordered before a root load"
        );
        cached(HERE.get(), tag, |it| {
            match *it {
                Cached::Of(other) => assert!(other == root || !keep, "{tag:?} of {other:?} is loaded for {root:?}"),
                Cached::NothingSince(other, cpu, time) => {
                    let known = other == root || !keep || clocks::knows(cpu, time);
                    assert!(known, "{tag:?} is loaded for {root:?} before it is known to be clean");
                }
                Cached::Nothing => {}
            }
            *it = Cached::Of(root);
        });
        caches::with(|caches| caches.load_root(root, tag, keep));
    }
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        (self.broadcasts != Broadcasts::None).then_some(BroadcastLimits {
            max_pages: 8,
            max_large_pages: 8,
        })
    }
    fn broadcast_is_targeted(&self) -> bool {
        self.broadcasts == Broadcasts::Aimed
    }
    fn broadcast_to(&self, targets: &CpuMask<1>, what: Broadcast) {
        assert_eq!(self.broadcasts, Broadcasts::Aimed, "broadcasts are not aimed");
        assert!(!targets.is_empty() && !targets.contains(HERE.get()), "{targets:?}");
        self.broadcast_on(targets.iter().fold(0, |cpus, cpu| cpus | 1 << cpu), what);
    }
    fn broadcast(&self, what: Broadcast) {
        self.broadcast_on(u64::MAX, what);
    }
    fn broadcast_sync(&self) {
        assert_ne!(self.pins.get(), 0, "the CPU that issued is the one that synchronises");
        self.count(Did::Bsync);
        self.unsynchronised.set(self.unsynchronised.get() & !(1 << HERE.get()));
        let mut reached = self.reached.get();
        let cpus = std::mem::take(&mut reached[HERE.get()]);
        self.reached.set(reached);
        // Uses of the old translations are over, on every CPU that was reached.
        clocks::synchronise(cpus);
        caches::with(caches::Caches::broadcast_sync);
    }
    fn now_ns(&self) -> u64 {
        self.now.get()
    }
    fn secondary(&self, root: Root, invalidation: Secondary) -> u64 {
        assert!(
            !unordered(|unordered| unordered.tables_full),
            "a device is notified after a full barrier"
        );
        self.count(Did::Notify);
        caches::with(|caches| caches.secondary(root, invalidation))
    }
    fn secondary_sync(&self, ticket: u64) {
        self.count(Did::Await);
        caches::with(|caches| caches.secondary_sync(ticket));
    }
    fn event(&self, event: Event) {
        match event {
            Event::Promoted => self.count(Did::Promote),
            Event::Demoted => self.count(Did::Demote),
            Event::RollOver => self.count(Did::Roll),
            _ => {}
        }
    }
    fn flush_at_entry(&self, cpu: usize) -> bool {
        let descheduled = DESCHEDULED.get() & 1 << cpu;
        if descheduled != 0 {
            // One exchange with the hypervisor.
            clocks::learn(&clocks::known_to(cpu));
            asks(cpu);
        }
        FLUSH_AT_ENTRY.set(FLUSH_AT_ENTRY.get() | descheduled);
        descheduled != 0
    }
    fn pin(&self) {
        self.pins.set(self.pins.get() + 1);
    }
    fn unpin(&self) {
        self.pins.set(self.pins.get() - 1);
    }
}
