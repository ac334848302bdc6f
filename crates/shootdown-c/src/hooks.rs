//! The kernel's hooks for the engine, as pointers to functions, and their arguments.

use crate::range::shootdown_range;
use core::ffi::c_void;

/// The entries that one invalidation removes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum shootdown_what {
    /// Pages under one tag (one page in a local invalidation), with the paging-structure entries of that tag on the
    /// path unless leaf_only is set.
    SHOOTDOWN_PAGES = 0,
    /// Every non-global entry under one tag.
    SHOOTDOWN_TAG,
    /// Pages under every tag, global entries included: kernel pages, and in a broadcast user pages of a space without a
    /// system-wide tag, too. In a broadcast the paging-structure entries on the way go, too, unless leaf_only is set.
    SHOOTDOWN_PAGES_EVERY_TAG,
    /// Every non-global entry under every tag. Broadcasts only.
    SHOOTDOWN_NON_GLOBAL,
    /// Everything, global entries included.
    SHOOTDOWN_ALL,
}

/// One invalidation. Fields that `what` does not use are 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct shootdown_invalidation {
    /// The entries to remove.
    pub what: shootdown_what,
    /// log2 of the size of a page in bytes: 12, 21 or 30.
    pub page_shift: u32,
    /// First byte of the first page.
    pub address: u64,
    /// Pages, from 1 (not "extra pages"); 1 in a local invalidation.
    pub count: u32,
    /// PCID or ASID.
    pub tag: u16,
    /// Only leaf entries need to be removed: no page-table page is being freed.
    pub leaf_only: bool,
}

/// Whether a CPU had interrupts off.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum shootdown_interrupts {
    /// A release build of the library does not know.
    SHOOTDOWN_INTERRUPTS_UNKNOWN = 0,
    /// On.
    SHOOTDOWN_INTERRUPTS_ON,
    /// Off.
    SHOOTDOWN_INTERRUPTS_OFF,
}

/// A CPU that did not answer in time. The wait continues after the report.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct shootdown_stuck {
    /// The waiting CPU.
    pub waiter: u32,
    /// The CPU that has not answered.
    pub target: u32,
    /// Number of the space whose flush is waited for; 0 for kernel ranges and batches.
    pub space: u64,
    /// Requested generation; 0 when the request has none.
    pub generation: u64,
    /// Whether the target had interrupts off when the library last saw it. If they were off, look for a loop that waits
    /// with interrupts off and does not call shootdown_poll. Known if the library has debug assertions
    /// (SHOOTDOWN_DEBUG of link/shootdown.mk) and the hook interrupts_are_off.
    pub interrupts: shootdown_interrupts,
}

