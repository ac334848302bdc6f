//! Configuration of a machine: its topology, its costs and how closely virtual time is followed.
//!
//! Owns plain data only; every cost is in cycles and may have a fraction. Independent of translation.

/// Most CPUs that one machine can have.
pub const MAX_CPUS: usize = 1 << 13;

/// Ticks of internal virtual time in one cycle.
pub const TICKS_PER_CYCLE: u64 = 16;

/// A time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// Distances between CPUs. Every vector has one entry for each CPU; the numbers are only compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Number of CPUs (hardware threads), from 1 to [`MAX_CPUS`].
    pub cpus: usize,
    /// Core of each CPU: CPUs with the same number are SMT siblings.
    pub core_of: Vec<u16>,
    /// Cluster (shared last-level cache slice, chiplet) of each CPU.
    pub cluster_of: Vec<u16>,
    /// Socket of each CPU.
    pub socket_of: Vec<u16>,
}

impl Topology {
    /// `cpus` CPUs without SMT in one cluster of one socket.
    pub fn flat(cpus: usize) -> Self {
        Self::regular(cpus, 1, usize::MAX, usize::MAX)
    }

    /// `cpus` CPUs in numeric order: `threads` to a core, `per_cluster` to a cluster, `per_socket` to a socket.
    pub fn regular(cpus: usize, threads: usize, per_cluster: usize, per_socket: usize) -> Self {
        let group = |size: usize| (0..cpus).map(|cpu| (cpu / size.max(1)) as u16).collect();
        Topology {
            cpus,
            core_of: group(threads),
            cluster_of: group(per_cluster),
            socket_of: group(per_socket),
        }
    }

    /// How far `a` is from `b`.
    pub fn distance(&self, a: usize, b: usize) -> Distance {
        if self.socket_of[a] != self.socket_of[b] {
            Distance::OtherSocket
        } else if self.cluster_of[a] != self.cluster_of[b] {
            Distance::SameSocket
        } else if self.core_of[a] != self.core_of[b] {
            Distance::SameCluster
        } else {
            Distance::SameCore
        }
    }
}

/// Distance between two CPUs; the index into the cost tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// The same CPU or its SMT sibling.
    SameCore = 0,
    /// Another core of the same cluster.
    SameCluster = 1,
    /// Another cluster of the same socket.
    SameSocket = 2,
    /// Another socket.
    OtherSocket = 3,
}

/// Costs of the core machine's operations, in cycles. The defaults resemble a current server processor and are meant
/// for tests; models supply their own.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreCosts {
    /// A load or store that hits the first-level cache.
    pub l1: f64,
    /// Cost of an atomic read-modify-write in addition to gaining the line.
    pub rmw: f64,
    /// First touch of a line that no CPU ever used.
    pub cold_line: f64,
    /// Moving a line from its last owner, by [`Distance`].
    pub transfer: [f64; 4],
    /// Prefetches that a CPU can have in flight; 0: prefetches have no effect.
    pub prefetches: usize,
    /// How long a CPU that has gained a line can still use it when another CPU requests it next.
    pub line_hold: f64,
    /// Scope of the requests for a busy line that are served together: 0 none, 1 a cluster, 2 a socket.
    pub line_batches: usize,
    /// The time of a queued transfer, relative to one between two CPUs.
    pub line_contended: f64,
    /// Most work between two loads of lines of other CPUs that still overlap; 0: loads do not overlap.
    pub load_window: f64,
    /// A full barrier with an empty store buffer.
    pub fence: f64,
    /// Sending an interrupt to the first target of a request (sender's time).
    pub ipi_first: f64,
    /// Each further write of the interrupt register for the same request (sender's time).
    pub ipi_next: f64,
    /// Time from the send to the arrival, by [`Distance`].
    pub ipi_latency: [f64; 4],
    /// How much later one arrival in fifty is, in the median; each between zero and twice that.
    pub ipi_late: f64,
    /// Time from taking an interrupt to the handler's first instruction.
    pub interrupt_entry: f64,
    /// Time from the handler's last instruction back to the interrupted code.
    pub interrupt_exit: f64,
    /// Factor on all charges while an SMT sibling runs, from 1. It does not slow transfers of lines.
    pub smt_slowdown: f64,
    /// Factor on all charges while SMT siblings only spin in `wait_until`, from 1.
    pub smt_spin_slowdown: f64,
}

impl Default for CoreCosts {
    fn default() -> Self {
        CoreCosts {
            l1: 4.0,
            rmw: 16.0,
            cold_line: 14.0,
            transfer: [24.0, 70.0, 140.0, 320.0],
            prefetches: 10,
            line_hold: 0.0,
            line_batches: 0,
            line_contended: 1.0,
            load_window: 0.0,
            fence: 30.0,
            ipi_first: 150.0,
            ipi_next: 60.0,
            ipi_latency: [900.0, 1000.0, 1200.0, 2000.0],
            ipi_late: 0.0,
            interrupt_entry: 700.0,
            interrupt_exit: 400.0,
            smt_slowdown: 1.35,
            smt_spin_slowdown: 1.1,
        }
    }
}

