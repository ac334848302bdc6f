//! Random traffic: the operations of each CPU of a run, and the results.

use shootdown::{BroadcastLimits, Design};
use shootdown_sim::hw::{Access, Hw, HwConfig, Isa, Privilege};
use shootdown_sim::machine::{self, Config, Machine, Outcome, StoreBuffer, Topology};
use shootdown_sim::os::{
    EngineCounts, HookCosts, KernelPages, OsCosts, OsSettings, PAGE, PageReferences, Process, RemoteCosts, System,
    USER_BASE,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub const LIMITS: BroadcastLimits = BroadcastLimits {
    max_pages: 3,
    max_large_pages: 2,
};

/// Pages that any thread touches, drops and unmaps.
const COMMON: u64 = 12;

/// Pages that are only written and reclaimed: an operation that finds one of these absent relies on a batch.
const RECLAIMED: u64 = 4;

/// The reclaimed pages have a table of their own, which the unmapping of the common ones never frees.
const RECLAIM_BASE: u64 = USER_BASE + (2 << 20);

/// Pages of each place, apart from the reclaimed ones, where a process repeatedly maps and unmaps one region.
const CHURN_BASE: u64 = RECLAIM_BASE + 16 * PAGE;
const CHURNED: u64 = 3;
const PLACES: u64 = 3;

/// Kernel pages of each CPU.
const KERNEL_PAGES: u64 = 6;

/// Settings of one run.
#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    pub design: Design,
    pub cpus: usize,
    pub steps: u64,
    pub seed: u64,
}

/// A process and the number of its running threads.
struct Member {
    process: Process<1>,
    threads: Cell<u32>,
    /// A CPU maps the common region again.
    remapping: Cell<bool>,
    /// The present place of the moving region, and whether a CPU is changing it.
    churned: Cell<Option<u64>>,
    churning: Cell<bool>,
}

/// State that the CPUs of a run share.
struct World {
    system: Rc<System<1>>,
    cpus: usize,
    members: RefCell<Vec<Rc<Member>>>,
    next_number: Cell<u32>,
    kernel: KernelPages,
    references: PageReferences,
    online: Cell<usize>,
    retired: Cell<u64>,
    offlined: Cell<u64>,
}

impl World {
    fn member(&self) -> Rc<Member> {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        Rc::new(Member {
            process: Rc::into_inner(self.system.process(number, 4 << 20)).expect("just made"),
            threads: Cell::new(0),
            remapping: Cell::new(false),
            churned: Cell::new(None),
            churning: Cell::new(false),
        })
    }

    fn any(&self) -> Rc<Member> {
        let members = self.members.borrow();
        members[machine::random_below(members.len() as u64) as usize].clone()
    }

    /// The main loop of one CPU.
    fn live(&self, steps: u64) {
        self.system.online();
        self.online.set(self.online.get() + 1);
        let mut mapped = false;
        for _ in 0..steps {
            match machine::random_below(20) {
                0 => self.change_kernel_pages(&mut mapped),
                1 => self.replace_a_process(),
                2 => self.reclaim(),
                3 if machine::chance(0.3) => self.nap(),
                4 => self.drop_from_outside(),
                5 => self.walk_another(),
                _ => self.run_a_thread(),
            }
            match machine::random_below(40) {
                0 => self.system.stop_ticks(),
                1..6 => self.system.resume_ticks(),
                _ => {}
            }
            if machine::chance(0.3) {
                self.system.tick();
                self.system.free_waiting_tables();
                self.system.release_quarantined();
            }
        }
        self.online.set(self.online.get() - 1);
        self.system.offline();
    }

