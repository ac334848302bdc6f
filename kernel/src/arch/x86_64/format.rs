//! Entries of page tables: four levels, bits as the processor reads them.

use crate::memory::Frame;
use crate::region::Access;
use core::sync::atomic::{AtomicU64, Ordering};
use x86_64::structures::paging::PageTableFlags as Flags;

/// Levels of tables: the root has this level, pages are in level 1.
#[inline]
pub fn levels() -> u32 {
    4
}

/// Entries of a root for user addresses; the rest are the kernel's, the same in every root.
pub const USER_ENTRIES: usize = 256;

/// A user page that may be read, written, and fetched from.
const USER: Flags = Flags::PRESENT.union(Flags::USER_ACCESSIBLE);
/// A link to a table with every right; the leaves restrict it.
const LINK: Flags = USER.union(Flags::WRITABLE);
const KERNEL: Flags = Flags::PRESENT
    .union(Flags::WRITABLE)
    .union(Flags::GLOBAL)
    .union(Flags::NO_EXECUTE);
const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;

/// The content of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    const fn new(frame: Frame, flags: Flags) -> Entry {
        Entry(frame.address() | flags.bits())
    }

    /// A link to a table.
    pub const fn table(frame: Frame) -> Entry {
        Entry::new(frame, LINK)
    }

    /// A user page with read access, plus the given rights.
    pub const fn page(frame: Frame, access: Access) -> Entry {
        Entry(Entry::new(frame, USER).0 | Entry::flags(access))
    }

    /// A large user page, readable and writable.
    pub const fn large_page(frame: Frame) -> Entry {
        Entry(Entry::page(frame, Access::data(true)).0 | Flags::HUGE_PAGE.bits())
    }

    /// A kernel page, global, readable and writable.
    pub const fn kernel_page(frame: Frame) -> Entry {
        Entry::new(frame, KERNEL)
    }

    const fn flags(access: Access) -> u64 {
        let write = if access.write { Flags::WRITABLE.bits() } else { 0 };
        write | if access.execute { 0 } else { Flags::NO_EXECUTE.bits() }
    }

    /// Whether it is valid.
    pub const fn is_present(self) -> bool {
        self.has(Flags::PRESENT)
    }

    /// Whether it allows writes.
    pub const fn is_writable(self) -> bool {
        self.has(Flags::WRITABLE)
    }

    /// Whether, above level 1, it is a page and not a link.
    pub const fn is_large(self) -> bool {
        self.has(Flags::HUGE_PAGE)
    }

    const fn has(self, flags: Flags) -> bool {
        self.0 & flags.bits() == flags.bits()
    }

    /// The same, not present, and nonzero.
    pub const fn absent(self) -> Entry {
        Entry(self.0 & !Flags::PRESENT.bits())
    }

    /// The same without writes.
    pub const fn read_only(self) -> Entry {
        Entry(self.0 & !Flags::WRITABLE.bits())
    }

    /// The same with writes.
    pub const fn writable(self) -> Entry {
        Entry(self.0 | Flags::WRITABLE.bits())
    }

    /// The same, restricted to `access`. Writes are not added: the next one faults and finds the page's owner.
    pub const fn restricted(self, access: Access) -> Entry {
        let lost = if access.write { 0 } else { Flags::WRITABLE.bits() };
        let no_execute = Flags::NO_EXECUTE.bits();
        let kept = self.0 & !(lost | no_execute);
        Entry(kept | if access.execute { 0 } else { no_execute })
    }

    /// Whether this allows an access that `new`, of the same page, does not.
    pub const fn allows_more_than(self, new: Entry) -> bool {
        self.0 & !new.0 & Flags::WRITABLE.bits() != 0 || new.0 & !self.0 & Flags::NO_EXECUTE.bits() != 0
    }

    /// The frame that it refers to.
    pub const fn frame(self) -> Frame {
        Frame::at(self.0 & ADDRESS)
    }
}

/// Removes the write permission of the entry at `place`; returns the old entry.
pub fn forbid_writes(place: &AtomicU64) -> Entry {
    Entry(place.fetch_and(!Flags::WRITABLE.bits(), Ordering::AcqRel))
}

/// Allows writes by the entry at `place`.
pub fn allow_writes(place: &AtomicU64) {
    place.fetch_or(Flags::WRITABLE.bits(), Ordering::AcqRel);
}

/// Later walks find entries made before: stores are seen in order.
#[inline]
pub fn publish() {}
