//! Calls that concern regions and no page: advice that only marks a region, and reads of the list of regions.

use super::System;
use super::lock::Access as LockAccess;
use super::process::Process;
use crate::machine;

impl<const W: usize> System<W> {
    /// `madvise` with advice that marks the page at `va`. As in Linux, the lock is exclusive while the region is split,
    /// which takes as long as `mmap`.
    pub fn mark_region(&self, process: &Process<W>, va: u64) {
        self.system_call(process, self.costs.syscall + self.costs.madvise, || {
            self.lock(process, LockAccess::Exclusive);
            let changing = self.change_regions(process, &[va]);
            machine::charge(self.costs.mmap);
            changing.end();
            self.unlock(process, LockAccess::Exclusive);
        });
    }

    /// Looks at regions of `process` in so many sections under the shared lock, each of so many cycles: `madvise` that
    /// finds nothing to do, or a read of `/proc/self/smaps`.
    pub fn read_regions(&self, process: &Process<W>, sections: u64, cycles: u64) {
        self.system_call(process, self.costs.syscall, || {
            for _ in 0..sections {
                self.lock(process, LockAccess::Shared);
                machine::charge(cycles);
                self.unlock(process, LockAccess::Shared);
            }
        });
    }
}
