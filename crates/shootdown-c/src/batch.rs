//! Batches of flushes, and the flush before an entry is relied on.

use crate::cpu_words::SHOOTDOWN_CPU_WORDS;
use crate::engine::{engine_of, shootdown_engine};
use crate::kernel::Hooks;
use crate::range::shootdown_range;
use crate::space::{shootdown_space, space_of};
use core::mem::MaybeUninit;
use shootdown::Batch;

type CBatch = Batch<'static, 'static, Hooks, SHOOTDOWN_CPU_WORDS>;

/// Words of a batch.
pub const SHOOTDOWN_BATCH_WORDS: usize = 65 + SHOOTDOWN_CPU_WORDS;

/// Index of the word that is 1 from the beginning of a batch to its end, and then 0.
const BEGUN: usize = SHOOTDOWN_BATCH_WORDS - 1;

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
    unsafe {
        batch.cast::<CBatch>().write(engine_of(engine).batch());
        (*batch).opaque[BEGUN].write(1);
    }
}

/// As shootdown_batch_add, and begins the batch if necessary: the memory of such a batch must be zero at first. For
/// kernels whose batches begin at the first unmap.
///
/// # Safety
/// The batch is zero, finished, or begun with this engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_batch_begin_or_add(
    engine: *const shootdown_engine,
    batch: *mut shootdown_batch,
    space: *const shootdown_space,
    range: shootdown_range,
) {
    // SAFETY: the caller's.
    unsafe {
        if !shootdown_batch_is_begun(batch) {
            shootdown_batch_begin(engine, batch);
        }
        shootdown_batch_add(batch, space, range);
    }
}

/// Whether the batch was begun and is not finished.
///
/// # Safety
/// The batch is zero, or was begun.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_batch_is_begun(batch: *const shootdown_batch) -> bool {
    // SAFETY: the caller's; the word is written when the batch begins.
    unsafe { (*batch).opaque[BEGUN].assume_init() == 1 }
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

/// Sends the requests and waits. On return the frames of all added ranges may be freed. Does nothing for a batch that
/// has not begun. Context: as shootdown_flush.
///
/// # Safety
/// The batch is zero, or was begun.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_batch_finish(batch: *mut shootdown_batch) {
    // SAFETY: the caller's.
    unsafe {
        if shootdown_batch_is_begun(batch) {
            (*batch).opaque[BEGUN].write(0);
            drop(batch.cast::<CBatch>().read().finish());
        }
    }
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
const _: () = assert!(size_of::<CBatch>() <= 8 * BEGUN && align_of::<CBatch>() <= 8);