/// The kind of an event.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum shootdown_event_kind {
    /// A flush needed no other CPU.
    SHOOTDOWN_EVENT_LOCAL_ONLY = 0,
    /// A flush sent IPIs to `count` CPUs, and waits for `targets`.
    SHOOTDOWN_EVENT_INTERRUPTED,
    /// A flush was broadcast, in `count` instructions.
    SHOOTDOWN_EVENT_BROADCAST,
    /// An unmap was deferred; `count` frames wait.
    SHOOTDOWN_EVENT_DEFERRED,
    /// This CPU has answered a request: it invalidated.
    SHOOTDOWN_EVENT_ANSWERED_FLUSHED,
    /// It had already caught up.
    SHOOTDOWN_EVENT_ANSWERED_CURRENT,
    /// It has unloaded the space.
    SHOOTDOWN_EVENT_ANSWERED_UNLOADED,
    /// It does not run the space.
    SHOOTDOWN_EVENT_ANSWERED_ELSEWHERE,
    /// This CPU has caught up with a space, page by page.
    SHOOTDOWN_EVENT_CAUGHT_UP_PARTLY,
    /// This CPU has caught up by flushing a whole tag.
    SHOOTDOWN_EVENT_CAUGHT_UP_WHOLE,
    /// A space was given a system-wide tag.
    SHOOTDOWN_EVENT_PROMOTED,
    /// A space was due for one, but none was free.
    SHOOTDOWN_EVENT_TAGS_EXHAUSTED,
    /// System-wide tags rolled over.
    SHOOTDOWN_EVENT_ROLL_OVER,
    /// A space is active on `targets` CPUs, and qualifies for a system-wide tag.
    SHOOTDOWN_EVENT_PROMOTING,
    /// A space, active on `targets` CPUs, begins to give up its system-wide tag.
    SHOOTDOWN_EVENT_DEMOTING,
    /// A space is back on per-CPU tags.
    SHOOTDOWN_EVENT_DEMOTED,
    /// A space changed between registered and published walks.
    SHOOTDOWN_EVENT_WALKS_CHANGED,
    /// Costs were measured.
    SHOOTDOWN_EVENT_CALIBRATED,
    /// A request for `targets` other CPUs chose IPIs or broadcast by cost.
    SHOOTDOWN_EVENT_CHOSE,
    /// A request for `targets` other CPUs was timed: `before` ns were predicted, `after` ns measured.
    SHOOTDOWN_EVENT_MEASURED,
    /// The least number of other CPUs for a broadcast changed from `before` to `after`.
    SHOOTDOWN_EVENT_THRESHOLD_MOVED,
}

/// An event. Fields that its kind does not name are 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct shootdown_event {
    /// Its kind.
    pub kind: shootdown_event_kind,
    /// CPUs concerned.
    pub targets: u32,
    /// Interrupts, instructions or frames.
    pub count: u32,
    /// The first of two values.
    pub before: u64,
    /// The second.
    pub after: u64,
}

