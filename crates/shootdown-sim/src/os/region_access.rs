//! How faults and changes of regions take the locks of the regions.

use super::System;
use super::lock::Access;
use super::process::Process;
use super::region_lock::{Changing, Held, RegionLock};

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