    /// Runs a thread of some process for a while, and leaves by entering lazy TLB mode or by unloading.
    fn run_a_thread(&self) {
        let (system, member) = (&self.system, self.any());
        let process = &member.process;
        member.threads.set(member.threads.get() + 1);
        if machine::chance(0.5) {
            system.load(process);
        } else {
            system.resume(process);
        }
        for _ in 0..machine::random_below(12) {
            let page = USER_BASE + machine::random_below(COMMON) * PAGE;
            match machine::random_below(29) {
                0..8 => system.touch(process, page, Access::Read),
                8..14 => self.touch_under_the_user_half(page, || system.touch(process, page, Access::Write)),
                14..17 => {
                    let pages = 1 + machine::random_below(COMMON - (page - USER_BASE) / PAGE);
                    system.drop_pages(process, page, pages);
                }
                17 => self.remap(&member),
                18..20 => {
                    let page = RECLAIM_BASE + machine::random_below(RECLAIMED) * PAGE;
                    system.touch(process, page, Access::Write);
                }
                20 => {
                    let page = RECLAIM_BASE + machine::random_below(RECLAIMED) * PAGE;
                    system.rely_on_absence(process, page);
                }
                21 => {
                    system.go_lazy();
                    machine::charge(machine::random_below(5000));
                    system.resume(process);
                }
                22 => self.touch_kernel_pages(),
                23 => self.walk(&member),
                24 => self.churn(&member),
                25..27 => self.look_at_what_churns(),
                _ => machine::charge(machine::random_below(2000)),
            }
        }
        // The thread ends; the scheduler keeps the space loaded, or not.
        if machine::chance(0.6) {
            system.go_lazy();
        } else {
            system.unload();
        }
        member.threads.set(member.threads.get() - 1);
        machine::charge(machine::random_below(2000));
    }

    /// Pins pages of the common region by a lockless walk, short or long, in any context.
    fn walk(&self, member: &Member) {
        let walk = || {
            for _ in 0..1 + machine::random_below(6) {
                let page = USER_BASE + machine::random_below(COMMON) * PAGE;
                if self.system.pin_page(&member.process, self.references, page) {
                    self.system.unpin(self.references, page, 1);
                }
                machine::charge(machine::random_below(400));
            }
        };
        if machine::chance(0.2) {
            self.system.in_nmi_walk(&member.process, walk);
        } else {
            self.system.in_walk(&member.process, walk);
        }
    }

    /// Walks processes that this CPU need not run, one within the other at times.
    fn walk_another(&self) {
        let (one, two) = (self.any(), self.any());
        for member in [&one, &two] {
            member.threads.set(member.threads.get() + 1);
        }
        for _ in 0..4 {
            self.walk(&one);
            if machine::chance(0.3) {
                self.system.in_walk(&two.process, || self.walk(&one));
            }
        }
        for member in [&one, &two] {
            member.threads.set(member.threads.get() - 1);
        }
    }

    /// With split tags a user access happens under the user half; if it faults, the kernel's half comes back first.
    fn touch_under_the_user_half(&self, page: u64, touch: impl Fn()) {
        touch();
        if self.system.engine.machine().split {
            self.system.in_user_half(|| {
                let _ = self.system.hw.borrow_mut().translate(
                    machine::cpu(),
                    page,
                    Access::Read,
                    Privilege::User,
                    machine::now(),
                );
            });
        }
    }

    /// Unmaps the common region, freeing its table, and maps it again.
    fn remap(&self, member: &Member) {
        if !member.remapping.replace(true) {
            self.system.unmap(&member.process, USER_BASE, COMMON * PAGE);
            self.system.map(&member.process, USER_BASE, COMMON * PAGE);
            member.remapping.set(false);
        }
    }

    /// Maps and writes the moving region, or unmaps it.
    fn churn(&self, member: &Member) {
        if member.churning.replace(true) {
            return;
        }
        match member.churned.take() {
            Some(va) => self.system.unmap(&member.process, va, CHURNED * PAGE),
            None => {
                let places = (0..PLACES).map(|place| CHURN_BASE + place * CHURNED * PAGE);
                let va = self.system.place(&member.process, places, CHURNED * PAGE);
                self.system.map(&member.process, va, CHURNED * PAGE);
                for page in 0..machine::random_below(CHURNED + 1) {
                    self.system.touch(&member.process, va + page * PAGE, Access::Write);
                }
                member.churned.set(Some(va));
            }
        }
        member.churning.set(false);
    }

    /// Reads pages that may be mapped, unmapped, or in quarantine; a page fault is ignored.
    fn look_at_what_churns(&self) {
        for _ in 0..4 {
            let page = CHURN_BASE + machine::random_below(PLACES * CHURNED) * PAGE;
            machine::synchronise();
            let (cpu, now) = (machine::cpu(), machine::now());
            let _found = (self.system.hw.borrow_mut()).translate(cpu, page, Access::Read, Privilege::User, now);
            machine::charge(100);
        }
    }

