//! Batches of flushes, and the flush before an entry is relied on.

use crate::engine::{engine_of, shootdown_engine};
use crate::kernel::Hooks;
use crate::range::shootdown_range;
use crate::space::{shootdown_space, space_of};
use crate::words::SHOOTDOWN_CPU_WORDS;
use core::mem::MaybeUninit;
use shootdown::Batch;

type CBatch = Batch<'static, 'static, Hooks, SHOOTDOWN_CPU_WORDS>;

/// Words of a batch.
pub const SHOOTDOWN_BATCH_WORDS: usize = 56 + SHOOTDOWN_CPU_WORDS;

/// Flushes of several spaces with one wait.
#[repr(C)]
pub struct shootdown_batch {
    opaque: [MaybeUninit<u64>; SHOOTDOWN_BATCH_WORDS],
}

/// Begins a batch of flushes, as for reclaim. shootdown_batch_finish must follow.
///
/// # Safety
/// The batch is valid memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_batch_begin(engine: *const shootdown_engine, batch: *mut shootdown_batch) {
    // SAFETY: the caller's.
    unsafe { batch.cast::<CBatch>().write(engine_of(engine).batch()) }
}

/// Adds a range of a space whose entries were cleared, under the lock that protects its page table. May wait. Context:
/// as shootdown_flush.
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

/// Sends the requests and waits. On return the frames of all added ranges may be freed. Context: as shootdown_flush.
///
/// # Safety
/// The batch was begun and is not finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_batch_finish(batch: *mut shootdown_batch) {
    // SAFETY: the caller's.
    unsafe { drop(batch.cast::<CBatch>().read().finish()) }
}

/// Flushes the pending batched unmaps of the space. Call it before relying on an entry that is already clear. Context:
/// as shootdown_flush.
///
/// # Safety
/// The pointers were made by this library's init functions, and their objects still live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_flush_pending(engine: *const shootdown_engine, space: *const shootdown_space) {
    // SAFETY: the caller's.
    unsafe { engine_of(engine).flush_pending(space_of(space)) }
}

// The size reserved by C suffices.
const _: () = assert!(size_of::<CBatch>() <= size_of::<shootdown_batch>() && align_of::<CBatch>() <= 8);
