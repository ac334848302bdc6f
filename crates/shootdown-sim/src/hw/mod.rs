//! The translation hardware of the simulated machine, and the oracle that watches it.
//!
//! [`Hw`] is plain data: page tables, the translation caches (TLB) and paging-structure caches (PSC) of every CPU, and
//! broadcast invalidation. It has no clock (callers pass `now`, in cycles), no threads and no randomness but its seed:
//! the same calls give the same results. It is independent of the kernel, the engine and the memory system. In
//! particular the caller decides *when* a store to a page table becomes visible ([`Hw::set_entry`]).
//!
//! Everything that happens takes a machine-wide *sequence number*. An entry is live while its fill is younger than
//! every flush that concerns it, so flushing a whole tag is one store. The same numbers let the oracle decide exactly
//! whether a use is allowed by the contract (C1 to C4, see [`Rule`]).
//!
//! ```text
//!   entry.rs    one page-table entry          cpu.rs        a CPU's registers and flush horizons
//!   frames.rs   physical memory, reuse        walk.rs       translate, walk, speculate
//!   tables.rs   page tables, link, withdraw   invalidate.rs local invalidation (INVLPG, INVPCID)
//!   tlb.rs      translation caches            broadcast.rs  INVLPGB and TLBSYNC
//!   psc.rs      paging-structure caches       ledger.rs     what each page's translation was, and when
//!   oracle.rs   C1 to C4 of translations      freeing.rs    C2 and C3 of what is freed
//!   violation.rs violations, printed            software_walk.rs  C3 of lockless walks by software
//!   aarch64.rs  TLBI, DSB, ISB, break before make
//!   iommu.rs    a TLB that belongs to devices
//!   riscv64.rs  SFENCE.VMA, Svinval, remote fences by firmware
//!   deferred.rs asynchronous operations of those two
//!   old_root_walks.rs  walks by a root that was replaced
//!   unpublished.rs  table writes that walkers need not see yet
//!   quarantine.rs  frames and ranges of deferred unmaps
//!   defect.rs   machines with injected defects, for tests of the tests
//!   in_flight.rs  fills from withdrawn tables while a broadcast is in progress
//! ```

mod aarch64;
mod broadcast;
mod cpu;
mod defect;
mod deferred;
mod entry;
mod frames;
mod freeing;
mod in_flight;
mod invalidate;
mod iommu;
mod ledger;
mod old_root_walks;
mod oracle;
mod psc;
mod quarantine;
mod riscv64;
mod software_walk;
mod tables;
mod tlb;
mod unpublished;
mod violation;
mod walk;

pub use aarch64::{Aarch64, ArmErrata, Scope};
pub use cpu::HardwareFault;
use cpu::Reason;
#[cfg(feature = "faults")]
pub use defect::Defect;
#[cfg(not(feature = "faults"))]
use defect::Defect;
pub use entry::Entry;
pub use frames::FrameKind;
pub use iommu::Iommu;
pub use ledger::Stamp;
pub use riscv64::Riscv64;
pub use software_walk::TableLink;
pub use tables::table_index;
pub use violation::{Rule, Violation};
pub use walk::{Access, FaultKind, PageFault, Privilege, Translation};

use shootdown::BroadcastLimits;
use std::collections::{HashMap, VecDeque};

/// Costs of operations, in cycles of the CPU that carries them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// An access that hits the TLB.
    pub tlb_hit: u32,
    /// One table read by a walk; a walk is 1 to 4 of them on top of [`tlb_hit`](Costs::tlb_hit).
    pub walk_step: u32,
    /// Invalidating one page under the loaded tag, or of the kernel (INVLPG).
    pub invlpg: u32,
    /// Invalidating one page under another tag (INVPCID type 0).
    pub invpcid_address: u32,
    /// Invalidating a tag (INVPCID type 1).
    pub invpcid_tag: u32,
    /// Invalidating everything (INVPCID type 2).
    pub invpcid_all: u32,
    /// Loading a root and keeping the tag's entries.
    pub root_load_keep: u32,
    /// Loading a root and flushing its tag.
    pub root_load_flush: u32,
    /// Issuing one broadcast instruction.
    pub broadcast_issue: u32,
    /// Time from the issue of a broadcast to its first possible effect elsewhere.
    pub broadcast_min: u32,
    /// Longest further delay until every CPU has applied it; each CPU draws its own up to this.
    pub broadcast_spread: u32,
}