    /// A kernel thread drops pages of a process that this CPU does not run.
    fn drop_from_outside(&self) {
        let member = self.any();
        member.threads.set(member.threads.get() + 1);
        let first = machine::random_below(COMMON);
        self.system
            .drop_pages(&member.process, USER_BASE + first * PAGE, COMMON - first);
        // Waiting for the lock may have loaded the process.
        self.system.unload();
        member.threads.set(member.threads.get() - 1);
    }

    fn reclaim(&self) {
        let victims: Vec<_> = (0..1 + machine::random_below(6))
            .map(|_| (self.any(), RECLAIM_BASE + machine::random_below(RECLAIMED) * PAGE))
            .collect();
        for (member, _) in &victims {
            member.threads.set(member.threads.get() + 1);
        }
        let pages: Vec<_> = victims.iter().map(|(member, va)| (&member.process, *va)).collect();
        self.system.reclaim(&pages);
        for (member, _) in &victims {
            member.threads.set(member.threads.get() - 1);
        }
    }

    fn touch_kernel_pages(&self) {
        let pages = KERNEL_PAGES * self.cpus as u64;
        for _ in 0..4 {
            self.system.touch_kernel(machine::random_below(pages));
        }
    }

    /// Maps or unmaps this CPU's own kernel pages; others touch them.
    fn change_kernel_pages(&self, mapped: &mut bool) {
        let first = machine::cpu() as u64 * KERNEL_PAGES;
        if *mapped {
            self.touch_kernel_pages();
            self.system.unmap_kernel(&self.kernel, first, KERNEL_PAGES);
        } else {
            for page in first..first + KERNEL_PAGES {
                self.system.map_kernel(&self.kernel, page);
                self.system.touch_kernel(page);
            }
        }
        *mapped = !*mapped;
    }

    /// Ends a process that no CPU runs, though CPUs may be lazy on it, and starts another.
    fn replace_a_process(&self) {
        let idle = {
            let mut members = self.members.borrow_mut();
            match members.iter().position(|member| member.threads.get() == 0) {
                Some(index) if members.len() > 1 => members.swap_remove(index),
                _ => return,
            }
        };
        self.system.exit(&idle.process);
        self.retired.set(self.retired.get() + 1);
        let member = self.member();
        self.system.map(&member.process, USER_BASE, COMMON * PAGE);
        self.system.map(&member.process, RECLAIM_BASE, RECLAIMED * PAGE);
        self.members.borrow_mut().push(member);
    }

    /// Turns this CPU off for a while, unless it is the last.
    fn nap(&self) {
        if self.online.get() < 2 {
            return;
        }
        self.online.set(self.online.get() - 1);
        let masked = machine::interrupts_off();
        self.system.offline();
        machine::charge(machine::random_below(20_000));
        self.system.online();
        machine::interrupts_restore(masked);
        self.online.set(self.online.get() + 1);
        self.offlined.set(self.offlined.get() + 1);
    }
}

/// The results of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    pub engine: EngineCounts,
    pub interrupts: u64,
    pub retired: u64,
    pub offlined: u64,
    pub checked: u64,
    pub walked: u64,
    pub tables_freed: u64,
    pub events: u64,
    pub violations: u64,
}

impl Tally {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Tally) {
        let (to, from) = (&mut self.engine, &other.engine);
        to.promoted += from.promoted;
        to.exhausted += from.exhausted;
        to.rolled_over += from.rolled_over;
        to.broadcasts += from.broadcasts;
        to.local_only += from.local_only;
        to.interrupting += from.interrupting;
        to.caught_up_partly += from.caught_up_partly;
        to.caught_up_whole += from.caught_up_whole;
        to.walks_changed += from.walks_changed;
        to.any_tag += from.any_tag;
        to.measured += from.measured;
        to.demoting += from.demoting;
        to.demoted += from.demoted;
        to.deferred += from.deferred;
        self.interrupts += other.interrupts;
        self.retired += other.retired;
        self.offlined += other.offlined;
        self.checked += other.checked;
        self.walked += other.walked;
        self.tables_freed += other.tables_freed;
        self.events += other.events;
    }
}

