//! What each CPU keeps for itself, reached through GS.

use super::descriptors::Tables;
use crate::space::AddressSpace;
use alloc::boxed::Box;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use spin::Once;
use x86_64::registers::model_specific::Msr;

/// Most CPUs.
pub const MOST_CPUS: usize = 64;

/// One CPU. What is in cells is its own alone; the rest others may read.
#[repr(C, align(64))]
pub struct Cpu {
    /// Where this is: `gs:[0]`.
    this: Cell<*const Cpu>,
    /// Number, from 0, dense: `gs:[8]`.
    pub id: usize,
    /// Stack for entries from user mode: `gs:[16]`; and what that was: `gs:[24]`.
    pub kernel_stack: Cell<u64>,
    user_stack: Cell<u64>,
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
    /// Segments and stacks.
    pub tables: Tables,
    /// What is counted.
    pub counts: Counts,
    /// Emulated broadcasts that wait here.
    pub mail: crate::emulate::Mail,
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
            this: Cell::new(core::ptr::null()),
            id,
            kernel_stack: Cell::new(0),
            user_stack: Cell::new(0),
            up: AtomicBool::new(false),
            space: Cell::new(None),
            loaded_root: AtomicU64::new(0),
            loaded_tag: Cell::new(0),
            pins: Cell::new(0),
            away: Cell::new(0),
            in_handlers: Cell::new(0),
            owes_catching_up: Cell::new(false),
            faults_fail: Cell::new(false),
            tables: Tables::new(),
            counts: Counts::default(),
            mail: crate::emulate::Mail::new(),
            silence: crate::measure::Silence::default(),
            jitter: Cell::new(0),
            job: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Makes this the CPU that runs: GS, descriptor tables.
    ///
    /// # Safety
    /// Once, by the CPU whose structure it is, before anything asks for `cpu()`.
    pub unsafe fn adopt(&'static self) {
        self.this.set(self);
        // SAFETY: GS base of this CPU and, for after a `swapgs`, that of user mode.
        unsafe {
            Msr::new(0xC000_0101).write(core::ptr::from_ref(self) as u64);
            Msr::new(0xC000_0102).write(0);
        }
        self.tables.load();
    }
}

/// Makes the list of CPUs, by the numbers that the interrupt controller has for them; the first is the one that runs.
pub fn set_up(apic_ids: &[u32]) {
    for (place, &apic_id) in APIC_IDS.iter().zip(apic_ids) {
        place.store(apic_id, Ordering::Relaxed);
    }
    CPUS.call_once(|| (0..apic_ids.len()).map(Cpu::new).collect());
}

/// Numbers in the interrupt controller, by CPU.
static APIC_IDS: [AtomicU32; MOST_CPUS] = [const { AtomicU32::new(0) }; MOST_CPUS];

/// The number that the interrupt controller has for a CPU. Not the CPU's own (regression 19).
#[inline]
pub fn apic_id(cpu: usize) -> u32 {
    APIC_IDS[cpu].load(Ordering::Relaxed)
}

/// All CPUs.
#[inline]
pub fn all() -> &'static [Cpu] {
    CPUS.get().expect("set up by the first CPU")
}

/// The CPU this runs on.
#[inline]
pub fn cpu() -> &'static Cpu {
    let this: *const Cpu;
    // SAFETY: `adopt` has put the address there. Not `pure`: a thread may continue on another CPU.
    unsafe { core::arch::asm!("mov {}, gs:[0]", out(reg) this, options(nostack, preserves_flags, readonly)) };
    // SAFETY: CPUs are never freed.
    unsafe { &*this }
}
