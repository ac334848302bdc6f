//! How a scenario is set up, played over seeds, and judged.
//!
//! A [`Scene`] describes the machine and the design. A script gives each CPU of a [`Stage`] its operations, mostly in
//! rounds that start at fixed times and race within. CPUs speculate at random moments throughout.

use shootdown::{BroadcastLimits, Design, Order, Policy, Reach, Requests, Tags, Wait, Walkers, Word};
use shootdown_known_bugs::Bug;
use shootdown_sim::hw::{Access, Hw, HwConfig, Iommu, Isa, Privilege, Rule, Violation};
use shootdown_sim::machine::{self, Config, Machine, Outcome, SimWord, StoreBuffer, Topology};
use shootdown_sim::os::{
    HookCosts, OsCosts, OsSettings, PAGE, Priority, Process, Scheduler, SpinLock, System, USER_BASE,
};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

pub type Sys = Rc<System<1>>;
pub type Proc = Rc<Process<1>>;

/// The page that most races are about.
pub const P: u64 = USER_BASE;

/// Length of a round, cycles: longer than any operation in it.
pub const ROUND: u64 = 40_000;

/// Rounds in a run.
pub const ROUNDS: u64 = 12;

/// A sampling window that is always open on CPU 0, so that it promotes every space that it may.
pub const ALWAYS_CONSIDER: u64 = 1 << 62;

/// Interrupts, per-CPU tags, stack requests; there are no lockless walks, so no CPU is interrupted for them.
pub const IPI: Policy = Policy {
    walkers: Walkers::None,
    stuck_ns: 0,
    ..Policy::IPI
};

/// The same with preemptible waits.
pub const PREEMPTIBLE: Policy = Policy {
    wait: Wait::Preemptible,
    ..IPI
};

/// The same with the flush log.
pub const LOG: Policy = Policy {
    requests: Requests::Log,
    order: Order::Concurrent,
    ..IPI
};

/// The flush log, with preemptible waits.
pub const LOG_PREEMPTIBLE: Policy = Policy {
    wait: Wait::Preemptible,
    ..LOG
};

/// Broadcast; a space is promoted as soon as CPU 0 flushes it while two CPUs run it.
pub const BROADCAST: Policy = Policy {
    tags: Tags::Hybrid { promote_at: 2 },
    reach: Reach::Broadcast,
    consider_window_ns: ALWAYS_CONSIDER,
    ..IPI
};

/// The machine.
pub struct Scene {
    pub cpus: usize,
    pub design: Design,
    /// Most extra cycles that a store stays in its buffer.
    pub store_delay: u64,
    /// Broadcast limits as the kernel knows them; the hardware takes 8 pages.
    pub limits: Option<BroadcastLimits>,
    /// A leaf-only invalidation keeps paging-structure entries.
    pub leaf_only_keeps_psc: bool,
    /// A page invalidation drops only the paging-structure entries on the path to it (x86 TCE).
    pub tce: bool,
    /// The instruction set.
    pub isa: Isa,
    /// Threads that a scheduler runs; 0 is none.
    pub threads: usize,
    /// Devices that access memory through page tables.
    pub devices: usize,
    /// Seeds that must pass on the engine.
    pub seeds: u64,
    /// Seeds within which the fault must show.
    pub tries: u64,
}

const LIMITS: BroadcastLimits = BroadcastLimits {
    max_pages: 8,
    max_large_pages: 8,
};

impl Scene {
    pub fn new(cpus: usize, design: impl Into<Design>) -> Self {
        Scene {
            cpus,
            design: design.into(),
            store_delay: 400,
            limits: Some(LIMITS),
            leaf_only_keeps_psc: false,
            tce: false,
            isa: Isa::X86_64,
            threads: 0,
            devices: 0,
            seeds: 150,
            tries: 60,
        }
    }
}

/// The effect of a fault.
#[derive(Debug, Clone, Copy)]
pub enum Symptom {
    /// The oracle finds this rule broken.
    Breaks(Rule),
    /// CPUs wait without end.
    Hangs,
    /// A CPU works without end.
    Spins,
    /// The kernel gives up.
    Panics,
}

/// How one run ended.
pub struct Ending {
    pub outcome: Outcome,
    pub violations: Vec<Violation>,
}

