//! What the kernel does for the engine, as pointers to functions, and what they are given.

use crate::range::shootdown_range;
use core::ffi::c_void;

/// What one local invalidation takes away.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum shootdown_what {
    /// A page (of each page, in a broadcast) under one tag, with the paging-structure entries of that tag on the way to
    /// it unless leaf_only is set.
    SHOOTDOWN_PAGES = 0,
    /// Every non-global entry under one tag.
    SHOOTDOWN_TAG,
    /// Pages under every tag, global entries included: kernel pages, and in a broadcast user pages of a space without a
    /// system-wide tag, too. In a broadcast the paging-structure entries on the way go, too.
    SHOOTDOWN_PAGES_EVERY_TAG,
    /// Every non-global entry under every tag. Broadcasts only.
    SHOOTDOWN_NON_GLOBAL,
    /// Everything, global entries included.
    SHOOTDOWN_ALL,
}

/// One invalidation. Fields that `what` has no use for are 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct shootdown_invalidation {
    /// What goes.
    pub what: shootdown_what,
    /// log2 of the size of a page in bytes: 12, 21 or 30.
    pub page_shift: u32,
    /// First byte of the first page.
    pub address: u64,
    /// Pages, from 1 (not "extra pages"); 1 in a local invalidation.
    pub count: u32,
    /// PCID or ASID.
    pub tag: u16,
    /// Only leaf entries need go: no table page is being freed.
    pub leaf_only: bool,
}

/// A CPU that did not answer in time. The wait goes on after the report.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct shootdown_stuck {
    /// Who waits.
    pub waiter: u32,
    /// Who has not answered.
    pub target: u32,
    /// Number of the space whose flush is waited for; 0 for kernel ranges and batches.
    pub space: u64,
    /// Generation asked for; 0 when the request has none.
    pub generation: u64,
}

/// What the kernel does for the engine. Each gets the pointer that is given with them. None may allocate, take a lock,
/// or call the engine. The first six are required; so are pin and unpin, unless the settings say that the kernel is not
/// preemptible. The others may be null.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct shootdown_hooks {
    /// The number of the CPU this runs on, from 0, dense. Called pinned or with interrupts off, from NMI context where
    /// a call may be made there, and by waiters that may migrate, to which an answer that was true a moment ago is good
    /// enough.
    pub cpu: Option<unsafe extern "C" fn(kernel: *mut c_void) -> u32>,
    /// Masks interrupts on this CPU; returns what interrupts_restore needs.
    pub interrupts_off: Option<unsafe extern "C" fn(kernel: *mut c_void) -> u64>,
    /// Restores the mask that interrupts_off returned.
    pub interrupts_restore: Option<unsafe extern "C" fn(kernel: *mut c_void, saved: u64)>,
    /// Raises the shootdown interrupt on every CPU whose bit is set in the SHOOTDOWN_CPU_WORDS words at targets (CPU n
    /// is bit n % 64 of word n / 64; never the sender). Their handlers call shootdown_on_ipi. Called pinned. By x2APIC:
    /// mfence and lfence first, since what sends is no store.
    pub send_ipi: Option<unsafe extern "C" fn(kernel: *mut c_void, targets: *const u64)>,
    /// Carries out one local invalidation: complete on return, or at the latest when local_sync returns. Called pinned
    /// or with interrupts off.
    pub invalidate: Option<unsafe extern "C" fn(kernel: *mut c_void, what: *const shootdown_invalidation)>,
    /// Loads a top table under a tag. With keep, entries under the tag survive (x86 NOFLUSH); without, every non-global
    /// entry under it is gone on return. Called with interrupts off.
    pub load_root: Option<unsafe extern "C" fn(kernel: *mut c_void, root: u64, tag: u16, keep: bool)>,
    /// Whether interrupts are off on this CPU. Null: they may be.
    pub interrupts_are_off: Option<unsafe extern "C" fn(kernel: *mut c_void) -> bool>,
    /// Waits until the local invalidations of this CPU are complete, where invalidate does not (Arm, RISC-V with
    /// Svinval).
    pub local_sync: Option<unsafe extern "C" fn(kernel: *mut c_void)>,
    /// Issues one broadcast invalidation; asynchronous. Called pinned, when broadcast_pages is not 0.
    pub broadcast: Option<unsafe extern "C" fn(kernel: *mut c_void, what: *const shootdown_invalidation)>,
    /// Waits until every broadcast of this CPU is complete everywhere; a full barrier. Called pinned, on the CPU that
    /// issued.
    pub broadcast_sync: Option<unsafe extern "C" fn(kernel: *mut c_void)>,
    /// Forbids migration and preemption until unpin; nests.
    pub pin: Option<unsafe extern "C" fn(kernel: *mut c_void)>,
    /// Ends one pin.
    pub unpin: Option<unsafe extern "C" fn(kernel: *mut c_void)>,
    /// Monotonic time, ns. Null: no reports of CPUs that are stuck, and promotion is left to few CPUs.
    pub now_ns: Option<unsafe extern "C" fn(kernel: *mut c_void) -> u64>,
    /// Asks the hypervisor to flush everything of a virtual CPU before it runs again; true when it will, because that
    /// is descheduled. One atomic step (KVM: a compare-exchange), or a request is lost.
    pub flush_at_entry: Option<unsafe extern "C" fn(kernel: *mut c_void, cpu: u32) -> bool>,
    /// Tells TLBs that belong to no CPU (an IOMMU) of a flush of the space with that top table, once for every flush
    /// (twice where an unmap was to be deferred, and could not be); with a null range, that the space ends. Returns a
    /// ticket for secondary_sync, never falling, or 0 when there is nothing to wait for. Called pinned, after a full
    /// barrier.
    pub secondary: Option<unsafe extern "C" fn(kernel: *mut c_void, root: u64, range: *const shootdown_range) -> u64>,
    /// Waits until all up to that ticket is carried out. It may not depend on another CPU.
    pub secondary_sync: Option<unsafe extern "C" fn(kernel: *mut c_void, ticket: u64)>,
    /// A CPU has not answered for a long time. Log it.
    pub stuck: Option<unsafe extern "C" fn(kernel: *mut c_void, report: *const shootdown_stuck)>,
}
