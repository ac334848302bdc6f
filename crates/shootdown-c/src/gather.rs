//! Gathers: an unmap of one space, whose frames are released when its flush is complete.

use crate::cpu_words::SHOOTDOWN_CPU_WORDS;
use crate::engine::{engine_of, shootdown_engine};
use crate::kernel::Hooks;
use crate::range::{shootdown_range, stride_of};
use crate::space::{shootdown_space, space_of};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::slice::from_raw_parts_mut;
use shootdown::{Freed, Gather, Room};

type Release = dyn FnMut(Freed<'_, u64>);
type CGather = Gather<'static, 'static, Hooks, u64, &'static mut Release, SHOOTDOWN_CPU_WORDS>;

/// Words of a gather.
pub const SHOOTDOWN_GATHER_WORDS: usize = 24;

/// Words of the release callback's state.
const RELEASE_WORDS: usize = 2;

/// A gathered unmap. It must not move from its beginning to its end.
#[repr(C)]
pub struct shootdown_gather {
    opaque: [MaybeUninit<u64>; SHOOTDOWN_GATHER_WORDS],
}

/// Frees frames: the flush that covers them is complete, on every CPU. Page-table pages are included only when no
/// lockless walk can hold a link to them. Called in the context of the flushing call.
pub type shootdown_free_frames = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        pages: *const u64,
        page_count: usize,
        tables: *const u64,
        table_count: usize,
    ),
>;

/// Begins to gather an unmap of a space. Pending frames are kept in buffer, which has room for capacity of them, at
/// least one. shootdown_gather_finish must follow.
///
/// # Safety
/// The gather and the buffer are valid memory without other users, which does not move until shootdown_gather_finish,
/// like engine and space. release is not null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_gather_begin(
    engine: *const shootdown_engine,
    space: *const shootdown_space,
    gather: *mut shootdown_gather,
    buffer: *mut u64,
    capacity: usize,
    release: shootdown_free_frames,
    context: *mut c_void,
) {
    let Some(release) = release else {
        panic!("shootdown_gather_begin: release is null");
    };
    let callback = move |freed: Freed<'_, u64>| {
        let (pages, tables) = (freed.pages, freed.tables);
        // SAFETY: the caller's; the slices are valid for the call.
        unsafe { release(context, pages.as_ptr(), pages.len(), tables.as_ptr(), tables.len()) }
    };
    // SAFETY: the caller's. The callback is stored after the gather, in the same memory, which does not move.
    unsafe {
        let callback = store_behind(gather, callback);
        let buffer = from_raw_parts_mut(buffer, capacity);
        let begun = engine_of(engine).gather(space_of(space), buffer, callback);
        gather.cast::<CGather>().write(begun);
    }
}

/// # Safety
/// The gather is valid memory that does not move while the result is used.
unsafe fn store_behind<C: FnMut(Freed<'_, u64>) + 'static>(
    gather: *mut shootdown_gather,
    callback: C,
) -> &'static mut Release {
    const { assert!(size_of::<C>() <= 8 * RELEASE_WORDS && align_of::<C>() <= 8) };
    const { assert!(size_of::<CGather>() + 8 * RELEASE_WORDS <= size_of::<shootdown_gather>()) };
    // SAFETY: the caller's; there is room.
    unsafe {
        let place = gather.cast::<CGather>().add(1).cast::<C>();
        place.write(callback);
        &mut *place
    }
}

/// Adds the page at address, of 2^page_shift bytes, whose entry was cleared, and its frame. True means that the buffer
/// is full: call shootdown_gather_flush where waiting is allowed, before the next frame. Otherwise the next frame
/// flushes, in the context of shootdown_flush.
///
/// # Safety
/// The gather was begun and is not finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_gather_page(
    gather: *mut shootdown_gather,
    address: u64,
    page_shift: u32,
    frame: u64,
) -> bool {
    // SAFETY: the caller's.
    unsafe { (*gather.cast::<CGather>()).page(address, stride_of(page_shift), frame) == Room::Full }
}

/// Adds a page-table page that was unlinked, and the range that it mapped, in pages of the size of the entry that
/// linked it or smaller. Returns as shootdown_gather_page.
///
/// # Safety
/// The gather was begun and is not finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_gather_table(
    gather: *mut shootdown_gather,
    span: shootdown_range,
    frame: u64,
) -> bool {
    // SAFETY: the caller's.
    unsafe { (*gather.cast::<CGather>()).table(span.range(), frame) == Room::Full }
}

/// Adds changed entries that free nothing. Any context.
///
/// # Safety
/// The gather was begun and is not finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_gather_changed(gather: *mut shootdown_gather, range: shootdown_range) {
    // SAFETY: the caller's.
    unsafe { (*gather.cast::<CGather>()).changed(range.range()) }
}

/// Flushes the gathered ranges, waits, and releases the frames; the gather may be used again. Context: as
/// shootdown_flush.
///
/// # Safety
/// The gather was begun and is not finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_gather_flush(gather: *mut shootdown_gather) {
    // SAFETY: the caller's.
    unsafe { (*gather.cast::<CGather>()).flush() }
}

/// The same, and the gather ends.
///
/// # Safety
/// The gather was begun and is not finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_gather_finish(gather: *mut shootdown_gather) {
    // SAFETY: the caller's.
    unsafe { gather.cast::<CGather>().drop_in_place() }
}

const _: () = assert!(align_of::<CGather>() <= 8);
