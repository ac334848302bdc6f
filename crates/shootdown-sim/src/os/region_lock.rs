//! The lock of a region: Linux's per-VMA lock.
//!
//! Readers (faults, in newer kernels `madvise` too) take it instead of the address-space lock. A writer holds the
//! address-space lock exclusively, and keeps readers out of the region until it releases or downgrades that lock.
//! Adjacent anonymous regions of a process have the same rights, so Linux merges them: they share one lock here. A
//! file's region has its own.

use crate::machine::{self, Machine, Shared, SimWord};
use shootdown::Word;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// On one line, as in `struct vm_area_struct`.
struct Words {
    readers: SimWord,
    writer: SimWord,
}

/// The lock of one region.
#[derive(Clone)]
pub(super) struct RegionLock(Rc<Shared<Words>>);

impl std::fmt::Debug for RegionLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RegionLock")
    }
}

impl RegionLock {
    /// Whether it is the same lock.
    pub(super) fn is(&self, other: &RegionLock) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn new(machine: &Machine) -> Self {
        RegionLock(Rc::new(machine.alloc(Words {
            readers: SimWord::new(0),
            writer: SimWord::new(0),
        })))
    }

    /// Takes it for reading; false while a writer changes the region.
    pub(super) fn try_read(&self) -> bool {
        if self.0.writer.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let mut readers = self.0.readers.load(Ordering::Relaxed);
        // Pairs with `begin_write`: either the writer sees this reader, or the reader sees the writer.
        while let Err(found) = self.0.readers.compare_exchange_full(readers, readers + 1) {
            readers = found;
        }
        if self.0.writer.load(Ordering::Relaxed) != 0 {
            self.end_read();
            return false;
        }
        true
    }

    pub(super) fn end_read(&self) {
        self.0.readers.fetch_add_full(u64::MAX);
    }

    /// Keeps readers out, and waits for the present ones.
    pub(super) fn begin_write(&self) {
        // Pairs with `try_read`.
        self.0.writer.swap_full(1);
        machine::wait_until(|| self.0.readers.load(Ordering::Acquire) == 0);
    }

    pub(super) fn end_write(&self) {
        self.0.writer.store(0, Ordering::Release);
    }
}

/// The locks that a reader of a region holds.
pub(super) enum Held {
    /// The address-space lock, shared.
    Space,
    /// The lock of the region.
    Region(RegionLock),
}

/// Regions under change; [`end`](Self::end) readmits readers.
#[must_use]
pub(super) struct Changing(pub(super) Vec<RegionLock>);

impl Changing {
    pub(super) fn end(self) {
        self.0.iter().for_each(RegionLock::end_write);
    }
}