/// The instruction set: when invalidations are complete, and what they remove.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isa {
    /// Local invalidations are complete on return; barriers and atomic operations order table writes before them.
    #[default]
    X86_64,
    /// Invalidations are complete at a DSB.
    Aarch64(Aarch64),
    /// Invalidations are local; remote ones are calls into the firmware.
    Riscv64(Riscv64),
}

/// Sizes, features and costs of the translation hardware.
#[derive(Debug, Clone, PartialEq)]
pub struct HwConfig {
    /// CPUs, from 1.
    pub cpus: usize,
    /// 4 KiB entries per CPU; rounded down to `tlb_ways` times a power of two.
    pub tlb_entries: usize,
    /// Associativity of the TLB, 1 to 128.
    pub tlb_ways: usize,
    /// Entries for 2 MiB and 1 GiB pages per CPU.
    pub large_entries: usize,
    /// Paging-structure entries per level and CPU, in sets of 4; rounded up to a power of two.
    pub psc_entries: usize,
    /// Whether tags exist. Without them a tag other than 0 is a fault. Without them every root load flushes on x86. On
    /// RISC-V a write of satp does not, and the kernel fences unless cached entries are to be kept.
    pub tags: bool,
    /// Width of a tag in bits, up to 16.
    pub tag_bits: u32,
    /// Broadcast invalidation, if the machine has it.
    pub broadcast: Option<BroadcastLimits>,
    /// Page invalidation drops only the paging-structure entries on the path (x86 TCE).
    pub tce: bool,
    /// A leaf-only request keeps paging-structure entries (Arm). Off on x86, which has no such form locally.
    pub leaf_only_keeps_psc: bool,
    /// An access that hits an entry without the right may fault although the tables grant it meanwhile; the fault drops
    /// the entry. x86 allows that. Most processors walk first, so it is off by default.
    pub stale_faults: bool,
    /// Mean speculative fills per access, 0 to 1.
    pub speculation: f64,
    /// Costs.
    pub costs: Costs,
    /// Seed of replacement, speculation and broadcast delays.
    pub seed: u64,
    /// How many violations are kept with their diagnosis; all are counted.
    pub stories: usize,
    /// The instruction set.
    pub isa: Isa,
    /// The injected defect of the machine, for tests of the tests.
    #[cfg(feature = "faults")]
    pub defect: Option<Defect>,
    /// Devices that access memory through page tables of spaces.
    pub iommu: Option<Iommu>,
}

impl Default for HwConfig {
    /// A typical x86-64 server core: 1536 entries of 6 ways, PCIDs, no broadcast, costs in the published ranges.
    fn default() -> Self {
        HwConfig {
            cpus: 1,
            tlb_entries: 1536,
            tlb_ways: 6,
            large_entries: 32,
            psc_entries: 16,
            tags: true,
            tag_bits: 12,
            broadcast: None,
            tce: false,
            leaf_only_keeps_psc: false,
            stale_faults: false,
            speculation: 0.0,
            costs: Costs {
                tlb_hit: 1,
                walk_step: 8,
                invlpg: 120,
                invpcid_address: 130,
                invpcid_tag: 170,
                invpcid_all: 250,
                root_load_keep: 100,
                root_load_flush: 180,
                broadcast_issue: 30,
                broadcast_min: 100,
                broadcast_spread: 1000,
            },
            seed: 1,
            stories: 8,
            isa: Isa::X86_64,
            #[cfg(feature = "faults")]
            defect: None,
            iommu: None,
        }
    }
}

