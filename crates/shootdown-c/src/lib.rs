//! The engine for kernels written in C: the calls of [`shootdown::Engine`] with the hooks as pointers to functions.
//!
//! `include/shootdown.h` is generated from this file, comments included, so they are written for a reader of C. What a
//! call guarantees is said in full where it is implemented: [`shootdown`] and its `hooks`.
//!
//! A hook costs an indirect call here. A kernel that cannot afford that writes the six required ones in Rust.
#![cfg_attr(not(feature = "std"), no_std)]
#![allow(non_camel_case_types)] // the names of the header

// The facade is the one whose full barriers order a page-table walker and stores of its own, as they do on x86, and
// threads of a host anywhere. On Arm and RISC-V they would have to be those of `shootdown_arch`.
#[cfg(all(not(feature = "std"), not(target_arch = "x86_64")))]
compile_error!(
    "the engine behind the header is for kernels on x86-64: on others use `shootdown` and `shootdown-arch` from Rust"
);

mod kernel;
mod memory;
#[cfg(not(feature = "std"))]
mod panic;

use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use kernel::Hooks;
use shootdown::{
    Batch, Deferral, DeferralsOver, Engine, Grace, GracesOver, Range, Retired, Root, Space, Stride, Token, Unmapped,
    Walk,
};

/// Words of a set of CPUs: machines of up to 64 times as many CPUs. To have more, change it here and generate the
/// header again.
pub const SHOOTDOWN_CPU_WORDS: usize = 8;

/// Words of a token.
pub const SHOOTDOWN_TOKEN_WORDS: usize = 40;

/// Words of a batch.
pub const SHOOTDOWN_BATCH_WORDS: usize = 64;

/// Words of a walk.
pub const SHOOTDOWN_WALK_WORDS: usize = 6;

/// Words of a deferral.
pub const SHOOTDOWN_DEFERRAL_WORDS: usize = 4;

type CEngine = Engine<'static, Hooks, SHOOTDOWN_CPU_WORDS>;
type CSpace = Space<shootdown::Native, SHOOTDOWN_CPU_WORDS>;
type CToken = Token<'static, 'static, Hooks, SHOOTDOWN_CPU_WORDS>;
type CBatch = Batch<'static, 'static, Hooks, SHOOTDOWN_CPU_WORDS>;
type CWalk = Walk<'static, 'static, Hooks, SHOOTDOWN_CPU_WORDS>;

/// TLB coherence for one machine.
pub struct shootdown_engine {
    _opaque: [u8; 0],
}

/// An address space.
pub struct shootdown_space {
    _opaque: [u8; 0],
}

/// Why there is no engine.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum shootdown_status {
    /// There is one.
    SHOOTDOWN_OK = 0,
    /// No design has that name, or the name is no UTF-8.
    SHOOTDOWN_UNKNOWN_DESIGN,
    /// No CPU, or more than 64 * SHOOTDOWN_CPU_WORDS. Or as many as there are tags, under a design that gives tags out
    /// system-wide only.
    SHOOTDOWN_BAD_CPUS,
    /// One of the six required hooks is null; or the machine broadcasts, and broadcast or broadcast_sync is.
    SHOOTDOWN_MISSING_HOOK,
    /// A null pointer, or memory that is too small or not aligned.
    SHOOTDOWN_BAD_MEMORY,
}

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
/// or call the engine. The first six are required; the others may be null.
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

/// The machine, the design and the hooks. Zero what is not used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shootdown_settings {
    /// The hooks; copied.
    pub hooks: shootdown_hooks,
    /// What each hook gets. Shared by all CPUs; used for as long as the engine is.
    pub kernel: *mut c_void,
    /// Name of the design, as in `shootdown list`: "ipi", "broadcast", "adaptive", "arm-local-first" and so on.
    pub design: *const c_char,
    /// CPUs of the machine, those that are off included.
    pub cpus: u32,
    /// Most 4 KiB pages in one broadcast instruction (CPUID 8000_0008, EDX bits 15 to 0, + 1); 0 where nothing can be
    /// broadcast.
    pub broadcast_pages: u32,
    /// Most 2 MiB pages in one; 0 is taken for 1.
    pub broadcast_large_pages: u32,
    /// Whether a broadcast is carried out by interrupting every other CPU, as firmware of RISC-V does (SBI RFENCE).
    pub broadcast_interrupts: bool,
    /// The top table that maps the kernel only.
    pub kernel_root: u64,
}

