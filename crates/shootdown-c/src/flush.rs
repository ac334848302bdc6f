//! Flushes, with an immediate wait or a token.

use crate::cpu_words::SHOOTDOWN_CPU_WORDS;
use crate::engine::{engine_of, shootdown_engine};
use crate::kernel::{CEngine, CSpace, Hooks};
use crate::range::{one_page, shootdown_range};
use crate::space::{shootdown_space, space_of};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use shootdown::Token;

type CToken = Token<'static, 'static, Hooks, SHOOTDOWN_CPU_WORDS>;

/// Words of a token.
pub const SHOOTDOWN_TOKEN_WORDS: usize = 40 + SHOOTDOWN_CPU_WORDS;

/// A flush that must be waited for, once, before anything is freed. Another CPU may wait for it.
#[repr(C)]
pub struct shootdown_token {
    opaque: [MaybeUninit<u64>; SHOOTDOWN_TOKEN_WORDS],
}

/// Page-table entries of the space were cleared or weakened. On return no CPU uses the old ones, and the frames behind
/// them may be freed. With interrupts off it serves requests of other CPUs while it waits. Hold no lock for which
/// another CPU may spin with interrupts off, unless that loop calls shootdown_poll. Not from the shootdown handler, nor
/// in a walk.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    range: shootdown_range,
) {
    // SAFETY: the caller's.
    unsafe { shootdown_flush_pages(engine, space, range.start, range.end, range.page_shift, range.tables) }
}

/// As shootdown_flush, with the members of the range as arguments. They stay in registers: a structure is stored, and
/// read again. Context: as shootdown_flush.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush_pages(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    start: u64,
    end: u64,
    page_shift: u32,
    tables: bool,
) {
    // SAFETY: the caller's.
    let (engine, space) = unsafe { (engine_of(engine), space_of(space)) };
    match one_page(start, end, page_shift, tables) {
        Some(page) => drop(engine.flush_inlined(space, page)),
        None => flush_rounded(engine, space, start, end, page_shift, tables),
    }
}

/// Not inlined: a flush of one page then stores nothing, and saves no register, for the call that rounds.
#[inline(never)]
fn flush_rounded(engine: &CEngine, space: &CSpace, start: u64, end: u64, page_shift: u32, tables: bool) {
    let range = shootdown_range {
        start,
        end,
        page_shift,
        tables,
    };
    drop(engine.flush(space, range.range()));
}

/// As shootdown_flush, and calls meanwhile(argument) while the targets work. It may release the lock that protects the
/// page tables, but not free, sleep, switch or flush.
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

/// Sends a flush without waiting: fills the token. shootdown_wait must follow before anything is freed. Designs with
/// requests on the stack wait inside. Context: as shootdown_flush; in particular not in the shootdown handler.
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

/// As shootdown_dispatch, for a range of kernel addresses.
///
/// # Safety
/// The token is valid memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_dispatch_kernel(
    engine: *const shootdown_engine,
    range: shootdown_range,
    token: *mut shootdown_token,
) {
    // SAFETY: the caller's.
    unsafe {
        token
            .cast::<CToken>()
            .write(engine_of(engine).dispatch_kernel(range.range()))
    }
}

/// Whether every CPU has answered a dispatched flush, so that shootdown_wait waits at most for devices. Serves requests
/// to this CPU. Context: as shootdown_wait.
///
/// # Safety
/// The token was filled and not waited for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_token_poll(token: *const shootdown_token) -> bool {
    // SAFETY: the caller's.
    unsafe { (*token.cast::<CToken>()).poll() }
}

/// Waits for a dispatched flush; with preemption on if the design's waits are preemptible. Not in the handler, nor in a
/// walk.
///
/// # Safety
/// The token was filled by shootdown_dispatch and not waited for before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_wait(token: *mut shootdown_token) {
    // SAFETY: the caller's.
    unsafe { drop(token.cast::<CToken>().read().wait()) }
}

/// As shootdown_flush with range.tables, and waits for lockless walks too. On return page-table pages that were
/// unlinked before may be freed.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
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
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush_kernel(engine: *const shootdown_engine, range: shootdown_range) {
    // SAFETY: the caller's.
    unsafe { drop(engine_of(engine).flush_kernel(range.range())) }
}

/// Flushes everything on every CPU: entries of user and kernel pages under every tag. Context: as shootdown_flush.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush_all(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { drop(engine_of(engine).flush_all()) }
}

/// Flushes everything on this CPU only, under every tag: for changes of kernel mappings that no other CPU uses. With
/// PTI or PCIDs a page invalidation would leave entries under other tags. And for a fault at an address whose present
/// entry allows the access: this CPU used the previous entry, which was invalid or less permissive. Any context with a
/// CPU that cannot change.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush_this_cpu(engine: *const shootdown_engine) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).flush_this_cpu() }
}

// The size reserved by C suffices.
const _: () = assert!(size_of::<CToken>() <= size_of::<shootdown_token>() && align_of::<CToken>() <= 8);