/// The machine's translation hardware. See the module documentation.
#[derive(Debug, Clone)]
pub struct Hw {
    config: HwConfig,
    /// Last sequence number given out.
    seq: u64,
    rng: u64,
    accesses: u64,
    /// Accesses until the next speculative fill; `u64::MAX` when speculation is off.
    until_speculation: u64,
    /// Moves when a broadcast is issued or completes: CPUs compare it with the one they have seen.
    version: u64,
    frames: frames::Frames,
    bodies: Vec<tables::Table>,
    free_bodies: Vec<u32>,
    kernel_root: u32,
    ledger: ledger::Ledger,
    tlb: tlb::Tlb,
    psc: psc::Psc,
    cpus: Vec<cpu::Cpu>,
    epochs: broadcast::Epochs,
    outstanding: VecDeque<broadcast::Outstanding>,
    /// Entries filled from withdrawn tables while broadcasts were outstanding.
    in_flight: Vec<in_flight::Withdrawn>,
    /// Operations in progress on a machine that is not x86.
    later: Option<Box<deferred::Later>>,
    /// CPUs that use a tag, for broadcasts to find holders.
    tag_users: HashMap<u16, broadcast::TagUsers>,
    software: software_walk::SoftwareWalks,
    commands: iommu::Commands,
    quarantines: quarantine::Quarantines,
    violations: Vec<Violation>,
    violation_count: u64,
    first_violation_after: Option<u64>,
}

/// Sign-extends a 48-bit virtual address.
#[inline]
const fn canonical(va: u64) -> u64 {
    (((va << 16) as i64) >> 16) as u64
}

/// Whether an address is in the kernel's half.
#[inline]
const fn is_kernel(va: u64) -> bool {
    va >> 47 & 1 == 1
}

/// One step of SplitMix64, as a stateless mixer.
#[inline]
const fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Hw {
    /// A machine with every CPU online, running the kernel's space 0 under tag 0, nothing mapped.
    ///
    /// # Panics
    /// If `cpus` is 0 or `speculation` is not between 0 and 1.
    pub fn new(config: HwConfig) -> Hw {
        assert!(config.cpus > 0, "a machine has at least one CPU");
        assert!(
            (0.0..=1.0).contains(&config.speculation),
            "speculation is a probability"
        );
        let cpus = config.cpus + config.iommu.map_or(0, |iommu| iommu.devices);
        let mut hw = Hw {
            seq: 1,
            rng: mix(config.seed),
            accesses: 0,
            until_speculation: u64::MAX,
            version: 1,
            frames: frames::Frames::new(),
            bodies: Vec::new(),
            free_bodies: Vec::new(),
            kernel_root: 0,
            ledger: ledger::Ledger::new(cpus),
            tlb: tlb::Tlb::new(cpus, config.tlb_entries, config.tlb_ways, config.large_entries),
            psc: psc::Psc::new(cpus, config.psc_entries.max(1)),
            cpus: Vec::new(),
            epochs: broadcast::Epochs::default(),
            outstanding: VecDeque::new(),
            in_flight: Vec::new(),
            later: (config.isa != Isa::X86_64).then(|| deferred::Later::new(cpus)),
            tag_users: HashMap::new(),
            software: software_walk::SoftwareWalks::default(),
            commands: iommu::Commands::default(),
            quarantines: quarantine::Quarantines::default(),
            violations: Vec::new(),
            violation_count: 0,
            first_violation_after: None,
            config,
        };
        hw.kernel_root = hw.new_space(0);
        hw.cpus = (0..cpus).map(|_| cpu::Cpu::new(hw.kernel_root)).collect();
        hw.frames.get_mut(hw.kernel_root).loaded = cpus as u32;
        hw.draw_speculation();
        hw
    }

    /// The configuration.
    pub fn config(&self) -> &HwConfig {
        &self.config
    }

    /// Violations found, the first [`HwConfig::stories`] of them.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// How many violations were found in all.
    pub fn violation_count(&self) -> u64 {
        self.violation_count
    }

    /// Accesses checked so far.
    pub fn accesses_checked(&self) -> u64 {
        self.accesses
    }

    /// Accesses checked when the first violation was found.
    pub fn first_violation_after(&self) -> Option<u64> {
        self.first_violation_after
    }

    /// The next sequence number.
    #[inline]
    fn tick(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.rng)
    }
}
