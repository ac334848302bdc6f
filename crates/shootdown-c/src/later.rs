//! Frames and page-table pages that wait: deferred unmaps, and grace periods of walks.

use crate::engine::{engine_of, shootdown_engine};
use crate::range::shootdown_range;
use crate::space::{shootdown_space, space_of};
use core::mem::MaybeUninit;
use shootdown::{Deferral, DeferralsOver, Grace, GracesOver, Retired, Unmapped};

/// Words of a deferral.
pub const SHOOTDOWN_DEFERRAL_WORDS: usize = 4;

/// Frames and a virtual range in quarantine after shootdown_flush_later.
#[repr(C)]
pub struct shootdown_deferral {
    opaque: [MaybeUninit<u64>; SHOOTDOWN_DEFERRAL_WORDS],
}

/// The set of deferrals that are over.
#[repr(C)]
pub struct shootdown_deferrals_over {
    opaque: [MaybeUninit<u64>; 1],
}

/// A grace period of unlinked page-table pages.
#[repr(C)]
pub struct shootdown_grace {
    opaque: [MaybeUninit<u64>; 1],
}

/// The set of grace periods that are over.
#[repr(C)]
pub struct shootdown_graces_over {
    opaque: [MaybeUninit<u64>; 1],
}

/// Unmaps private memory, with that number of frames, that no CPU relies on before the range is mapped again. False: it
/// was flushed, as by shootdown_flush, and range and frames are free. True ("deferred" only): it is deferred and no CPU
/// was interrupted. Then the range may not be mapped again, nor the frames freed, before the deferral is released.
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

/// Returns which deferrals are over, and starts the next epoch if the last is over. A new deferral takes two calls,
/// with a tick on every CPU that runs user code between them. Reads a line of every CPU: call it from one CPU
/// occasionally, at its tick. Any context with a CPU that cannot change.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_deferrals_over(engine: *const shootdown_engine) -> shootdown_deferrals_over {
    // SAFETY: the caller's; it is as long.
    unsafe { core::mem::transmute(engine_of(engine).deferrals_over()) }
}

/// Whether the deferral is over. If so, it is consumed, and its range and frames are free. Any context.
///
/// # Safety
/// The deferral was filled by a call that returned true, and is not consumed; over is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_release(
    engine: *const shootdown_engine,
    deferral: *mut shootdown_deferral,
    over: *const shootdown_deferrals_over,
) -> bool {
    // SAFETY: the caller's. One that is not over is unchanged.
    unsafe {
        let over = &*over.cast::<DeferralsOver>();
        engine_of(engine)
            .release(deferral.cast::<Deferral>().read(), over)
            .is_ok()
    }
}

/// Ends a deferral at once, for a caller that needs range or frames: flushes the range. Context: as shootdown_flush.
/// False: the deferral is of another space; it is unchanged, and nothing may be freed.
///
/// # Safety
/// The deferral was filled for that range, by a call that returned true, and is not consumed.
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

/// As shootdown_flush_tables, for page-table pages that can wait. False: they may be freed. True ("walk-grace",
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

/// Returns which grace periods are over. Reads a word of every CPU: for ticks, not for spinning. Not in a walk. A CPU
/// that idles, or runs user code, without ticks delays all that began since. shootdown_flush_tables interrupts every
/// CPU, which ends them.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_graces_over(engine: *const shootdown_engine) -> shootdown_graces_over {
    // SAFETY: the caller's; it is as long.
    unsafe { core::mem::transmute(engine_of(engine).graces_over()) }
}

/// Whether the grace period is over. If so, its page-table pages may be freed. Any context; may be called again.
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

// The size reserved by C suffices.
const _: () = {
    assert!(size_of::<Deferral>() <= size_of::<shootdown_deferral>() && align_of::<Deferral>() <= 8);
    assert!(size_of::<Grace>() <= size_of::<shootdown_grace>() && align_of::<Grace>() <= 8);
};