impl Ending {
    pub fn shows(&self, symptom: Symptom) -> bool {
        match symptom {
            Symptom::Breaks(rule) => self.violations.iter().any(|violation| violation.rule == rule),
            Symptom::Hangs => matches!(self.outcome, Outcome::Deadlock(_)),
            Symptom::Spins => matches!(self.outcome, Outcome::Runaway(_)),
            Symptom::Panics => false,
        }
    }

    #[track_caller]
    pub fn assert_clean(&self, seed: u64) {
        if let Some(violation) = self.violations.first() {
            panic!("seed {seed}: the engine broke a rule:\n{violation}");
        }
        assert_eq!(self.outcome, Outcome::Finished, "seed {seed}");
    }
}

/// A machine before its run.
pub struct Stage {
    pub system: Sys,
    pub scheduler: Option<Rc<Scheduler<1>>>,
    machine: RefCell<Machine>,
    seed: u64,
}

impl Stage {
    /// A process with two megabytes of address space, mapped.
    pub fn process(&self, number: u32) -> Proc {
        self.system.process(number, 2 << 20)
    }

    /// The task of `cpu`; it comes online before and goes offline after.
    pub fn cpu(&self, cpu: usize, body: impl FnOnce(&Sys) + 'static) {
        let system = self.system.clone();
        self.task(cpu, move || {
            system.online();
            body(&system);
            system.offline();
        });
    }

    /// As [`cpu`](Self::cpu), but `cpu` stays as `body` leaves it.
    pub fn task(&self, cpu: usize, body: impl FnOnce() + 'static) {
        self.machine.borrow().spawn(cpu, body);
    }

    /// A spinlock of this kernel.
    pub fn lock(&self) -> Rc<SpinLock> {
        let machine = self.machine.borrow();
        let cpus = self.system.hw.borrow().config().cpus;
        let nodes = (0..cpus).map(|_| machine.alloc(SimWord::new(0))).collect();
        Rc::new(SpinLock::new(&machine, nodes, self.system.preemption.clone()))
    }

    /// A thread of `process`, first on `cpu`, of a scene that has a scheduler.
    pub fn thread(&self, process: &Proc, cpu: usize, priority: Priority, body: impl FnOnce(&Sys) + 'static) {
        let system = self.system.clone();
        self.system
            .spawn_thread(&self.machine.borrow(), process, cpu, priority, move || body(&system));
    }

    /// `cpu` speculatively fills the translations of `pages` pages from [`P`], at random moments, about every `mean`
    /// cycles, for the duration of the rounds.
    pub fn speculate(&self, cpu: usize, pages: u64, mean: u64) {
        self.at_random_moments(cpu, P, pages, mean, move |hw, va, at| hw.speculate(cpu, va, at));
    }

    /// Attaches device 0 to `process`, which reads its first `pages` pages at random moments, about every `mean`
    /// cycles.
    pub fn device(&self, process: &Proc, pages: u64, mean: u64) {
        self.device_in(process, P, pages, mean);
    }

    /// As [`device`](Self::device), but it reads from `first` on; it has the rights of user code.
    pub fn device_in(&self, process: &Proc, first: u64, pages: u64, mean: u64) {
        self.system.hw.borrow_mut().attach_device(0, process.number);
        self.at_random_moments(usize::from(u8::MAX), first, pages, mean, |hw, va, at| {
            let _found = hw.dma(0, va, Access::Read, at);
        });
    }

    fn at_random_moments(
        &self,
        salt: usize,
        first: u64,
        pages: u64,
        mean: u64,
        call: impl Fn(&mut Hw, u64, u64) + Copy + 'static,
    ) {
        let mut random = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (salt as u64) << 32;
        let mut draw = |below: u64| {
            random = random
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % below
        };
        let mut at = 0;
        while at < ROUND * (ROUNDS + 1) {
            at += 1 + draw(2 * mean);
            let (hw, va) = (self.system.hw.clone(), first + draw(pages) * PAGE);
            self.machine.borrow().at(at, move || call(&mut hw.borrow_mut(), va, at));
        }
    }
}

/// Whether this is the package whose engine holds the known bugs. There scenarios run with their bug, and in the other
/// without.
fn is_patched() -> bool {
    env!("CARGO_PKG_NAME").ends_with("-patched")
}

