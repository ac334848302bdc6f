//! The central record of a machine: its CPUs, lines, limits and queues, its construction, and the activity of each CPU.

use super::arena::Mapping;
use super::config::{Config, NEVER, TickCosts, ticks};
use super::cpu::{Cpu, Load, SLOW_HOST, SLOW_RANDOM, State, TAGS};
use super::hypervisor::Hypervisor;
use super::lines::Lines;
use super::parked::Tasks;
use super::store_buffer::Drains;
use super::tree::Tree;
use super::{Barrier, StoreBuffer};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// What the machine calls in a kernel.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub interrupt: OnceCell<Box<dyn Fn()>>,
    pub store: OnceCell<Box<dyn Fn(u64, u64)>>,
    /// Additional effects of barriers beyond those of x86; unset if none.
    pub barrier: OnceCell<Box<dyn Fn(Barrier)>>,
    pub preemption: OnceCell<Box<dyn Fn()>>,
}

/// A write of the interrupt register that reaches a group of CPUs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GroupWrite {
    /// Name of the sender, and the start of its sending, ticks: they identify the request.
    pub request: (u16, u64),
    /// When it was written, ticks.
    pub at: u64,
}

pub(crate) type Timer = Box<dyn FnOnce()>;

/// All state of a machine that is reached from its CPUs.
pub(crate) struct Core {
    /// The CPU that runs; the host's stand-in between turns.
    pub current: Cell<*const Cpu>,
    /// Latest clock at which the running CPU may touch lines that other CPUs use, lines it owns, or nothing shared.
    pub shared_limit: Cell<u64>,
    pub private_limit: Cell<u64>,
    pub charge_limit: Cell<u64>,
    /// When the earliest other CPU is due.
    pub others: Cell<u64>,
    pub window: Cell<u64>,

    pub lines: Lines,
    pub costs: TickCosts,
    /// All CPUs, and the host's stand-in last.
    pub cpus: Box<[Cpu]>,
    /// Memory that the CPUs' `tags` point into.
    _tags: Mapping,
    /// Socket, cluster and core of each CPU, 16 bits each from the high end, by name.
    pub places: Box<[u64]>,
    /// Group of each CPU, for interrupts; empty: each is one.
    pub ipi_groups: Box<[u16]>,
    /// The last write for each group.
    pub group_writes: Box<[Cell<GroupWrite>]>,
    pub tree: Tree,
    pub drains: Drains,
    pub timers: RefCell<BTreeMap<(u64, u64), Timer>>,
    pub timer_at: Cell<u64>,
    pub timer_count: Cell<u64>,

    pub slack: u64,
    pub private_slack: u64,
    /// Shortest time from the send of an interrupt to its arrival.
    pub horizon: u64,
    pub recheck: u64,
    pub mode: StoreBuffer,
    pub entries: usize,
    pub deadline: Cell<u64>,
    /// Time of the scheduler: of the last turn or timer, ticks.
    pub time: Cell<u64>,
    pub events: Cell<u64>,
    pub max_events: u64,
    pub progress_events: u64,
    /// Number of charged operations at which the scheduler next checks its limits.
    pub report_at: Cell<u64>,
    /// CPU that last called `stop_requested` (by name), the time, and the number of calls at that time.
    pub last_stop_check: Cell<(u16, u64, u32)>,
    /// A CPU that does not spend time.
    pub stuck: Cell<bool>,
    /// CPU on which the task that just gave up its turn continues; its own when another task takes its place.
    pub moving: Cell<Option<usize>>,
    pub tasks: Tasks,
    /// Tasks that must end before the run does.
    pub unfinished: Cell<usize>,
    /// The machine is being dropped: operations still work on memory but never wait.
    pub dying: Cell<bool>,

    pub rng: RefCell<Xoshiro256PlusPlus>,
    /// Callbacks of the kernels that run on the machine.
    pub kernels: Box<[Callbacks]>,
    /// Callback for each interrupt that a CPU sends, with its target.
    pub send_hook: OnceCell<Box<dyn Fn(usize)>>,
    pub hypervisor: OnceCell<Box<dyn Hypervisor>>,
}