/// When a plain store becomes visible to other CPUs. In every mode the order of one CPU's stores is kept (x86-TSO).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreBuffer {
    /// At once; the storing CPU waits for the line.
    Off,
    /// When the line is gained; the storing CPU does not wait.
    Timing,
    /// As `Timing`, plus a random delay, which exposes missing barriers.
    Random {
        /// Most extra delay of one store, cycles.
        max_cycles: u64,
    },
}

/// A machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The CPUs.
    pub topology: Topology,
    /// What operations cost.
    pub costs: CoreCosts,
    /// Kernels that run on the machine, from 1: each on an equal part of the CPUs, in order.
    pub kernels: usize,
    /// Group of each CPU: one write of the interrupt register reaches CPUs of one group. Empty: each takes its own.
    pub ipi_groups: Vec<u16>,
    /// The same seed gives the same run.
    pub seed: u64,
    /// When plain stores become visible.
    pub store_buffer: StoreBuffer,
    /// Stores that one CPU can buffer; a further store waits for the oldest.
    pub store_buffer_entries: usize,
    /// How far (cycles) a CPU may be ahead of the slowest one when it touches shared memory; 0 = strict order.
    ///  The default is about the time of a line transfer across a socket. Against strict order it moves the throughput
    ///  of `tlb_flush2` on the Milan model by -1.0 % (IPI, 16 threads), -0.6 % (IPI, 72), +1.3 % (broadcast, 16), +0.2
    ///  % (broadcast, 72) and 0.0 % (adaptive, 72).
    pub slack_cycles: u64,
    /// How far (cycles) a CPU may be ahead while it only touches lines that it holds and fills its store buffer; at
    /// least `slack_cycles`, and ignored when that is 0. Far above what a transfer takes, CPUs keep contended lines too
    /// long: with 480, `tlb_flush2` by broadcast with 16 threads gains 4 %.
    pub private_slack_cycles: u64,
    /// A waiting CPU evaluates its condition again after this many cycles even if nothing changed; 0 = never.
    pub recheck_cycles: u64,
    /// Usable bytes of each CPU's stack.
    pub stack_bytes: usize,
    /// Tasks that can be added beyond one for each CPU; each needs a stack.
    pub extra_tasks: usize,
    /// Address space for simulated memory, bytes, stacks not included; committed only when touched.
    pub arena_bytes: usize,
    /// Charged operations after which a run is aborted as a livelock.
    pub max_events: u64,
    /// Charged operations between two calls of the progress callback.
    pub progress_events: u64,
}

impl Config {
    /// A machine with this topology and default costs, strictness and sizes.
    pub fn new(topology: Topology) -> Self {
        Config {
            topology,
            costs: CoreCosts::default(),
            kernels: 1,
            ipi_groups: Vec::new(),
            seed: 1,
            store_buffer: StoreBuffer::Timing,
            store_buffer_entries: 56,
            slack_cycles: 330,
            private_slack_cycles: 330,
            recheck_cycles: 0,
            stack_bytes: 64 << 10,
            extra_tasks: 0,
            arena_bytes: 64 << 20,
            max_events: u64::MAX,
            progress_events: 1 << 20,
        }
    }
}

/// Cycles as internal ticks, rounded to the nearest.
pub(crate) fn ticks(cycles: f64) -> u64 {
    (cycles * TICKS_PER_CYCLE as f64).round().max(0.0) as u64
}

/// [`CoreCosts`] in ticks.
#[derive(Debug, Clone)]
pub(crate) struct TickCosts {
    pub l1: u64,
    pub rmw: u64,
    pub cold_line: u64,
    pub transfer: [u64; 4],
    pub prefetches: usize,
    pub line_hold: u64,
    pub line_batches: usize,
    /// Factor times 256.
    pub line_contended: u64,
    pub load_window: u64,
    pub fence: u64,
    pub ipi_first: u64,
    pub ipi_next: u64,
    pub ipi_latency: [u64; 4],
    pub ipi_late: u64,
    pub interrupt_entry: u64,
    pub interrupt_exit: u64,
    /// Factor times 256.
    pub smt_slowdown: u64,
    /// Factor times 256.
    pub smt_spin_slowdown: u64,
}

impl TickCosts {
    pub(crate) fn new(costs: &CoreCosts) -> Self {
        let factor = |factor: f64| (factor.max(1.0) * 256.0).round() as u64;
        TickCosts {
            l1: ticks(costs.l1).max(1),
            rmw: ticks(costs.rmw),
            cold_line: ticks(costs.cold_line),
            transfer: costs.transfer.map(ticks),
            prefetches: costs.prefetches,
            line_hold: ticks(costs.line_hold),
            line_batches: costs.line_batches,
            line_contended: (costs.line_contended * 256.0).round() as u64,
            load_window: ticks(costs.load_window),
            fence: ticks(costs.fence),
            ipi_first: ticks(costs.ipi_first),
            ipi_next: ticks(costs.ipi_next),
            ipi_latency: costs.ipi_latency.map(ticks),
            ipi_late: ticks(costs.ipi_late),
            interrupt_entry: ticks(costs.interrupt_entry),
            interrupt_exit: ticks(costs.interrupt_exit),
            smt_slowdown: factor(costs.smt_slowdown),
            smt_spin_slowdown: factor(costs.smt_spin_slowdown),
        }
    }
}
