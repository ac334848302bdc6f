//! The tables of a model file and what each number means.
//!
//! One macro declares a table once: the struct that the simulator reads, its documentation, and the rule each number
//! must meet. Times are `f64` processor cycles whichever unit the file used; the numbers themselves, and their reasons,
//! are in the model files and `docs/src/machines/priors.md`.

use super::topology::Distance;

/// The constraint on a number, and the units that it may have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rule {
    /// A time, cycles or ns, above zero.
    Time,
    /// A time that may be zero.
    TimeOrZero,
    /// A whole number between two bounds.
    Whole(u32, u32),
    /// A slowdown factor: at least 1.
    Factor,
    /// A factor that may shorten: at least 0.1.
    Scale,
    /// A probability.
    Probability,
    /// A clock in GHz.
    Clock,
    /// `true` or `false`.
    Flag,
}

impl Rule {
    /// Longest time accepted, in the written unit: catches a misplaced decimal point and prevents overflow.
    pub(super) const LONGEST: f64 = 1e9;

    /// Whether the number is a time (cycles or ns) and not a pure value.
    pub(super) const fn is_time(self) -> bool {
        matches!(self, Rule::Time | Rule::TimeOrZero)
    }

    /// `Err` says what is expected of a number whose unit is called `unit` (`cycles`, `ns` or `value`).
    pub(super) fn check(self, value: f64, unit: &str) -> Result<(), String> {
        let fits = match self {
            Rule::Time if value <= 0.0 => return Err(format!("expected {unit} > 0")),
            Rule::TimeOrZero if value < 0.0 => return Err(format!("expected {unit} >= 0")),
            Rule::Time | Rule::TimeOrZero => value <= Rule::LONGEST,
            Rule::Whole(least, most) => value.fract() == 0.0 && f64::from(least) <= value && value <= f64::from(most),
            Rule::Factor => (1.0..=1000.0).contains(&value),
            Rule::Scale => (0.1..=1000.0).contains(&value),
            Rule::Probability => (0.0..=1.0).contains(&value),
            Rule::Clock => 0.0 < value && value <= 100.0,
            Rule::Flag => value == 0.0 || value == 1.0,
        };
        if fits {
            Ok(())
        } else {
            Err(format!("expected {}", self.describe(unit)))
        }
    }

    fn describe(self, unit: &str) -> String {
        match self {
            Rule::Time => format!("finite {unit} > 0 and <= {}", Rule::LONGEST),
            Rule::TimeOrZero => format!("finite {unit} >= 0 and <= {}", Rule::LONGEST),
            Rule::Whole(least, most) => format!("a whole value from {least} to {most}"),
            Rule::Factor => "a value from 1 to 1000".into(),
            Rule::Scale => "a value from 0.1 to 1000".into(),
            Rule::Probability => "a value from 0 to 1".into(),
            Rule::Clock => "a value in GHz > 0 and <= 100".into(),
            Rule::Flag => "value = true or value = false".into(),
        }
    }
}

/// One number that a model file must give.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    /// Key in its table.
    pub name: &'static str,
    /// Dotted path, `table.name`.
    pub path: &'static str,
    /// Its constraint.
    pub rule: Rule,
}

/// Turns a checked number into the type of the struct field that holds it.
trait FromNumber {
    fn from_number(number: f64) -> Self;
}

impl FromNumber for f64 {
    fn from_number(number: f64) -> f64 {
        number
    }
}

impl FromNumber for usize {
    fn from_number(number: f64) -> usize {
        number as usize
    }
}

impl FromNumber for u32 {
    fn from_number(number: f64) -> u32 {
        number as u32
    }
}

impl FromNumber for bool {
    fn from_number(number: f64) -> bool {
        number != 0.0
    }
}

