//! Page-table entries in an x86-like format, and when one entry grants at least what another does.
//!
//! Owns the bit layout. Independent of tables, CPUs and time.

use std::fmt;

/// One 64-bit page-table entry: flag bits low, frame number from bit 12.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Entry(pub u64);

impl Entry {
    /// The empty entry.
    pub const NONE: Entry = Entry(0);
    /// The entry is valid.
    pub const PRESENT: u64 = 1;
    /// Writes are allowed.
    pub const WRITE: u64 = 1 << 1;
    /// User mode may use it.
    pub const USER: u64 = 1 << 2;
    /// Set by a walk, speculative ones included.
    pub const ACCESSED: u64 = 1 << 5;
    /// Set by the walk of a write.
    pub const DIRTY: u64 = 1 << 6;
    /// In a table of level 2 or 3: a leaf of 2 MiB or 1 GiB rather than a link.
    pub const LARGE: u64 = 1 << 7;
    /// Survives tag flushes and root loads.
    pub const GLOBAL: u64 = 1 << 8;
    const FRAME_SHIFT: u32 = 12;

    /// A present, read-only, kernel-only leaf mapping `frame`.
    #[inline]
    pub const fn page(frame: u32) -> Entry {
        Entry(((frame as u64) << Self::FRAME_SHIFT) | Self::PRESENT)
    }

    /// A link to the page-table page `frame`. Permission bits of links are ignored by the walker.
    #[inline]
    pub const fn table(frame: u32) -> Entry {
        Entry(((frame as u64) << Self::FRAME_SHIFT) | Self::PRESENT | Self::WRITE | Self::USER)
    }

    /// The same entry with these flag bits set.
    #[inline]
    pub const fn with(self, bits: u64) -> Entry {
        Entry(self.0 | bits)
    }

    /// The same entry with these flag bits cleared.
    #[inline]
    pub const fn without(self, bits: u64) -> Entry {
        Entry(self.0 & !bits)
    }

    /// Whether all of these flag bits are set.
    #[inline]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// Whether the entry is valid.
    #[inline]
    pub const fn is_present(self) -> bool {
        self.has(Self::PRESENT)
    }

    /// The frame mapped or linked to.
    #[inline]
    pub const fn frame(self) -> u32 {
        (self.0 >> Self::FRAME_SHIFT) as u32
    }

    /// Whether, in a table of this level (1 to 4), the entry is a leaf rather than a link.
    #[inline]
    pub const fn is_leaf(self, level: u32) -> bool {
        self.is_present() && (level == 1 || (level <= 3 && self.has(Self::LARGE)))
    }

    /// Whether tables that hold `self` also grant everything a cached `other` grants: the same frame with at least its
    /// permissions. Accessed, dirty and global bits do not matter.
    #[inline]
    pub const fn covers(self, other: Entry) -> bool {
        const RIGHTS: u64 = Entry::PRESENT | Entry::WRITE | Entry::USER;
        self.is_present() && self.frame() == other.frame() && (other.0 & RIGHTS) & !self.0 == 0
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_present() {
            return write!(f, "nothing");
        }
        write!(f, "frame {}", self.frame())?;
        write!(f, " {}", if self.has(Self::WRITE) { "rw" } else { "ro" })?;
        write!(f, " {}", if self.has(Self::USER) { "user" } else { "kernel" })?;
        if self.has(Self::GLOBAL) {
            write!(f, " global")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_covers_fewer_rights_only() {
        let ro = Entry::page(7).with(Entry::USER);
        let rw = ro.with(Entry::WRITE);
        assert!(rw.covers(ro) && !ro.covers(rw));
        assert!(rw.covers(rw.with(Entry::DIRTY | Entry::ACCESSED | Entry::GLOBAL)));
        assert!(!Entry::page(8).with(Entry::USER | Entry::WRITE).covers(ro));
        assert!(!Entry::NONE.covers(ro));
        assert!(!ro.without(Entry::PRESENT).covers(ro));
    }
}