/// What a flush covers. First and last byte are rounded to pages.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct shootdown_range {
    /// First byte.
    pub start: u64,
    /// One past the last; when it is not above start, the page at start is meant.
    pub end: u64,
    /// log2 of the smallest page that was withdrawn: 12, 21 or 30. Anything else is taken for 12, which flushes no
    /// less.
    pub page_shift: u32,
    /// Whether table pages are being freed: then the CPUs' caches of upper levels go, too.
    pub tables: bool,
}

impl From<Range> for shootdown_range {
    fn from(range: Range) -> shootdown_range {
        shootdown_range {
            start: range.start(),
            end: range.end(),
            page_shift: range.stride().shift(),
            tables: range.tables(),
        }
    }
}

impl shootdown_range {
    fn range(self) -> Range {
        let stride = match self.page_shift {
            21 => Stride::Size2M,
            30 => Stride::Size1G,
            _ => Stride::Size4K,
        };
        let range = Range::pages(self.start, self.end, stride);
        if self.tables { range.with_tables() } else { range }
    }
}

/// A flush that must be waited for before anything is freed, once. It may be waited for on another CPU.
#[repr(C)]
pub struct shootdown_token {
    opaque: [MaybeUninit<u64>; SHOOTDOWN_TOKEN_WORDS],
}

/// Flushes of many spaces that are waited for once.
#[repr(C)]
pub struct shootdown_batch {
    opaque: [MaybeUninit<u64>; SHOOTDOWN_BATCH_WORDS],
}

/// A lockless walk of page tables.
#[repr(C)]
pub struct shootdown_walk {
    opaque: [MaybeUninit<u64>; SHOOTDOWN_WALK_WORDS],
}

/// Frames and a virtual range in quarantine after shootdown_flush_later.
#[repr(C)]
pub struct shootdown_deferral {
    opaque: [MaybeUninit<u64>; SHOOTDOWN_DEFERRAL_WORDS],
}

/// The deferrals that were over at some moment.
#[repr(C)]
pub struct shootdown_deferrals_over {
    opaque: [MaybeUninit<u64>; 1],
}

/// A grace period that table pages wait for.
#[repr(C)]
pub struct shootdown_grace {
    opaque: [MaybeUninit<u64>; 1],
}

/// The grace periods that were over at some moment.
#[repr(C)]
pub struct shootdown_graces_over {
    opaque: [MaybeUninit<u64>; 1],
}

/// Bytes that an engine needs for so many CPUs. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn shootdown_engine_size(cpus: u32) -> usize {
    memory::Layouts::of(cpus as usize).map_or(0, |layouts| layouts.size)
}

/// To what the memory of engines and spaces must be aligned, bytes. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn shootdown_alignment() -> usize {
    memory::ALIGNMENT
}

/// Makes an engine in memory of that many bytes, with every CPU off. Before the second CPU starts. The memory is the
/// engine's for ever.
///
/// # Safety
/// The pointers are valid, or null; the hooks do what they promise, on every CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_engine_init(
    memory: *mut c_void,
    size: usize,
    settings: *const shootdown_settings,
    engine: *mut *mut shootdown_engine,
) -> shootdown_status {
    // SAFETY: the caller's.
    match unsafe { memory::init(memory, size, settings) } {
        Ok(made) if !engine.is_null() => {
            // SAFETY: the caller's.
            unsafe { engine.write(made.cast()) };
            shootdown_status::SHOOTDOWN_OK
        }
        Ok(_) => shootdown_status::SHOOTDOWN_BAD_MEMORY,
        Err(status) => status,
    }
}

/// Bytes that a space needs. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn shootdown_space_size() -> usize {
    size_of::<CSpace>()
}

/// Makes an address space in memory of that size and alignment; null when it is not aligned. Nothing is to be undone:
/// after shootdown_retire the memory may be reused.
///
/// # Safety
/// The memory is the space's until it is retired.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_space_init(
    engine: *const shootdown_engine,
    memory: *mut c_void,
    root: u64,
) -> *mut shootdown_space {
    let space = memory.cast::<CSpace>();
    if space.is_null() || !space.is_aligned() {
        return core::ptr::null_mut();
    }
    // SAFETY: the caller's; a space has nothing to drop.
    unsafe { space.write(engine_of(engine).space(Root(root))) };
    space.cast()
}

/// # Safety
/// It was made by `shootdown_engine_init`, and lives for ever.
unsafe fn engine_of(engine: *const shootdown_engine) -> &'static CEngine {
    // SAFETY: the caller's.
    unsafe { &*engine.cast() }
}