macro_rules! table {
    ($(#[$about:meta])* $table:literal $name:ident {
        $($(#[$meaning:meta])* $field:ident: $type:ty = $rule:expr,)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $name {
            $($(#[$meaning])* pub $field: $type,)*
        }

        impl $name {
            pub(super) const FIELDS: &'static [Field] = &[$(Field {
                name: stringify!($field),
                path: concat!($table, ".", stringify!($field)),
                rule: $rule,
            },)*];

            /// `number` gives the checked number at a dotted path, times in cycles.
            pub(super) fn build(number: &dyn Fn(&'static str) -> f64) -> $name {
                $name {
                    $($field: FromNumber::from_number(number(concat!($table, ".", stringify!($field)))),)*
                }
            }
        }
    };
}

table! {
    /// Costs of single machine operations, in cycles.
    "costs" Costs {
        /// A load or store that hits the first-level cache.
        l1_hit: f64 = Rule::Time,
        /// An atomic read-modify-write on a line already held exclusively, beyond the transfer that fetches the line.
        rmw: f64 = Rule::Time,
        /// A full memory barrier with an empty store buffer.
        full_barrier: f64 = Rule::Time,
        /// Moving a line from a sibling hardware thread.
        transfer_core: f64 = Rule::Time,
        /// Moving a line from another core of the cluster.
        transfer_cluster: f64 = Rule::Time,
        /// Moving a line from another cluster of the socket.
        transfer_socket: f64 = Rule::Time,
        /// Moving a line from another socket.
        transfer_remote: f64 = Rule::Time,
        /// Prefetches that a CPU can have in flight; 0 where prefetches have no effect. Without one the simulated CPU
        /// waits for each line that it reads.
        prefetches: usize = Rule::Whole(0, 256),
        /// Sender's time for the first target of an interrupt.
        ipi_send: f64 = Rule::Time,
        /// Each further write of the interrupt register for the same request; one reaches `linux.ipi_cluster` CPUs.
        ipi_send_more: f64 = Rule::TimeOrZero,
        /// Delivery time of an interrupt to a CPU of the same cluster: from the send to its entry's first cycle.
        ipi_deliver_cluster: f64 = Rule::Time,
        /// Delivery time to another cluster of the socket.
        ipi_deliver_socket: f64 = Rule::Time,
        /// Delivery time to another socket.
        ipi_deliver_remote: f64 = Rule::Time,
        /// By how much one delivery in fifty is later than that, in the median: a hypervisor's host was busy. Each is
        /// late by between zero and twice that, uniformly distributed. 0: all deliveries take the same time.
        ipi_late: f64 = Rule::TimeOrZero,
        /// Target's time from accepting an interrupt to the first line of the handler, the pipeline flush included.
        interrupt_entry: f64 = Rule::Time,
        /// Target's time from the last line of the handler to the interrupted instruction.
        interrupt_exit: f64 = Rule::Time,
        /// Extra time of an access that hits the TLB.
        tlb_hit: f64 = Rule::Time,
        /// One table level read by the hardware walker on a TLB miss, entry cached.
        walk_step: f64 = Rule::Time,
        /// INVLPG, the later refill not included (the simulated TLB charges that).
        invlpg: f64 = Rule::Time,
        /// INVPCID type 0: one address under one tag.
        invpcid_address: f64 = Rule::Time,
        /// INVPCID type 1: one tag.
        invpcid_tag: f64 = Rule::Time,
        /// INVPCID type 2: everything, global entries included.
        invpcid_all: f64 = Rule::Time,
        /// Loading CR3 with NOFLUSH set.
        root_load_keep: f64 = Rule::Time,
        /// Loading CR3 with a flush of the tag's entries.
        root_load_flush: f64 = Rule::Time,
        /// Issuing one INVLPGB; it completes later.
        broadcast_issue: f64 = Rule::Time,
        /// TLBSYNC after one INVLPGB on an otherwise idle machine.
        broadcast_sync: f64 = Rule::Time,
        /// Mean time for which one broadcast invalidation occupies the whole machine, so that the next has to wait; 0
        /// for no limit. Each takes between zero and twice that, uniformly distributed.
        broadcast_interval: f64 = Rule::TimeOrZero,
        /// Delay of user code on each other CPU that is awake, per broadcast.
        broadcast_received: f64 = Rule::TimeOrZero,
    }
}

impl Costs {
    /// Cycles to move a cache line between CPUs this far apart; within one CPU, a first-level hit.
    pub const fn transfer(&self, distance: Distance) -> f64 {
        match distance {
            Distance::Same => self.l1_hit,
            Distance::Core => self.transfer_core,
            Distance::Cluster => self.transfer_cluster,
            Distance::Socket => self.transfer_socket,
            Distance::Remote => self.transfer_remote,
        }
    }

    /// Delivery time of an interrupt between CPUs this far apart, cycles. Siblings count as one cluster.
    pub const fn ipi_deliver(&self, distance: Distance) -> f64 {
        match distance {
            Distance::Same | Distance::Core | Distance::Cluster => self.ipi_deliver_cluster,
            Distance::Socket => self.ipi_deliver_socket,
            Distance::Remote => self.ipi_deliver_remote,
        }
    }
}

table! {
    /// Costs of the kernel around the engine, in cycles, excluding everything that is simulated step by step: lock
    /// words, page-table writes, TLB work and interrupts are charged separately.
    "kernel" KernelCosts {
        /// Entering and leaving the kernel by a system call.
        syscall: f64 = Rule::TimeOrZero,
        /// A page fault: exception entry and exit, finding the region, accounting.
        fault: f64 = Rule::TimeOrZero,
        /// Taking a frame from the per-CPU free list.
        page_alloc: f64 = Rule::TimeOrZero,
        /// Clearing a 4 KiB frame.
        page_zero: f64 = Rule::TimeOrZero,
        /// Returning a frame to the per-CPU free list.
        page_free: f64 = Rule::TimeOrZero,
        /// Writing one table entry and its reverse mapping.
        map_entry: f64 = Rule::TimeOrZero,
        /// Clearing one table entry and its reverse mapping.
        unmap_entry: f64 = Rule::TimeOrZero,
        /// `madvise` apart from the system call and per-page work.
        madvise: f64 = Rule::TimeOrZero,
        /// `mmap` apart from the system call.
        mmap: f64 = Rule::TimeOrZero,
        /// `munmap` apart from the system call and per-page work.
        munmap: f64 = Rule::TimeOrZero,
        /// Adding a page to the CPU's batch for the LRU lists.
        lru_add: f64 = Rule::TimeOrZero,
        /// Hold time of the LRU lock for the lines of the list and its counters, if another CPU held it before.
        lru_hold: f64 = Rule::TimeOrZero,
        /// Added hold time for each page of the batch that is put on the list or taken off.
        lru_page: f64 = Rule::TimeOrZero,
        /// One access of the user program, including its own instructions, excluding cache and TLB.
        user_access: f64 = Rule::TimeOrZero,
        /// Blocking a task and switching to the idle task.
        sleep: f64 = Rule::TimeOrZero,
        /// The waker's work to make a blocked task runnable, the interrupt not included.
        wake: f64 = Rule::TimeOrZero,
        /// From the wake-up until the task runs again: leaving the first idle state, and scheduling.
        wake_latency: f64 = Rule::TimeOrZero,
        /// Leaving the first idle state: the delay of an interrupt handler on an idle CPU.
        idle_exit: f64 = Rule::TimeOrZero,
        /// Leaving the second idle state, that of a core all of whose threads sleep; 0: none, as in a virtual machine.
        deep_idle_exit: f64 = Rule::TimeOrZero,
        /// Least sleep of a CPU in the second idle state.
        deep_idle_after: f64 = Rule::TimeOrZero,
        /// A context switch without the root load.
        switch: f64 = Rule::TimeOrZero,
        /// Time slice of a thread while another waits for its CPU.
        slice: f64 = Rule::Time,
        /// Time between two scheduler ticks of a CPU; only designs that defer unmaps to ticks have them.
        tick_period: f64 = Rule::Time,
        /// The tick's handler, excluding interrupt entry and exit: accounting, timers, the scheduler.
        tick: f64 = Rule::TimeOrZero,
        /// A cross-CPU call, for each target: the movements of its descriptor's line that its requester waits for.
        call_target: f64 = Rule::TimeOrZero,
        /// Factor on the times of memory management, which are all up to `lru_add`: mitigations, debug options and
        /// accounting; below 1 for kernels leaner than that table's.
        slowdown: f64 = Rule::Scale,
        /// Page-table isolation, both root loads of an entry from user mode. Above 0 tags are split, if they suffice.
        isolation: f64 = Rule::TimeOrZero,
    }
}

table! {
    /// Costs of sharing a core, as factors on time.
    "smt" Smt {
        /// How many times longer instructions take while a sibling works too. A wait for a cache line takes no longer.
        slowdown: f64 = Rule::Factor,
        /// How many times longer work takes while a sibling spins with PAUSE.
        spin_slowdown: f64 = Rule::Factor,
    }
}

table! {
    /// The translation caches of one core.
    "tlb" Tlb {
        /// Entries for 4 KiB pages.
        entries: usize = Rule::Whole(1, 1 << 20),
        /// Ways of a set; divides `entries`.
        ways: usize = Rule::Whole(1, 1 << 20),
        /// Entries for 2 MiB pages.
        large_entries: usize = Rule::Whole(1, 1 << 20),
        /// Entries of the cache of upper table levels.
        paging_structure_entries: usize = Rule::Whole(1, 1 << 20),
        /// Invalidating a page drops only the upper-level entries on the path to it, not all of its tag (x86 EFER.TCE).
        tce: bool = Rule::Flag,
    }
}

table! {
    /// Hardware tags (PCID, ASID).
    "tags" Tags {
        /// Width of a tag in bits; 0 for a machine without tags (x86 without PCIDs, RISC-V without ASIDs).
        bits: u32 = Rule::Whole(0, 16),
        /// Tags that each CPU keeps for recently run spaces under the per-CPU scheme.
        slots: usize = Rule::Whole(1, 64),
    }
}

table! {
    /// Invalidation broadcast by hardware (INVLPGB and TLBSYNC).
    "broadcast" BroadcastModel {
        /// Whether the machine has it.
        available: bool = Rule::Flag,
        /// Most 4 KiB pages in one instruction.
        max_pages: u32 = Rule::Whole(1, 65_536),
        /// Most 2 MiB pages in one instruction.
        max_large_pages: u32 = Rule::Whole(1, 65_536),
    }
}

table! {
    /// Remote Action Requests (Intel): a table of x86-64 machines that have them. A message costs as much as an
    /// interrupt to send and to deliver, and an invalidation as much as INVPCID.
    "rar" RarModel {
        /// Entries of the payload table; 0 turns the feature off.
        entries: usize = Rule::Whole(0, 64),
        /// Most pages of one entry.
        max_pages: u32 = Rule::Whole(1, 63),
        /// Microcode time for a message, excluding the invalidations.
        action: f64 = Rule::TimeOrZero,
    }
}

table! {
    /// Costs and scheduling of a hypervisor under the kernel, for machines that run as virtual ones (`--vm`).
    "vm" VmModel {
        /// Virtual CPUs: the first of the machine; 0 for a machine that is not virtual.
        vcpus: usize = Rule::Whole(0, 8192),
        /// Host CPUs that they share; 0: as many as virtual CPUs.
        host_cpus: usize = Rule::Whole(0, 8192),
        /// Virtual machines on the host that run the same program, this one included; each has `vcpus`.
        machines: usize = Rule::Whole(1, 64),
        /// Always-busy virtual CPUs of other machines that share the host's CPUs too.
        others: usize = Rule::Whole(0, 65_536),
        /// Whether a descheduled virtual CPU is flushed at its entry, in place of an interrupt.
        pv_flush: bool = Rule::Flag,
        /// Whether a halted virtual CPU is flushed at its entry too; else it is interrupted. Hosts before Linux 5.19
        /// report a halted one as preempted.
        halted_flush: bool = Rule::Flag,
        /// Whether a running virtual CPU takes interrupts without an exit.
        posted: bool = Rule::Flag,
        /// Whether sending one needs no exit either.
        ipi_virtualised: bool = Rule::Flag,
        /// Whether the guest may broadcast invalidations, if the machine can; on AArch64 always.
        broadcast: bool = Rule::Flag,
        /// Sender's time for its exit with the first target of an interrupt.
        ipi_exit: f64 = Rule::TimeOrZero,
        /// Sender's time for each further target.
        ipi_exit_more: f64 = Rule::TimeOrZero,
        /// Added delivery time of an interrupt that is not posted.
        kick: f64 = Rule::TimeOrZero,
        /// Target's time for an interrupt that is not posted: exit, injection, entry.
        inject: f64 = Rule::TimeOrZero,
        /// Time from one virtual CPU's leaving a host CPU to the start of the next one there.
        switch: f64 = Rule::TimeOrZero,
        /// Time until a halted virtual CPU runs again, on a free host CPU.
        wake: f64 = Rule::TimeOrZero,
        /// Mean time slice of a virtual CPU while another waits for a host CPU.
        slice: f64 = Rule::Time,
        /// Period in which each virtual CPU of a host CPU runs once, unless slices would become shorter than `slice`;
        /// 0: each slice is `slice`.
        latency: f64 = Rule::TimeOrZero,
        /// How much more than another virtual CPU the running one must have run to be preempted by it, when that one
        /// wakes up or when another yields to it.
        wakeup: f64 = Rule::TimeOrZero,
        /// How long a virtual CPU spins before its first pause-loop exit since its entry; doubled each time. 0: it
        /// never exits.
        spin_window: f64 = Rule::TimeOrZero,
        /// Cost of such an exit, or of a hypercall that yields.
        spin_exit: f64 = Rule::TimeOrZero,
        /// Virtual CPUs that it yields to: 0, those preempted in the kernel; 1, also those that wait for a host CPU
        /// since they woke up; 2, also those with an interrupt pending.
        boost: usize = Rule::Whole(0, 2),
        /// Whether a sender of interrupts yields to the first target that is preempted.
        yield_on_send: bool = Rule::Flag,
        /// Iterations that a guest's spinlock spins before the virtual CPU halts; 0: it never halts.
        lock_spins: usize = Rule::Whole(0, 1_000_000),
        /// Cost of one such iteration: PAUSE.
        pause: f64 = Rule::Time,
        /// Whether a waiter halts at once if the waiter before it is preempted; else only if that one has halted.
        lock_gives_up: bool = Rule::Flag,
        /// Largest variation of a slice, as a share of it.
        spread: f64 = Rule::Probability,
        /// Factor on `costs.walk_step`: two-dimensional walks.
        walk: f64 = Rule::Factor,
    }
}

table! {
    /// How contended lines move between CPUs, and which loads overlap: calibrated on throughputs, not on pairwise
    /// latencies. A model file without this table has that of `machines/defaults.toml`.
    "lines" LineModel {
        /// How long a CPU that has gained a line can still use it when another CPU requests it next, as a share of
        /// `costs.transfer_cluster`: the request has to arrive first.
        hold: f64 = Rule::Probability,
        /// Scope of the requests for a busy line that are served together before it leaves: 0 none, 1 a cluster, 2 a
        /// socket.
        batches: usize = Rule::Whole(0, 2),
        /// The time of a queued transfer, relative to one between two CPUs: the home of the line may complete one
        /// request before it begins the next.
        contended: f64 = Rule::Scale,
        /// Most work between two loads of lines of other CPUs at which they still overlap; 0: loads do not overlap.
        window: f64 = Rule::TimeOrZero,
    }
}

table! {
    /// Differences between the releases of Linux that the simulated kernel can follow. A model file without this table
    /// has that of `machines/defaults.toml`.
    "linux" LinuxModel {
        /// Whether faults take the lock of their region instead of the address-space lock.
        region_faults: bool = Rule::Flag,
        /// Whether `madvise(MADV_DONTNEED)` does too.
        region_drops: bool = Rule::Flag,
        /// Whether an unmap that ends while another one of its process is in progress flushes the whole address space.
        nested_flushes: bool = Rule::Flag,
        /// Whether each memory node (socket) has an LRU lock, instead of one for the machine.
        node_lru: bool = Rule::Flag,
        /// New pages that a CPU collects before it puts them on the LRU list.
        lru_batch: usize = Rule::Whole(1, 64),
        /// Cost, in a fault on a file, of each nearby page in the page cache, mapped or not.
        around_page: f64 = Rule::TimeOrZero,
        /// Movements of a line for each target of a flush under designs that trim CPU sets. The flush reads the
        /// target's loaded space, in a line that the target writes at each flush.
        trim_lines: usize = Rule::Whole(0, 8),
        /// CPUs that one write of the interrupt register reaches; 1: each takes a write. Unused in a virtual machine.
        ipi_cluster: usize = Rule::Whole(1, 64),
        /// Whether each target of a cross-CPU call answers in a line of its own, by a store. Otherwise it answers in
        /// the counter of the engine's request, which all targets modify.
        answer_lines: bool = Rule::Flag,
    }
}

table! {
    /// Properties that only AArch64 machines have.
    "aarch64" Aarch64Model {
        /// Range operations (FEAT_TLBIRANGE).
        range: bool = Rule::Flag,
        /// A store barrier also waits for the CPU's own earlier broadcasts.
        store_barrier_drains: bool = Rule::Flag,
        /// DSB ISHST with nothing to wait for.
        store_barrier: f64 = Rule::TimeOrZero,
        /// DSB NSH and ISB after local invalidations.
        local_barrier: f64 = Rule::TimeOrZero,
        /// Added cost of a synchronisation for each further CPU with broadcasts in progress.
        sync_per_cpu: f64 = Rule::TimeOrZero,
        /// Erratum: an invalidation may be lost unless it is repeated. Designs are run with the workaround.
        erratum_repeat: bool = Rule::Flag,
        /// Erratum: synchronisations are acknowledged too early. Designs are run with the workaround.
        erratum_early_sync: bool = Rule::Flag,
        /// Erratum: broadcasts must not be used. Designs are run with the workaround.
        erratum_never_broadcast: bool = Rule::Flag,
    }
}

table! {
    /// Properties that only RISC-V machines have.
    "riscv64" Riscv64Model {
        /// Invalidations in three steps (Svinval).
        svinval: bool = Rule::Flag,
        /// A call into the firmware for remote fences, excluding the time for each hart.
        sbi_call: f64 = Rule::TimeOrZero,
        /// Firmware time for each hart that it fences.
        sbi_per_hart: f64 = Rule::TimeOrZero,
    }
}

table! {
    /// Properties of the simulation, not of the machine.
    "simulation" Simulation {
        /// Probability of a speculative fill per access.
        speculation: f64 = Rule::Probability,
    }
}
