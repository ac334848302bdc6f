//! Entries of page tables: four levels, 4 KiB, bits as the processor reads them.
//!
//! Entries are created accessed, and dirty if they are writable, so the processor changes none. An entry that changes
//! its frame goes through an invalid entry and a completed flush (break before make): see `space/fault.rs`.

use crate::memory::Frame;
use crate::region::Access;
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown::Facade;

/// Levels of tables: the root has this level (Arm's level 0), pages are in level 1 (Arm's level 3).
#[inline]
pub fn levels() -> u32 {
    4
}

/// Entries of a root for user addresses: all, because another register has the kernel's root.
pub const USER_ENTRIES: usize = 512;

const VALID: u64 = 1;
/// A table, or in level 1 a page; else a block.
const TABLE: u64 = 1 << 1;
/// User code may access it.
const USER: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 3 << 8;
const ACCESSED: u64 = 1 << 10;
/// Not global: it has an ASID.
const NOT_GLOBAL: u64 = 1 << 11;
const NO_EXECUTE_BY_KERNEL: u64 = 1 << 53;
const NO_EXECUTE: u64 = 1 << 54;
const ADDRESS: u64 = 0x0000_FFFF_FFFF_F000;

/// A page of memory (attribute 0 of MAIR).
const PAGE: u64 = VALID | TABLE | INNER_SHAREABLE | ACCESSED | NO_EXECUTE_BY_KERNEL;

/// The content of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    /// A link to a table.
    pub const fn table(frame: Frame) -> Entry {
        Entry(frame.address() | VALID | TABLE)
    }

    /// A user page with read access, plus the given rights.
    pub const fn page(frame: Frame, access: Access) -> Entry {
        Entry(frame.address() | PAGE | USER | NOT_GLOBAL | Entry::flags(access))
    }

    /// A large user page, readable and writable.
    pub const fn large_page(frame: Frame) -> Entry {
        Entry(Entry::page(frame, Access::data(true)).0 & !TABLE)
    }

    /// A kernel page, global, readable and writable.
    pub const fn kernel_page(frame: Frame) -> Entry {
        Entry(frame.address() | PAGE | NO_EXECUTE)
    }

    const fn flags(access: Access) -> u64 {
        let write = if access.write { 0 } else { READ_ONLY };
        write | if access.execute { 0 } else { NO_EXECUTE }
    }

    /// Whether it is valid.
    pub const fn is_present(self) -> bool {
        self.0 & VALID != 0
    }

    /// Whether it allows writes.
    pub const fn is_writable(self) -> bool {
        self.0 & READ_ONLY == 0
    }

    /// Whether, above level 1, it is a page and not a link.
    pub const fn is_large(self) -> bool {
        self.0 & (VALID | TABLE) == VALID
    }

    /// The same, not present, and nonzero.
    pub const fn absent(self) -> Entry {
        Entry(self.0 & !VALID)
    }

    /// The same without writes.
    pub const fn read_only(self) -> Entry {
        Entry(self.0 | READ_ONLY)
    }

    /// The same with writes.
    pub const fn writable(self) -> Entry {
        Entry(self.0 & !READ_ONLY)
    }

    /// The same, restricted to `access`. Writes are not added: the next one faults and finds the page's owner.
    pub const fn restricted(self, access: Access) -> Entry {
        let lost = if access.write { 0 } else { READ_ONLY };
        Entry(self.0 & !NO_EXECUTE | lost | if access.execute { 0 } else { NO_EXECUTE })
    }

    /// Whether this allows an access that `new`, of the same page, does not.
    pub const fn allows_more_than(self, new: Entry) -> bool {
        new.0 & !self.0 & (READ_ONLY | NO_EXECUTE) != 0
    }

    /// The frame that it refers to.
    pub const fn frame(self) -> Frame {
        Frame::at(self.0 & ADDRESS)
    }
}

/// Removes the write permission of the entry at `place`; returns the old entry.
pub fn forbid_writes(place: &AtomicU64) -> Entry {
    Entry(place.fetch_or(READ_ONLY, Ordering::AcqRel))
}

/// Allows writes by the entry at `place`.
pub fn allow_writes(place: &AtomicU64) {
    place.fetch_and(!READ_ONLY, Ordering::AcqRel);
}

/// Later walks find entries made before (DSB ISHST). Without it the next access may fault once more.
#[inline]
pub fn publish() {
    shootdown_cpu::BareMetal::publish_tables();
}