/// # Safety
/// It was made by `shootdown_space_init`, and outlives the call.
unsafe fn space_of<'a>(space: *const shootdown_space) -> &'a CSpace {
    // SAFETY: the caller's.
    unsafe { &*space.cast() }
}

/// This CPU is coming up, with the kernel's top table loaded: before it loads a space, or uses kernel mappings that may
/// change. Interrupts off, and on soon after.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_cpu_online(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).cpu_online() }
}

/// This CPU is going down: after its last use of user translations and its last walk. From here on nobody waits for it.
/// Interrupts off.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_cpu_offline(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).cpu_offline() }
}

/// Measures what each way of reaching other CPUs costs: once, when all CPUs are up, for the design "adaptive". Some
/// microseconds. Context: as shootdown_flush.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_calibrate(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe {
        engine_of(engine).calibrate();
    }
}

/// The shootdown interrupt has arrived. In its handler, interrupts off, on a CPU that does not change meanwhile, after
/// it was acknowledged where the controller wants that. By hand, to poll, only outside of walks and of other calls.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_on_ipi(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).on_ipi() }
}

/// Loads a space on this CPU, or ends its laziness when it is loaded already. From the scheduler.
///
/// # Safety
/// The space stays until every CPU has left it: by switching to another or to the kernel, going off, or
/// shootdown_retire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_switch_to(engine: *const shootdown_engine, space: *const shootdown_space) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).switch_to(space_of(space)) }
}

/// Loads the kernel's own top table: this CPU leaves its space.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_switch_to_kernel(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).switch_to_kernel() }
}

/// The loaded space stays loaded, but no user address is touched until shootdown_leave_lazy or shootdown_switch_to.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_enter_lazy(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).enter_lazy() }
}

/// Ends laziness, or loads the space if it was unloaded meanwhile. Before any user address is touched.
///
/// # Safety
/// As shootdown_switch_to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_leave_lazy(engine: *const shootdown_engine, space: *const shootdown_space) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).leave_lazy(space_of(space)) }
}

/// User code of the loaded space has entered the kernel. When true, shootdown_leave_lazy is owed before any user
/// address is touched, copying routines included, and before the return. Optional; worth it under "adaptive".
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_enter_kernel(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
) -> bool {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).enter_kernel(space_of(space)) }
}

/// Whether an NMI handler may touch user addresses of the space now. In NMI context.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_user_access_ok(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
) -> bool {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).user_access_ok(space_of(space)) }
}

/// Page-table entries of the space were cleared or weakened: on return no CPU uses the old ones, and the frames behind
/// them may be freed. Interrupts on, or requests of others are served while waiting; no lock may be held that a handler
/// takes, or whoever calls shootdown_switch_to. Not from the shootdown handler, nor in a walk.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    range: shootdown_range,
) {
    // SAFETY: the caller's.
    unsafe { drop(engine_of(engine).flush(space_of(space), range.range())) }
}

/// As shootdown_flush, and calls meanwhile(argument) while the others answer: it may let go of the lock that protects
/// the page tables, but not free, sleep, switch or flush.
///
/// # Safety
/// As shootdown_flush; meanwhile is a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush_while(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    range: shootdown_range,
    meanwhile: unsafe extern "C" fn(argument: *mut c_void),
    argument: *mut c_void,
) {
    // SAFETY: the caller's.
    unsafe { drop(engine_of(engine).flush_while(space_of(space), range.range(), || meanwhile(argument))) }
}

/// Asks for a flush without waiting: fills the token. shootdown_wait is owed before anything is freed. Designs whose
/// requests are on the stack wait inside. Context: as shootdown_flush; above all not in the shootdown handler.
///
/// # Safety
/// The token is valid memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_dispatch(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    range: shootdown_range,
    token: *mut shootdown_token,
) {
    // SAFETY: the caller's.
    unsafe {
        token
            .cast::<CToken>()
            .write(engine_of(engine).dispatch(space_of(space), range.range()))
    }
}

/// Waits for a dispatched flush; with preemption on where the design's waits are preemptible. Not in the handler, nor
/// in a walk.
///
/// # Safety
/// The token was filled by shootdown_dispatch and not waited for before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_wait(token: *mut shootdown_token) {
    // SAFETY: the caller's.
    unsafe { drop(token.cast::<CToken>().read().wait()) }
}

