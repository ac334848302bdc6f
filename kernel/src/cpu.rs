//! Per-CPU data.

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

/// One CPU. Only the CPU itself uses the cells; other CPUs may read the rest.
#[repr(C, align(64))]
pub struct Cpu {
    /// The instruction set's part, at fixed offsets.
    pub local: Local,
    /// Number, from 0, dense.
    pub id: usize,
    /// It runs, and takes interrupts.
    pub up: AtomicBool,
    /// The address space of user addresses here, whose faults are handled. None where no task and no workload runs,
    /// even if the root of an address space is loaded.
    pub space: Cell<Option<&'static AddressSpace>>,
    /// Loaded root and tag, for the check of freed roots.
    pub loaded_root: AtomicU64,
    /// The tag.
    pub loaded_tag: Cell<u16>,
    /// Depth of pins.
    pub pins: Cell<u32>,
    /// Ticks of other CPUs while this one yielded its turn.
    pub away: Cell<u64>,
    /// Ticks in interrupt handlers, without `away`.
    pub in_handlers: Cell<u64>,
    /// It is lazy because user code has entered the kernel (`linux/inside.rs`).
    pub must_catch_up: Cell<bool>,
    /// Faults in user memory are not handled: the access fails, because the code here must not sleep.
    pub faults_fail: Cell<bool>,
    /// Counts.
    pub counts: Counts,
    /// Stretches without interrupts or preemption.
    pub silence: crate::measure::Silence,
    /// It is off, or about to be, and another CPU may start it.
    pub off: AtomicBool,
    /// Where the code that switched it off continues: a stack pointer; 0 if none did.
    pub stopped: Cell<u64>,
    /// The stack on which it stops and starts again; 0 before the first time.
    pub parking: AtomicU64,
    /// Generator of this CPU's random timer intervals.
    pub jitter: Cell<u64>,
    /// The next function for this CPU to run; null for none.
    pub job: AtomicPtr<()>,
}

/// Counts of a CPU. Written by it, read by all.
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
    /// Checked accesses, and the stale ones.
    pub checked: AtomicU64,
    /// See `checked`.
    pub stale: AtomicU64,
    /// Checked accesses that failed although the tables allowed them, and were tried again after a fence.
    pub tolerated: AtomicU64,
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
            must_catch_up: Cell::new(false),
            faults_fail: Cell::new(false),
            counts: Counts::default(),
            silence: crate::measure::Silence::default(),
            off: AtomicBool::new(false),
            stopped: Cell::new(0),
            parking: AtomicU64::new(0),
            jitter: Cell::new(0),
            job: AtomicPtr::new(core::ptr::null_mut()),
        }
    }
}

/// Makes the list of CPUs, from their numbers in the interrupt controller; the first is the running one.
pub fn set_up(ids: &[ControllerId]) {
    for (place, &id) in IDS.iter().zip(ids) {
        #[allow(clippy::useless_conversion, reason = "not of 64 bits on every instruction set")]
        place.store(id.into(), Ordering::Relaxed);
    }
    CPUS.call_once(|| (0..ids.len()).map(Cpu::new).collect());
}

/// Numbers in the interrupt controller, by CPU.
static IDS: [AtomicU64; MOST_CPUS] = [const { AtomicU64::new(0) }; MOST_CPUS];

/// The number of a CPU in the interrupt controller. It differs from the CPU's own (regression 19).
#[inline]
pub fn controller_id(cpu: usize) -> ControllerId {
    IDS[cpu].load(Ordering::Relaxed) as ControllerId
}

/// All CPUs.
#[inline]
pub fn all() -> &'static [Cpu] {
    CPUS.get().expect("set up by the first CPU")
}