impl Core {
    pub(crate) fn new(config: &Config, lines: Lines) -> Self {
        let topology = &config.topology;
        let mut cores: BTreeMap<_, Vec<u16>> = BTreeMap::new();
        let core = |cpu: usize| (topology.socket_of[cpu], topology.cluster_of[cpu], topology.core_of[cpu]);
        for cpu in 0..topology.cpus {
            cores.entry(core(cpu)).or_default().push(cpu as u16);
        }
        let siblings = |cpu: usize| match cpu == topology.cpus {
            true => Box::default(),
            false => cores[&core(cpu)]
                .iter()
                .copied()
                .filter(|&other| usize::from(other) != cpu)
                .collect(),
        };
        // The host's stand-in belongs to the last one.
        let kernel = |cpu: usize| (cpu * config.kernels / topology.cpus).min(config.kernels - 1) as u8;
        let costs = TickCosts::new(&config.costs);
        let slack = ticks(config.slack_cycles as f64);
        let (private_slack, horizon) = match slack {
            0 => (0, 0),
            _ => (
                ticks(config.private_slack_cycles as f64).max(slack),
                costs.ipi_latency.iter().copied().min().unwrap_or(0).max(slack),
            ),
        };
        let tags = Mapping::new((topology.cpus + 1) * TAGS * size_of::<u64>());
        tags.prefer_large_pages();
        let cpus: Box<[Cpu]> = (0..=topology.cpus)
            .map(|cpu| {
                // SAFETY: the mapping has as many arrays of zeroes as there are CPUs, the host's stand-in included.
                let own = unsafe { NonNull::new_unchecked(tags.start().cast::<[Cell<u64>; TAGS]>().add(cpu)) };
                Cpu::new(topology, cpu, siblings(cpu), kernel(cpu), own)
            })
            .collect();
        let place = |cpu: usize| {
            let of = |numbers: &[u16]| u64::from(numbers[cpu]);
            of(&topology.socket_of) << 32 | of(&topology.cluster_of) << 16 | of(&topology.core_of)
        };
        let groups = config.ipi_groups.iter().max().map_or(0, |&last| usize::from(last) + 1);
        let core = Core {
            current: Cell::new(&cpus[topology.cpus]),
            shared_limit: Cell::new(0),
            private_limit: Cell::new(0),
            charge_limit: Cell::new(0),
            others: Cell::new(NEVER),
            window: Cell::new(0),
            lines,
            costs,
            tree: Tree::new(topology.cpus, config.seed),
            cpus,
            _tags: tags,
            places: std::iter::once(0)
                .chain((0..topology.cpus).map(place))
                .chain(std::iter::once(0))
                .collect(),
            ipi_groups: config.ipi_groups.clone().into(),
            group_writes: vec![Cell::default(); groups].into(),
            drains: Drains::default(),
            timers: RefCell::default(),
            timer_at: Cell::new(NEVER),
            timer_count: Cell::new(0),
            slack,
            private_slack,
            horizon,
            recheck: ticks(config.recheck_cycles as f64),
            mode: config.store_buffer,
            entries: config.store_buffer_entries.max(1),
            deadline: Cell::new(NEVER),
            time: Cell::new(0),
            events: Cell::new(0),
            max_events: config.max_events,
            progress_events: config.progress_events.max(1),
            report_at: Cell::new(0),
            last_stop_check: Cell::new((0, 0, 0)),
            stuck: Cell::new(false),
            moving: Cell::new(None),
            tasks: Tasks::default(),
            unfinished: Cell::new(0),
            dying: Cell::new(false),
            rng: RefCell::new(Xoshiro256PlusPlus::seed_from_u64(config.seed)),
            kernels: (0..config.kernels).map(|_| Callbacks::default()).collect(),
            send_hook: OnceCell::new(),
            hypervisor: OnceCell::new(),
        };
        for cpu in &core.cpus {
            core.rescale(cpu);
            cpu.set_slow(SLOW_RANDOM, matches!(core.mode, StoreBuffer::Random { .. }));
        }
        core
    }

    /// The running CPU, or the host's stand-in.
    #[inline]
    pub(crate) fn cpu(&self) -> &Cpu {
        // SAFETY: `current` always points into `self.cpus`, which is neither moved nor replaced.
        unsafe { &*self.current.get() }
    }

    pub(super) fn host(&self) -> &Cpu {
        &self.cpus[self.cpus.len() - 1]
    }

    /// Whether a simulated CPU runs, and not the host (set-up, a timer, the drop).
    #[inline]
    pub(crate) fn on_cpu(&self) -> bool {
        // The bit is set for the host's stand-in, and for all CPUs while the machine is being dropped.
        self.cpu().slow.get() & SLOW_HOST == 0
    }

    /// Changes the activity of `cpu`, and with it the speed of its siblings.
    #[inline]
    pub(crate) fn set_state(&self, cpu: &Cpu, state: State) {
        let old = cpu.state.replace(state);
        if old.load() != state.load() {
            for &sibling in &cpu.siblings {
                self.rescale(&self.cpus[usize::from(sibling)]);
            }
        }
    }

    fn rescale(&self, cpu: &Cpu) {
        let slowed = |&sibling: &u16| match self.cpus[usize::from(sibling)].state.get().load() {
            Load::Working => self.costs.smt_slowdown,
            Load::Spinning => self.costs.smt_spin_slowdown,
            Load::None => 256,
        };
        cpu.factor
            .set(cpu.siblings.iter().map(slowed).max().unwrap_or(256) as u32);
        cpu.l1.set(cpu.scaled(self.costs.l1) as u32);
        cpu.rmw_hit.set(cpu.scaled(self.costs.l1 + self.costs.rmw) as u32);
    }
}
