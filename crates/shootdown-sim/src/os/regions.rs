//! The memory system calls on anonymous regions: `mmap`, `munmap`, `madvise`.
//!
//! Shaped like Linux's: `madvise` holds the address-space lock shared, `mmap` and `munmap` exclusive; `munmap` takes
//! the region off the list exclusively and continues shared, as Linux does since 4.20, unless a table is freed. Entries
//! are cleared, then flushed, and only then frames are freed.

use super::System;
use super::lock::Access as LockAccess;
use super::process::{PAGE, Process, TABLE_SPAN, USER_BASE};
use super::region_lock::Changing;
use shootdown::{Free, Range, Stride, Word};

impl<const W: usize> System<W> {
    /// `madvise(MADV_DONTNEED)` of `pages` pages at `va`.
    pub fn drop_pages(&self, process: &Process<W>, va: u64, pages: u64) {
        self.drop_ranges(process, &[(va, pages)]);
    }

    /// `madvise(MADV_DONTNEED)` of ranges (address and pages) in rising order, in one call with one flush, as Linux's
    /// `process_madvise` gathers them: the flush covers everything from the first page to the last.
    pub fn drop_ranges(&self, process: &Process<W>, ranges: &[(u64, u64)]) {
        let costs = self.costs.syscall + self.costs.madvise * ranges.len() as u64;
        self.system_call(process, costs, || self.drop_ranges_within(process, ranges));
    }

    fn drop_ranges_within(&self, process: &Process<W>, ranges: &[(u64, u64)]) {
        let va = ranges.first().map_or(0, |&(va, _)| va);
        let held = self.lock_for_drop(process, va);
        if self.settings.lru_drain {
            self.lru_drain();
        }
        process.unmapping.fetch_add_full(1);
        let (frames, cleared) = self.clear_ranges(process, ranges);
        let range = hull(ranges);
        if cleared && self.unlocks_early() {
            self.flush_unlocking(process, range, frames, || self.unlock_region(process, held));
            process.unmapping.fetch_add_full(u64::MAX);
            return;
        }
        self.flush_gathered(process, range, cleared);
        self.free_frames(frames);
        process.unmapping.fetch_add_full(u64::MAX);
        self.unlock_region(process, held);
    }

    /// `mmap` of an anonymous private region.
    pub fn map(&self, process: &Process<W>, va: u64, bytes: u64) {
        self.map_region(process, va, bytes, &[va]);
    }

    /// Maps a region next to, and merged with, those at `merged`.
    pub(super) fn map_region(&self, process: &Process<W>, va: u64, bytes: u64, merged: &[u64]) {
        self.system_call(process, self.costs.syscall + self.costs.mmap, || {
            self.lock(process, LockAccess::Exclusive);
            let changing = self.change_regions(process, merged);
            self.settle_quarantine(process, va..va + bytes);
            for table in process.table_index(va)..=process.table_index(va + bytes - 1) {
                process.table_users.borrow_mut()[table] += 1;
            }
            changing.end();
            self.unlock(process, LockAccess::Exclusive);
        });
    }

    /// `munmap` of a whole region, freeing the tables that no other region needs.
    pub fn unmap(&self, process: &Process<W>, va: u64, bytes: u64) {
        self.unmap_regions(process, &[va], bytes);
    }

    /// `munmap` of whole regions of `bytes` bytes each, in rising order, in one call with one flush, which covers
    /// everything from the first page to the last. Under a design that defers unmaps each region is unmapped by itself:
    /// the gaps between them must not be quarantined too.
    pub fn unmap_regions(&self, process: &Process<W>, regions: &[u64], bytes: u64) {
        let costs = self.costs.syscall + self.costs.munmap * regions.len() as u64;
        let by_itself = self.engine.policy().free == Free::Deferred;
        self.system_call(process, costs, || match by_itself {
            true => regions.chunks(1).for_each(|one| self.unmap_within(process, one, bytes)),
            false => self.unmap_within(process, regions, bytes),
        });
    }

    fn unmap_within(&self, process: &Process<W>, regions: &[u64], bytes: u64) {
        self.lock(process, LockAccess::Exclusive);
        let mut changing = Some(self.change_regions(process, regions));
        let unused: Vec<_> = regions
            .iter()
            .flat_map(|&va| self.tables_left_unused(process, va, bytes))
            .collect();
        let may_defer = regions.iter().any(|&va| self.may_defer(process, va));
        regions.iter().for_each(|&va| self.forget_file(process, va));
        // The regions are off the list. A table that another region could still need keeps the lock exclusive.
        let access = if unused.is_empty() {
            LockAccess::Shared
        } else {
            LockAccess::Exclusive
        };
        if access == LockAccess::Shared {
            changing.take().into_iter().for_each(Changing::end);
            process.lock.downgrade();
        }
        process.unmapping.fetch_add_full(1);
        let ranges: Vec<_> = regions.iter().map(|&va| (va, bytes / PAGE)).collect();
        let (frames, cleared) = self.clear_ranges(process, &ranges);
        let tables: Vec<_> = unused
            .into_iter()
            .filter_map(|position| self.unlink(process, USER_BASE + position as u64 * TABLE_SPAN))
            .collect();
        let range = hull(&ranges);
        if !tables.is_empty() {
            self.flush_and_free(process, range.with_tables(), &tables);
        } else if cleared && may_defer {
            self.flush_later(process, range, frames);
            process.unmapping.fetch_add_full(u64::MAX);
            changing.into_iter().for_each(Changing::end);
            return self.unlock(process, access);
        } else if cleared && self.unlocks_early() {
            self.flush_unlocking(process, range, frames, || {
                changing.into_iter().for_each(Changing::end);
                self.unlock(process, access);
            });
            process.unmapping.fetch_add_full(u64::MAX);
            return;
        } else {
            self.flush_gathered(process, range, cleared);
        }
        self.free_frames(frames);
        process.unmapping.fetch_add_full(u64::MAX);
        changing.into_iter().for_each(Changing::end);
        self.unlock(process, access);
    }

    /// Removes a region from its tables' user counts; returns the tables without users.
    fn tables_left_unused(&self, process: &Process<W>, va: u64, bytes: u64) -> Vec<usize> {
        let positions = process.table_index(va)..=process.table_index(va + bytes - 1);
        positions
            .filter(|&position| {
                let users = &mut process.table_users.borrow_mut()[position];
                *users -= 1;
                *users == 0
            })
            .collect()
    }

    /// Clears the entries of ranges (address and pages). Returns the frames that are no longer mapped, and whether any
    /// entry was.
    fn clear_ranges(&self, process: &Process<W>, ranges: &[(u64, u64)]) -> (Vec<u32>, bool) {
        let (mut frames, mut cleared) = (Vec::new(), false);
        for &(va, pages) in ranges {
            let (more, any) = self.clear(process, va, pages);
            frames.extend(more);
            cleared |= any;
        }
        (frames, cleared)
    }
}

/// Everything from the first page of the first range to the last page of the last.
fn hull(ranges: &[(u64, u64)]) -> Range {
    let begin = ranges.first().map_or(0, |&(va, _)| va);
    let end = ranges.last().map_or(0, |&(va, pages)| va + pages * PAGE);
    Range::pages(begin, end, Stride::Size4K)
}
