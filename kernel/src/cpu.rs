//! What each CPU keeps for itself.

use crate::arch::cpu::Local;
use crate::space::AddressSpace;
use alloc::boxed::Box;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use shootdown_cpu::ControllerId;
use spin::Once;

pub use crate::arch::cpu::cpu;

/// Most CPUs.
pub const MOST_CPUS: usize = 64;

/// One CPU. What is in cells is its own alone; the rest others may read.
#[repr(C, align(64))]
pub struct Cpu {
    /// What the instruction set needs; it is reached by fixed offsets.
    pub local: Local,
    /// Number, from 0, dense.
    pub id: usize,
    /// It runs, and takes interrupts.
    pub up: AtomicBool,
    /// What user addresses mean here: whose faults are served. Nothing where no task and no workload runs, whatever is
    /// loaded.
    pub space: Cell<Option<&'static AddressSpace>>,
    /// Root and tag that are loaded, as the oracle of freed roots wants to know.
    pub loaded_root: AtomicU64,
    /// The tag.
    pub loaded_tag: Cell<u16>,
    /// Pins that are held.
    pub pins: Cell<u32>,
    /// Ticks that other CPUs had while this one yielded its turn.
    pub away: Cell<u64>,
    /// Ticks in interrupt handlers, without `away`.
    pub in_handlers: Cell<u64>,
    /// It is lazy because user code has entered the kernel (`linux/inside.rs`).
    pub owes_catching_up: Cell<bool>,
    /// Faults in user memory are not served, but the access fails: what runs here must not sleep.
    pub faults_fail: Cell<bool>,
    /// What is counted.
    pub counts: Counts,
    /// Stretches without interrupts or preemption.
    pub silence: crate::measure::Silence,
    /// Where this CPU's random timer intervals come from.
    pub jitter: Cell<u64>,
    /// The function that this CPU is to run next; null for nothing.
    pub job: AtomicPtr<()>,
}

/// What a CPU counts. Written by it, read by anybody.
#[derive(Default)]
pub struct Counts {
    /// Shootdown interrupts sent.
    pub sent: AtomicU64,
    /// Shootdown interrupts taken.
    pub taken: AtomicU64,
    /// Interrupts taken for the emulation of broadcasts.
    pub emulation: AtomicU64,
    /// Broadcast instructions issued, and those that were emulated.
    pub broadcasts: AtomicU64,
    /// Operations of the workload.
    pub ops: AtomicU64,
    /// Calls that flush, and the instructions (or ticks) spent in them by the requester.
    pub flushes: AtomicU64,
    /// See `flushes`.
    pub flush_ticks: AtomicU64,
    /// Ticks spent in the shootdown handler.
    pub taken_ticks: AtomicU64,
    /// Page faults.
    pub faults: AtomicU64,
    /// Accesses that were checked, and those that were stale.
    pub checked: AtomicU64,
    /// See `checked`.
    pub stale: AtomicU64,
}

/// Adds to a counter that only this CPU writes.
#[inline]
pub fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed) + value, Ordering::Relaxed);
}

// SAFETY: the cells are used by their own CPU only, through `cpu()`; everything else is atomic.
unsafe impl Sync for Cpu {}
// SAFETY: as for `Sync`; the list of CPUs is built by the first one.
unsafe impl Send for Cpu {}

static CPUS: Once<Box<[Cpu]>> = Once::new();

impl Cpu {
    fn new(id: usize) -> Cpu {
        Cpu {
            local: Local::new(),
            id,
            up: AtomicBool::new(false),
            space: Cell::new(None),
            loaded_root: AtomicU64::new(0),
            loaded_tag: Cell::new(0),
            pins: Cell::new(0),
            away: Cell::new(0),
            in_handlers: Cell::new(0),
            owes_catching_up: Cell::new(false),
            faults_fail: Cell::new(false),
            counts: Counts::default(),
            silence: crate::measure::Silence::default(),
            jitter: Cell::new(0),
            job: AtomicPtr::new(core::ptr::null_mut()),
        }
    }
}

/// Makes the list of CPUs, by the numbers that the interrupt controller has for them; the first is the one that runs.
pub fn set_up(ids: &[ControllerId]) {
    for (place, &id) in IDS.iter().zip(ids) {
        place.store(id.into(), Ordering::Relaxed);
    }
    CPUS.call_once(|| (0..ids.len()).map(Cpu::new).collect());
}

/// Numbers in the interrupt controller, by CPU.
static IDS: [AtomicU64; MOST_CPUS] = [const { AtomicU64::new(0) }; MOST_CPUS];

/// The number that the interrupt controller has for a CPU. Not the CPU's own (regression 19).
#[inline]
pub fn controller_id(cpu: usize) -> ControllerId {
    IDS[cpu].load(Ordering::Relaxed) as ControllerId
}

/// All CPUs.
#[inline]
pub fn all() -> &'static [Cpu] {
    CPUS.get().expect("set up by the first CPU")
}
