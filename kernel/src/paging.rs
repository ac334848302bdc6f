//! Page tables: four levels of real entries, read and written as atomic words.
//!
//! Nothing here invalidates or locks: who may change which entry, and what must be flushed, is `space`'s.

use crate::frames;
use crate::memory::{DYNAMIC, Frame, PAGE};
use core::sync::atomic::{AtomicU64, Ordering};
use x86_64::structures::paging::PageTableFlags;

/// Flags of entries.
pub type Flags = PageTableFlags;

/// A user page that may be read.
pub const USER: Flags = Flags::PRESENT.union(Flags::USER_ACCESSIBLE).union(Flags::NO_EXECUTE);
/// A link to a table: what it allows, the leaves restrict.
const LINK: Flags = Flags::PRESENT.union(Flags::WRITABLE).union(Flags::USER_ACCESSIBLE);
const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;

/// What an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    /// A page or a table with these flags.
    pub const fn new(frame: Frame, flags: Flags) -> Entry {
        Entry(frame.address() | flags.bits())
    }

    /// Whether the processor follows it.
    pub const fn is_present(self) -> bool {
        self.0 & Flags::PRESENT.bits() != 0
    }

    /// Whether it has all these flags.
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.bits() == flags.bits()
    }

    /// Without these flags.
    pub const fn without(self, flags: Flags) -> Entry {
        Entry(self.0 & !flags.bits())
    }

    /// With these flags.
    pub const fn with(self, flags: Flags) -> Entry {
        Entry(self.0 | flags.bits())
    }

    /// What it refers to.
    pub const fn frame(self) -> Frame {
        Frame::at(self.0 & ADDRESS)
    }
}

/// Place of `address` in the table of that level: 4 is the root, 1 holds pages.
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
    for above in (level + 1..=4).rev() {
        // Acquire: what the link leads to was written before it.
        let link = Entry(place(table, address, above).load(Ordering::Acquire));
        if !link.is_present() || link.has(Flags::HUGE_PAGE) {
            return None;
        }
        table = link.frame();
    }
    Some(table)
}

/// As [`table`], making what is missing. Several CPUs may do so at once. `None` when memory is out.
///
/// # Panics
/// When a large page is in the way.
pub fn table_or_new(root: Frame, address: u64, level: u32) -> Option<Frame> {
    let mut table = root;
    for above in (level + 1..=4).rev() {
        let place = place(table, address, above);
        let link = Entry(place.load(Ordering::Acquire));
        assert!(!link.has(Flags::HUGE_PAGE), "a large page is at {address:#x}");
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
    match place.compare_exchange(0, Entry::new(new, LINK).0, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(new),
        Err(other) => {
            frames::free(new);
            Some(Entry(other).frame())
        }
    }
}

/// A root that maps what the kernel's does in the upper half, and nothing in the lower.
pub fn new_root(kernel: Frame) -> Option<Frame> {
    let root = frames::allocate_zeroed()?;
    for (own, shared) in root.words().iter().zip(kernel.words()).skip(256) {
        own.store(shared.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    Some(root)
}

/// Before the first space: the tables that all roots share for kernel mappings that come and go; and the lower half,
/// where the CPUs started, is empty from now on.
pub fn finish_kernel_root(kernel: Frame) {
    table_or_new(kernel, DYNAMIC, 3).expect("there is memory at boot");
    kernel.words()[0].store(0, Ordering::SeqCst);
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
