//! Flushes, waited for at once or by a token.

use crate::engine::{engine_of, shootdown_engine};
use crate::kernel::Hooks;
use crate::range::shootdown_range;
use crate::space::{shootdown_space, space_of};
use crate::words::SHOOTDOWN_CPU_WORDS;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use shootdown::Token;

type CToken = Token<'static, 'static, Hooks, SHOOTDOWN_CPU_WORDS>;

/// Words of a token.
pub const SHOOTDOWN_TOKEN_WORDS: usize = 32 + SHOOTDOWN_CPU_WORDS;

/// A flush that must be waited for before anything is freed, once. It may be waited for on another CPU.
#[repr(C)]
pub struct shootdown_token {
    opaque: [MaybeUninit<u64>; SHOOTDOWN_TOKEN_WORDS],
}

/// Page-table entries of the space were cleared or weakened: on return no CPU uses the old ones, and the frames behind
/// them may be freed. Interrupts on, or requests of others are served while waiting. Hold no lock that another CPU may
/// be spinning for with interrupts off, unless that loop calls shootdown_poll. Not from the shootdown handler, nor in a
/// walk.
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

/// Whether every CPU has answered a dispatched flush, so that shootdown_wait waits for devices at most. Serves what is
/// asked of this CPU. Context: as shootdown_wait.
///
/// # Safety
/// The token was filled and not waited for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_token_poll(token: *const shootdown_token) -> bool {
    // SAFETY: the caller's.
    unsafe { (*token.cast::<CToken>()).poll() }
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

// What C reserves is enough.
const _: () = assert!(size_of::<CToken>() <= size_of::<shootdown_token>() && align_of::<CToken>() <= 8);
