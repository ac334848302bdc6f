//! How faults and changes of regions take the locks of the regions.

use super::System;
use super::lock::Access;
use super::process::Process;
use super::region_lock::{Changing, Held, RegionLock};

impl<const W: usize> System<W> {
    /// Takes, for a page fault, the lock of the region at `va` for reading, or the address-space lock: where faults do
    /// not take locks of regions, and while a writer changes the region.
    pub(super) fn lock_for_fault(&self, process: &Process<W>, va: u64) -> Held {
        if let Some(held) = self.try_region(process, va, self.settings.region_faults) {
            return held;
        }
        if !process.lock.try_read() {
            self.lock(process, Access::Shared);
        }
        Held::Space
    }

    /// The same for a call that drops pages. It does not try the address-space lock first.
    pub(super) fn lock_for_drop(&self, process: &Process<W>, va: u64) -> Held {
        self.try_region(process, va, self.settings.region_drops)
            .unwrap_or_else(|| {
                self.lock(process, Access::Shared);
                Held::Space
            })
    }

    fn try_region(&self, process: &Process<W>, va: u64, by_region: bool) -> Option<Held> {
        let lock = by_region.then(|| process.region_lock(va))?;
        lock.try_read().then_some(Held::Region(lock))
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
                if !locks.iter().any(|other| other.is(&lock)) {
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