/// One run, with a bug selected in the engine that has it.
pub fn play(scene: &Scene, seed: u64, fault: Option<Bug>, script: &dyn Fn(&Stage)) -> Ending {
    let config = Config {
        seed,
        slack_cycles: 0,
        store_buffer: StoreBuffer::Random {
            max_cycles: scene.store_delay,
        },
        max_events: 400_000,
        arena_bytes: 4 << 20,
        extra_tasks: scene.threads,
        ..Config::new(Topology::flat(scene.cpus))
    };
    let machine = Machine::new(config);
    let hw = Hw::new(HwConfig {
        cpus: scene.cpus,
        tlb_entries: 64,
        tlb_ways: 4,
        broadcast: Some(LIMITS),
        leaf_only_keeps_psc: scene.leaf_only_keeps_psc,
        tce: scene.tce,
        isa: scene.isa,
        tags: scene.design.machine.has_tags(),
        iommu: (scene.devices > 0).then_some(Iommu {
            devices: scene.devices,
            // Longer than a flush by interrupts, so that a missing wait shows.
            command_cycles: 4_000,
        }),
        speculation: 0.2,
        seed,
        ..HwConfig::default()
    });
    let hooks = HookCosts {
        limits: scene.limits,
        ..HookCosts::default()
    };
    let costs = OsCosts::default();
    let system = System::new(&machine, hw, hooks, scene.design, costs, OsSettings::default());
    shootdown_known_bugs::select(fault);
    let scheduler = (scene.threads > 0).then(|| system.use_scheduler(&machine, 6_000_000));
    let stage = Stage {
        system,
        scheduler,
        machine: RefCell::new(machine),
        seed,
    };
    script(&stage);
    for cpu in 0..scene.cpus {
        stage.speculate(cpu, 4, 1500);
    }
    let outcome = stage.machine.borrow_mut().run(u64::MAX, |_| true);
    let violations = stage.system.hw.borrow().violations().to_vec();
    Ending { outcome, violations }
}

/// Plays a scene over its seeds: always clean.
#[track_caller]
pub fn never_broken(scene: &Scene, script: impl Fn(&Stage)) {
    // The copy, of which no bug is selected, is the same engine: a few seeds show that.
    let seeds = if is_patched() { scene.seeds.min(5) } else { scene.seeds };
    for seed in 0..seeds {
        play(scene, seed, None, &script).assert_clean(seed);
    }
}

/// Plays a scene over its seeds: clean without the fault, and for one seed with it, its symptom.
#[track_caller]
pub fn contract(scene: &Scene, fault: Bug, symptom: Symptom, script: impl Fn(&Stage)) {
    never_broken(scene, &script);
    if !is_patched() {
        return;
    }
    let shown = (0..scene.tries).find(|&seed| {
        // A debug check may catch the effects of the fault before the oracle sees it.
        let played = catch_unwind(AssertUnwindSafe(|| play(scene, seed, Some(fault), &script)));
        played.map_or(true, |ending| ending.shows(symptom))
    });
    shootdown_known_bugs::select(None);
    match shown {
        Some(seed) => println!("{fault:?}: {symptom:?}, seed {seed} of 0 to {}", scene.tries - 1),
        None => panic!(
            "{fault:?} was switched on for {} seeds and {symptom:?} did not show",
            scene.tries
        ),
    }
}

/// Lets time pass until `at`, cycles; interrupts are taken.
pub fn until(at: u64) {
    machine::charge(at.saturating_sub(machine::now()));
}

/// Calls `body` with the start of each round, when it has come.
pub fn rounds(mut body: impl FnMut(u64)) {
    for round in 1..=ROUNDS {
        until(round * ROUND);
        body(round * ROUND);
    }
    until((ROUNDS + 1) * ROUND);
}

/// Lets up to `most` cycles pass.
pub fn dawdle(most: u64) {
    machine::charge(machine::random_below(most + 1));
}

/// Reads `va` if it is mapped, without a page fault if it is not: this CPU may cache the translation.
pub fn look(system: &Sys, va: u64) {
    machine::synchronise();
    let result = {
        let mut hw = system.hw.borrow_mut();
        hw.translate(machine::cpu(), va, Access::Read, Privilege::User, machine::now())
    };
    machine::charge(result.map_or_else(|fault| u64::from(fault.cost), |found| u64::from(found.cost)));
}

/// Writes the first `pages` pages, mapping those that are not, from the CPU that runs `process`.
pub fn write(system: &Sys, process: &Proc, pages: u64) {
    for page in 0..pages {
        system.touch(process, P + page * PAGE, Access::Write);
    }
}

/// A flag that a script's CPUs share; costs no virtual time.
pub type Flag = Rc<Cell<bool>>;
