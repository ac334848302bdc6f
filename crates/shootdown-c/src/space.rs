//! Address spaces.

use crate::cpu_words::SHOOTDOWN_CPU_WORDS;
use crate::engine::{engine_of, shootdown_engine};
use crate::kernel::{CSpace, words_of};
use core::ffi::c_void;
use shootdown::Root;

/// An address space.
pub struct shootdown_space {
    _opaque: [u8; 0],
}

/// Returns the size of a space in bytes. Any context.
#[unsafe(no_mangle)]
pub extern "C" fn shootdown_space_size() -> usize {
    size_of::<CSpace>()
}

/// Makes an address space in memory of that size and alignment; null when it is not aligned. It needs no destructor:
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
/// It was made by `shootdown_space_init`, and outlives the call.
pub(crate) unsafe fn space_of<'a>(space: *const shootdown_space) -> &'a CSpace {
    // SAFETY: the caller's.
    unsafe { &*space.cast() }
}

/// Writes the CPUs that may hold entries of the space to the SHOOTDOWN_CPU_WORDS words at cpus (CPU n is bit n % 64 of
/// word n / 64). The set may be outdated, and may still contain CPUs that have left. Any context.
///
/// # Safety
/// The space was made by shootdown_space_init and lives; cpus is valid memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_space_cpus(space: *const shootdown_space, cpus: *mut u64) {
    // SAFETY: the caller's.
    unsafe {
        cpus.cast::<[u64; SHOOTDOWN_CPU_WORDS]>()
            .write(words_of(&space_of(space).cpus()))
    }
}

/// Ends the space. No CPU has it loaded except in lazy TLB mode, and its tables have no walk: those CPUs leave it. Then
/// its memory and its tables may be freed. Context: as shootdown_flush.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_retire(engine: *const shootdown_engine, space: *const shootdown_space) {
    // SAFETY: the caller's.
    unsafe { drop(engine_of(engine).retire(space_of(space))) }
}
