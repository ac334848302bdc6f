//! Page tables: levels of real entries, read and written as atomic words.
//!
//! This module neither invalidates nor locks: `space` decides which code may change which entry, and what must be
//! flushed.

use crate::arch::boot;
use crate::arch::format::{Entry, USER_ENTRIES, levels};
use crate::frames;
use crate::memory::{DYNAMIC, Frame, PAGE};
use core::sync::atomic::{AtomicU64, Ordering};

/// Index of `address` in the table of that level: [`levels`] is the root, 1 holds pages.
pub const fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * (level - 1)) & 511) as usize
}

/// The place of the entry for `address` in a table.
pub fn place(table: Frame, address: u64, level: u32) -> &'static AtomicU64 {
    &table.words()[index(address, level)]
}

/// The table of that level on the way to `address`, if there is one.
pub fn table(root: Frame, address: u64, level: u32) -> Option<Frame> {
    let mut table = root;
    for above in (level + 1..=levels()).rev() {
        // Acquire: the table behind the link was written before it.
        let link = Entry(place(table, address, above).load(Ordering::Acquire));
        if !link.is_present() || link.is_large() {
            return None;
        }
        table = link.frame();
    }
    Some(table)
}

/// As [`table`], creating missing tables. Several CPUs may do so at once. `None` when memory is exhausted.
///
/// # Panics
/// When a large page is in the way.
pub fn table_or_new(root: Frame, address: u64, level: u32) -> Option<Frame> {
    let mut table = root;
    for above in (level + 1..=levels()).rev() {
        let place = place(table, address, above);
        let link = Entry(place.load(Ordering::Acquire));
        assert!(!link.is_large(), "a large page is at {address:#x}");
        table = if link.is_present() {
            link.frame()
        } else {
            add_table(place)?
        };
    }
    Some(table)
}

fn add_table(place: &AtomicU64) -> Option<Frame> {
    let new = frames::allocate_zeroed()?;
    frames::note(new).count.store(0, Ordering::Relaxed);
    // Release: an empty table, then the link to it.
    match place.compare_exchange(0, Entry::table(new).0, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(new),
        Err(other) => {
            frames::free(new);
            Some(Entry(other).frame())
        }
    }
}

/// The top table for the kernel's own addresses.
pub fn kernel_table() -> Frame {
    Frame::at(boot::kernel_table())
}

/// A root with the kernel's mappings above user addresses, and none below.
pub fn new_root() -> Option<Frame> {
    let root = frames::allocate_zeroed()?;
    for (own, shared) in root.words().iter().zip(kernel_table().words()).skip(USER_ENTRIES) {
        own.store(shared.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    Some(root)
}

/// Before the first space: creates the tables that all roots share for dynamic kernel mappings, and removes the
/// mappings of the startup code.
pub fn finish_kernel_root() {
    table_or_new(kernel_table(), DYNAMIC, levels() - 1).expect("there is memory at boot");
    boot::leave_start();
}

/// Calls `visit` with the place of every lowest-level entry that is not 0 in `start..end`, and the table it is in.
pub fn for_each_leaf(root: Frame, start: u64, end: u64, mut visit: impl FnMut(u64, Frame, &AtomicU64)) {
    let mut address = start;
    while address < end {
        let next_table = (address | (crate::memory::LARGE_PAGE - 1)).saturating_add(1);
        if let Some(table) = table(root, address, 1) {
            for page in (address..end.min(next_table)).step_by(PAGE as usize) {
                let place = place(table, page, 1);
                if place.load(Ordering::Relaxed) != 0 {
                    visit(page, table, place);
                }
            }
        }
        address = next_table;
    }
}