/// As shootdown_flush with range.tables, and waits for lockless walks too: on return table pages that were unlinked
/// before may be freed.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush_tables(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    range: shootdown_range,
) {
    // SAFETY: the caller's.
    unsafe {
        let _free = engine_of(engine).flush_tables(space_of(space), range.range());
    }
}

/// Kernel mappings were cleared or weakened: as shootdown_flush, on every CPU.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush_kernel(engine: *const shootdown_engine, range: shootdown_range) {
    // SAFETY: the caller's.
    unsafe { drop(engine_of(engine).flush_kernel(range.range())) }
}

/// Begins a batch of flushes, as reclaim needs them. shootdown_batch_finish is owed.
///
/// # Safety
/// The batch is valid memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_batch_begin(engine: *const shootdown_engine, batch: *mut shootdown_batch) {
    // SAFETY: the caller's.
    unsafe { batch.cast::<CBatch>().write(engine_of(engine).batch()) }
}

/// Adds a range of a space whose entries were cleared, under the lock that protects its page table. May wait, as
/// shootdown_flush does, and has its context.
///
/// # Safety
/// The batch was begun and is not finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_batch_add(
    batch: *mut shootdown_batch,
    space: *const shootdown_space,
    range: shootdown_range,
) {
    // SAFETY: the caller's.
    unsafe { (*batch.cast::<CBatch>()).add(space_of(space), range.range()) }
}

/// Tells everybody concerned, and waits: then all that was added may be freed. Context: as shootdown_flush.
///
/// # Safety
/// The batch was begun and is not finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_batch_finish(batch: *mut shootdown_batch) {
    // SAFETY: the caller's.
    unsafe { drop(batch.cast::<CBatch>().read().finish()) }
}

/// Makes sure that no batched unmap of the space is still to be flushed: before relying on an entry that is already
/// clear. Context: as shootdown_flush.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_settle(engine: *const shootdown_engine, space: *const shootdown_space) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).settle(space_of(space)) }
}

/// Begins a lockless walk of the space's tables: masks interrupts, and no table page that it can reach is freed until
/// it ends. Nothing may wait meanwhile. Under a design that says that there are such walks ("adaptive", "walk-sticky"
/// and so on).
///
/// # Safety
/// The walk is valid memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_walk_begin(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    walk: *mut shootdown_walk,
) {
    // SAFETY: the caller's.
    unsafe { walk.cast::<CWalk>().write(engine_of(engine).walk(space_of(space))) }
}

/// As shootdown_walk_begin, in NMI context, where it may have interrupted a walk. Masks nothing.
///
/// # Safety
/// The walk is valid memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_walk_begin_nmi(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    walk: *mut shootdown_walk,
) {
    // SAFETY: the caller's.
    unsafe {
        walk.cast::<CWalk>()
            .write(engine_of(engine).walk_from_nmi(space_of(space)))
    }
}

/// Ends a walk, on the CPU where it began. Walks that nest may end in any order.
///
/// # Safety
/// The walk was begun and has not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_walk_end(walk: *mut shootdown_walk) {
    // SAFETY: the caller's.
    unsafe { drop(walk.cast::<CWalk>().read()) }
}

/// The timer's tick on this CPU, which is in no walk: deferrals and grace periods end by it. Any context with a CPU
/// that cannot change. A load and a compare when nothing waits.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_tick(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).tick() }
}

/// This CPU takes no ticks from now on, although it runs user code: no deferral waits for it, and unmaps that concern
/// it are synchronous. Not in the shootdown handler. CPUs that are idle need not call it.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_tick_stops(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).tick_stops() }
}

/// This CPU takes ticks again.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_tick_resumes(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).tick_resumes() }
}

/// For an unmap of private memory that nobody can rely on until somebody maps the range again, for which so many frames
/// wait. False when it was flushed, as by shootdown_flush: range and frames are free. True when it is deferred
/// ("deferred" only): nobody was interrupted, and the range may not be mapped again nor the frames freed before the
/// deferral is released.
///
/// # Safety
/// As shootdown_flush; the deferral is valid memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush_later(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    range: shootdown_range,
    frames: u32,
    deferral: *mut shootdown_deferral,
) -> bool {
    // SAFETY: the caller's.
    match unsafe { engine_of(engine).flush_later(space_of(space), range.range(), frames) } {
        Unmapped::Now(_) => false,
        Unmapped::Later(later) => {
            // SAFETY: the caller's.
            unsafe { deferral.cast::<Deferral>().write(later) };
            true
        }
    }
}

