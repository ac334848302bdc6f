//! The lock of a region: Linux's per-VMA lock.
//!
//! Readers (faults, in newer kernels `madvise` too) take it instead of the address-space lock. A writer holds the
//! address-space lock exclusively, and keeps readers out of the region until it releases or downgrades that lock.
//! Adjacent anonymous regions of a process have the same rights, so Linux merges them: they share one lock here. A
//! file's region has its own.

use super::System;
use super::lock::Access;
use super::process::Process;
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
    pub(super) fn new(machine: &Machine) -> Self {
        RegionLock(Rc::new(machine.alloc(Words {
            readers: SimWord::new(0),
            writer: SimWord::new(0),
        })))
    }

    /// Takes it for reading; false while a writer changes the region.
    fn try_read(&self) -> bool {
        if self.0.writer.load(Ordering::Relaxed) != 0 {
            return false;
        }
        // Pairs with `begin_write`: either the writer sees this reader, or the reader sees the writer. Linux first
        // assumes that there is no reader.
        let mut readers = 0;
        while let Err(found) = self.0.readers.compare_exchange_full(readers, readers + 1) {
            readers = found;
        }
        if self.0.writer.load(Ordering::Relaxed) != 0 {
            self.end_read();
            return false;
        }
        true
    }

    fn end_read(&self) {
        self.0.readers.fetch_add_full(u64::MAX);
    }

    /// Keeps readers out, and waits for the present ones.
    fn begin_write(&self) {
        // Pairs with `try_read`.
        self.0.writer.swap_full(1);
        machine::wait_until(|| self.0.readers.load(Ordering::Acquire) == 0);
    }

    fn end_write(&self) {
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

impl<const W: usize> System<W> {
    /// Takes the lock of the region at `va` for reading, if `by_region` and no writer changes the region; else the
    /// address-space lock.
    pub(super) fn lock_region(&self, process: &Process<W>, va: u64, by_region: bool) -> Held {
        if by_region {
            let lock = process.region_lock(va);
            if lock.try_read() {
                return Held::Region(lock);
            }
        }
        self.lock(process, Access::Shared);
        Held::Space
    }

    pub(super) fn unlock_region(&self, process: &Process<W>, held: Held) {
        match held {
            Held::Space => self.unlock(process, Access::Shared),
            Held::Region(lock) => lock.end_read(),
        }
    }

    /// Keeps faults out of the regions at `addresses`; under the address-space lock, exclusive.
    pub(super) fn change_regions(&self, process: &Process<W>, addresses: &[u64]) -> Changing {
        let mut locks: Vec<RegionLock> = Vec::new();
        if self.settings.region_faults {
            for &va in addresses {
                let lock = process.region_lock(va);
                if !locks.iter().any(|other| Rc::ptr_eq(&other.0, &lock.0)) {
                    lock.begin_write();
                    locks.push(lock);
                }
            }
        }
        Changing(locks)
    }

    /// As [`change_regions`](Self::change_regions), for all regions.
    pub(super) fn change_all_regions(&self, process: &Process<W>) -> Changing {
        let mut locks = Vec::new();
        if self.settings.region_faults {
            locks = process.region_locks();
            locks.iter().for_each(RegionLock::begin_write);
        }
        Changing(locks)
    }
}

/// Regions under change; [`end`](Self::end) readmits readers.
#[must_use]
pub(super) struct Changing(Vec<RegionLock>);

impl Changing {
    pub(super) fn end(self) {
        self.0.iter().for_each(RegionLock::end_write);
    }
}
