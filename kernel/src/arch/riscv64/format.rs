//! Entries of page tables: three levels (Sv39) or four (Sv48), bits as the hart reads them.
//!
//! Entries are created accessed and dirty, so no hart changes one or traps for it.

use crate::memory::Frame;
use crate::region::Access;
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown::Facade;

/// Levels of tables: the root has this level, pages are in level 1.
#[inline]
pub fn levels() -> u32 {
    super::boot::levels()
}

/// Entries of a root for user addresses; the rest are the kernel's, the same in every root.
pub const USER_ENTRIES: usize = 256;

const VALID: u64 = 1;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
/// User code may access it.
const USER: u64 = 1 << 4;
const GLOBAL: u64 = 1 << 5;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
/// Position of the frame number.
const FRAME: u32 = 10;
const FRAME_BITS: u64 = (1 << 44) - 1;

const PAGE: u64 = VALID | READ | ACCESSED | DIRTY;

/// The content of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    const fn new(frame: Frame, flags: u64) -> Entry {
        Entry((frame.0 as u64) << FRAME | flags)
    }

    /// A link to a table.
    pub const fn table(frame: Frame) -> Entry {
        Entry::new(frame, VALID)
    }

    /// A user page with read access, plus the given rights.
    pub const fn page(frame: Frame, access: Access) -> Entry {
        let write = if access.write { WRITE } else { 0 };
        let execute = if access.execute { EXECUTE } else { 0 };
        Entry::new(frame, PAGE | USER | write | execute)
    }

    /// A large user page, readable and writable.
    pub const fn large_page(frame: Frame) -> Entry {
        Entry::page(frame, Access::data(true))
    }

    /// A kernel page, global, readable and writable.
    pub const fn kernel_page(frame: Frame) -> Entry {
        Entry::new(frame, PAGE | WRITE | GLOBAL)
    }

    /// Whether it is valid.
    pub const fn is_present(self) -> bool {
        self.0 & VALID != 0
    }

    /// Whether it allows writes.
    pub const fn is_writable(self) -> bool {
        self.0 & WRITE != 0
    }

    /// Whether it is a page and not a link.
    pub const fn is_large(self) -> bool {
        self.is_present() && self.0 & (READ | EXECUTE) != 0
    }

    /// The same, not present, and nonzero.
    pub const fn absent(self) -> Entry {
        Entry(self.0 & !VALID)
    }

    /// The same without writes.
    pub const fn read_only(self) -> Entry {
        Entry(self.0 & !WRITE)
    }

    /// The same with writes.
    pub const fn writable(self) -> Entry {
        Entry(self.0 | WRITE)
    }

    /// The same, restricted to `access`. Writes are not added: the next one faults and finds the page's owner.
    pub const fn restricted(self, access: Access) -> Entry {
        let lost = if access.write { 0 } else { WRITE };
        Entry(self.0 & !(lost | EXECUTE) | if access.execute { EXECUTE } else { 0 })
    }

    /// Whether this allows an access that `new`, of the same page, does not.
    pub const fn allows_more_than(self, new: Entry) -> bool {
        self.0 & !new.0 & (WRITE | EXECUTE) != 0
    }

    /// The frame that it refers to.
    pub const fn frame(self) -> Frame {
        Frame((self.0 >> FRAME & FRAME_BITS) as u32)
    }
}

/// Removes the write permission of the entry at `place`; returns the old entry.
pub fn forbid_writes(place: &AtomicU64) -> Entry {
    Entry(place.fetch_and(!WRITE, Ordering::AcqRel))
}

/// Allows writes by the entry at `place`.
pub fn allow_writes(place: &AtomicU64) {
    place.fetch_or(WRITE, Ordering::AcqRel);
}

/// Entries made before are ordered before later accesses. A hart may still cache the invalid entry: then its next
/// access faults, and the handler drops it.
#[inline]
pub fn publish() {
    shootdown_cpu::BareMetal::publish_tables();
}