/// Which deferrals are over, and the next epoch, where the last is over: what was deferred just now takes two calls,
/// with a tick on every CPU that runs user code between them. Reads a line of every CPU: for one CPU now and then, at
/// its tick. Any context with a CPU that cannot change.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_deferrals_over(engine: *const shootdown_engine) -> shootdown_deferrals_over {
    // SAFETY: the caller's; it is as long.
    unsafe { core::mem::transmute(engine_of(engine).deferrals_over()) }
}

/// Whether the deferral is over: then it is spent, and what waited for it is free. Any context.
///
/// # Safety
/// The deferral was filled by a call that returned true, and is not spent; over is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_release(
    engine: *const shootdown_engine,
    deferral: *mut shootdown_deferral,
    over: *const shootdown_deferrals_over,
) -> bool {
    // SAFETY: the caller's. One that is not over is what it was.
    unsafe {
        let over = &*over.cast::<DeferralsOver>();
        engine_of(engine)
            .release(deferral.cast::<Deferral>().read(), over)
            .is_ok()
    }
}

/// Ends a deferral at once, for a caller that wants range or frames now: flushes the range. As shootdown_flush. False:
/// the deferral is of another space; it stays as it is, and nothing may be freed.
///
/// # Safety
/// The deferral was filled for that range, by a call that returned true, and is not spent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_release_now(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    range: shootdown_range,
    deferral: *mut shootdown_deferral,
) -> bool {
    // SAFETY: the caller's.
    unsafe {
        let flushed = engine_of(engine).flush(space_of(space), range.range());
        let released = engine_of(engine).release_by(deferral.cast::<Deferral>().read(), &flushed);
        released.is_ok()
    }
}

/// As shootdown_flush_tables, for table pages that can wait. False: they may be freed. True ("walk-grace",
/// "broadcast"): when the grace period is over.
///
/// # Safety
/// As shootdown_flush; grace is valid memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush_tables_later(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    range: shootdown_range,
    grace: *mut shootdown_grace,
) -> bool {
    // SAFETY: the caller's.
    match unsafe { engine_of(engine).flush_tables_later(space_of(space), range.range()) } {
        Retired::Now(_) => false,
        Retired::Later(later) => {
            // SAFETY: the caller's.
            unsafe { grace.cast::<Grace>().write(later) };
            true
        }
    }
}

/// Which grace periods are over. Reads a word of every CPU: at ticks, not for spinning. Not in a walk. A CPU that
/// idles, or runs user code, without ticks holds up all that began since; shootdown_flush_tables interrupts everybody,
/// which ends them.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_graces_over(engine: *const shootdown_engine) -> shootdown_graces_over {
    // SAFETY: the caller's; it is as long.
    unsafe { core::mem::transmute(engine_of(engine).graces_over()) }
}

/// Whether the grace period is over: then the table pages that waited for it may be freed. Any context; it may be asked
/// again.
///
/// # Safety
/// Grace was filled by a call that returned true; over is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_grace_is_over(
    grace: *const shootdown_grace,
    over: *const shootdown_graces_over,
) -> bool {
    // SAFETY: the caller's.
    unsafe { (*over.cast::<GracesOver>()).proof(*grace.cast::<Grace>()).is_some() }
}

/// The space ends, no CPU has it loaded but lazily, and nobody walks its tables: those CPUs leave it. Then its memory
/// and its tables may be freed. As shootdown_flush.
///
/// # Safety
/// The pointers were made by this library's init functions, and what they point to still lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_retire(engine: *const shootdown_engine, space: *const shootdown_space) {
    // SAFETY: the caller's.
    unsafe { drop(engine_of(engine).retire(space_of(space))) }
}

// What C reserves is enough.
const _: () = {
    assert!(size_of::<CToken>() <= size_of::<shootdown_token>() && align_of::<CToken>() <= 8);
    assert!(size_of::<CBatch>() <= size_of::<shootdown_batch>() && align_of::<CBatch>() <= 8);
    assert!(size_of::<Deferral>() <= size_of::<shootdown_deferral>() && align_of::<Deferral>() <= 8);
    assert!(size_of::<Grace>() <= size_of::<shootdown_grace>() && align_of::<Grace>() <= 8);
    assert!(size_of::<CWalk>() <= size_of::<shootdown_walk>() && align_of::<CWalk>() <= 8);
};