/// TLBs so small that entries are evicted continuously, and CPUs that speculate often. With every second seed page
/// invalidations spare the links that are not on the path.
pub fn small_hardware(cpus: usize, seed: u64) -> HwConfig {
    HwConfig {
        cpus,
        tlb_entries: 64,
        tlb_ways: 4,
        broadcast: Some(LIMITS),
        tce: seed.is_multiple_of(2),
        leaf_only_keeps_psc: true,
        speculation: 0.3,
        seed,
        ..HwConfig::default()
    }
}

/// Runs the traffic on x86; returns the first violation's history, if any, and whether the run finished.
pub fn play(traffic: &Traffic) -> (Tally, Option<String>, Outcome) {
    play_on(Isa::X86_64, traffic)
}

/// Runs the traffic on a machine of an instruction set.
pub fn play_on(isa: Isa, traffic: &Traffic) -> (Tally, Option<String>, Outcome) {
    let hooks = HookCosts {
        limits: Some(LIMITS),
        ..HookCosts::default()
    };
    play_with(isa, hooks, traffic)
}

/// Runs the traffic on x86 with remote actions; fewer entries than CPUs, so that CPUs wait for one.
pub fn play_remotely(traffic: &Traffic) -> (Tally, Option<String>, Outcome) {
    let remote = RemoteCosts {
        entries: 3,
        max_pages: 3,
        action: 150,
        page: 60,
        tag: 90,
        all: 120,
    };
    let hooks = HookCosts {
        remote: Some(remote),
        ..HookCosts::default()
    };
    play_with(Isa::X86_64, hooks, traffic)
}

fn play_with(isa: Isa, hooks: HookCosts, traffic: &Traffic) -> (Tally, Option<String>, Outcome) {
    let Traffic {
        design,
        cpus,
        steps,
        seed,
    } = *traffic;
    let mut machine = Machine::new(Config {
        seed,
        slack_cycles: 0,
        store_buffer: StoreBuffer::Random { max_cycles: 300 },
        max_events: 20_000_000,
        arena_bytes: 32 << 20,
        ..Config::new(Topology::regular(cpus, 2, 4, 8))
    });
    let hw = Hw::new(HwConfig {
        tce: seed.is_multiple_of(2) || isa != Isa::X86_64,
        tags: design.machine.has_tags(),
        tag_bits: if isa == Isa::X86_64 { 12 } else { 16 },
        isa,
        ..small_hardware(cpus, seed)
    });
    let costs = OsCosts {
        wake_latency: 500,
        ..OsCosts::default()
    };
    let system = System::new(&machine, hw, hooks, design, costs, OsSettings::default());
    let world = Rc::new(World {
        kernel: system.kernel_pages(),
        references: system.page_references(USER_BASE, COMMON),
        system: system.clone(),
        cpus,
        members: RefCell::default(),
        next_number: Cell::new(1),
        online: Cell::new(0),
        retired: Cell::new(0),
        offlined: Cell::new(0),
    });
    machine.spawn(0, {
        let world = world.clone();
        move || {
            for _ in 0..4 {
                let member = world.member();
                world.system.map(&member.process, USER_BASE, COMMON * PAGE);
                world.system.map(&member.process, RECLAIM_BASE, RECLAIMED * PAGE);
                world.members.borrow_mut().push(member);
            }
            world.live(steps);
        }
    });
    for cpu in 1..cpus {
        let world = world.clone();
        machine.spawn(cpu, move || {
            machine::charge(20_000);
            world.live(steps);
        });
    }
    let outcome = machine.run(u64::MAX, |_| true);
    let hw = system.hw.borrow();
    let tally = Tally {
        engine: system.engine.kernel().counts(),
        interrupts: machine.statistics().total.interrupts_taken,
        retired: world.retired.get(),
        offlined: world.offlined.get(),
        checked: hw.accesses_checked(),
        walked: hw.software_reads(),
        tables_freed: system.tables_freed(),
        events: machine.events(),
        violations: hw.violation_count(),
    };
    let diagnosis = hw.violations().first().map(ToString::to_string);
    drop(hw);
    (tally, diagnosis, outcome)
}
