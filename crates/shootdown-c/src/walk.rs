//! Lockless walks of page tables.

use crate::cpu_words::SHOOTDOWN_CPU_WORDS;
use crate::engine::{engine_of, shootdown_engine};
use crate::kernel::Hooks;
use crate::space::{shootdown_space, space_of};
use core::mem::MaybeUninit;
use shootdown::Walk;

type CWalk = Walk<'static, 'static, Hooks, SHOOTDOWN_CPU_WORDS>;

/// Words of a walk.
pub const SHOOTDOWN_WALK_WORDS: usize = 6;

/// A lockless walk of page tables.
#[repr(C)]
pub struct shootdown_walk {
    opaque: [MaybeUninit<u64>; SHOOTDOWN_WALK_WORDS],
}

/// Begins a lockless walk of the space's tables: masks interrupts, and no page-table page that it can reach is freed
/// until it ends. Do not wait meanwhile. For designs with lockless walks ("adaptive", "walk-sticky" and so on).
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

/// Ends a walk, on the CPU where it began. Nested walks may end in any order.
///
/// # Safety
/// The walk was begun and has not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_walk_end(walk: *mut shootdown_walk) {
    // SAFETY: the caller's.
    unsafe { drop(walk.cast::<CWalk>().read()) }
}

// The size reserved by C suffices.
const _: () = assert!(size_of::<CWalk>() <= size_of::<shootdown_walk>() && align_of::<CWalk>() <= 8);