/// The kernel's hooks for the engine. Each receives the context pointer of the settings. None may allocate, take a
/// lock, or call the engine. The first six are required; so are pin and unpin, unless the settings say that the kernel
/// is not preemptible. The others may be null.
///
/// A library that was built with SHOOTDOWN_HOOKS (link/shootdown.mk) ignores these pointers. The kernel then defines
/// the functions shootdown_hook_cpu and so on, below, which are called directly. A hook that SHOOTDOWN_HOOKS does not
/// name is absent, and costs nothing.
///
/// In a kernel, a library with the feature `instructions` executes the instructions itself. It does not use
/// interrupts_off, interrupts_restore, interrupts_are_off, invalidate, load_root, local_sync, broadcast and
/// broadcast_sync.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct shootdown_hooks {
    /// Returns the number of the running CPU, from 0, dense. Called pinned or with interrupts off, and from NMI context
    /// for calls that are allowed there. Waiters that may migrate also call it; a slightly outdated answer suffices for
    /// them.
    pub cpu: Option<unsafe extern "C" fn(kernel: *mut c_void) -> u32>,
    /// Masks interrupts on this CPU; returns what interrupts_restore needs.
    pub interrupts_off: Option<unsafe extern "C" fn(kernel: *mut c_void) -> u64>,
    /// Restores the mask that interrupts_off returned.
    pub interrupts_restore: Option<unsafe extern "C" fn(kernel: *mut c_void, saved: u64)>,
    /// Raises the shootdown interrupt on every CPU whose bit is set in the SHOOTDOWN_CPU_WORDS words at targets (CPU n
    /// is bit n % 64 of word n / 64; never the sender). Their handlers call shootdown_on_ipi. Called pinned. With
    /// x2APIC execute mfence and lfence first, because the write to its command register is not a store.
    pub send_ipi: Option<unsafe extern "C" fn(kernel: *mut c_void, targets: *const u64)>,
    /// Carries out one local invalidation: complete on return, or at the latest when local_sync returns. Called pinned
    /// or with interrupts off.
    pub invalidate: Option<unsafe extern "C" fn(kernel: *mut c_void, what: *const shootdown_invalidation)>,
    /// Loads a root under a tag. With keep, entries under the tag survive (x86 NOFLUSH). Without it, every non-global
    /// entry under the tag is gone on return. Called with interrupts off.
    pub load_root: Option<unsafe extern "C" fn(kernel: *mut c_void, root: u64, tag: u16, keep: bool)>,
    /// Whether interrupts are off on this CPU. Null: unknown.
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
    /// Monotonic time, ns. Null: stuck CPUs are not reported, and promotion needs few CPUs.
    pub now_ns: Option<unsafe extern "C" fn(kernel: *mut c_void) -> u64>,
    /// Asks the hypervisor to flush everything of a virtual CPU before it runs again. True if the virtual CPU is
    /// descheduled and will be flushed. This must be one atomic step (KVM: a compare-exchange); otherwise a request can
    /// be lost.
    pub flush_at_entry: Option<unsafe extern "C" fn(kernel: *mut c_void, cpu: u32) -> bool>,
    /// Flushes secondary TLBs (an IOMMU) for the space with that root. Called once for every flush (twice where an
    /// unmap was to be deferred, and could not be); with a null range, the space ends. Returns a ticket for
    /// secondary_sync, never falling, or 0 when there is nothing to wait for. Called pinned, after a full barrier.
    pub secondary: Option<unsafe extern "C" fn(kernel: *mut c_void, root: u64, range: *const shootdown_range) -> u64>,
    /// Waits until all flushes up to that ticket are carried out. It must not depend on another CPU.
    pub secondary_sync: Option<unsafe extern "C" fn(kernel: *mut c_void, ticket: u64)>,
    /// This CPU has left the space with that root, and the kernel's root is loaded. The cause is a request while the
    /// space was loaded in lazy TLB mode, the end of the space, shootdown_switch_to_kernel or shootdown_cpu_offline.
    /// Not called if another space is loaded instead. The space still exists. Interrupts are off.
    pub unloaded: Option<unsafe extern "C" fn(kernel: *mut c_void, root: u64)>,
    /// Receives the engine's events, for statistics. In any context in which the engine is called; must be cheap.
    pub event: Option<unsafe extern "C" fn(kernel: *mut c_void, event: *const shootdown_event)>,
    /// A CPU has not answered for a long time. Log it.
    pub stuck: Option<unsafe extern "C" fn(kernel: *mut c_void, report: *const shootdown_stuck)>,
    /// As send_ipi, to one CPU. Null: send_ipi is called.
    pub send_ipi_to: Option<unsafe extern "C" fn(kernel: *mut c_void, target: u32)>,
}

unsafe extern "C" {
    /// The hook cpu of a library with SHOOTDOWN_HOOKS. SHOOTDOWN_CPU_INSTRUCTION takes its place. The functions below
    /// are its other hooks: each has the contract of the member of struct shootdown_hooks with its name. A kernel
    /// defines those that SHOOTDOWN_HOOKS names.
    pub fn shootdown_hook_cpu() -> u32;
    /// The hook send_ipi.
    pub fn shootdown_hook_send_ipi(targets: *const u64);
    /// The hook send_ipi_to.
    pub fn shootdown_hook_send_ipi_to(target: u32);
    /// The hook pin.
    pub fn shootdown_hook_pin();
    /// The hook unpin.
    pub fn shootdown_hook_unpin();
    /// The hook now_ns.
    pub fn shootdown_hook_now_ns() -> u64;
    /// The hook flush_at_entry.
    pub fn shootdown_hook_flush_at_entry(cpu: u32) -> bool;
    /// The hook secondary.
    pub fn shootdown_hook_secondary(root: u64, range: *const shootdown_range) -> u64;
    /// The hook secondary_sync.
    pub fn shootdown_hook_secondary_sync(ticket: u64);
    /// The hook unloaded.
    pub fn shootdown_hook_unloaded(root: u64);
    /// The hook event.
    pub fn shootdown_hook_event(event: *const shootdown_event);
    /// The hook stuck.
    pub fn shootdown_hook_stuck(report: *const shootdown_stuck);
}
