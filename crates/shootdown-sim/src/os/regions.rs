//! The memory system calls on anonymous regions: `mmap`, `munmap`, `madvise`.
//!
//! Shaped like Linux's: `madvise` holds the address-space lock shared, `mmap` and `munmap` exclusive; `munmap` takes
//! the region off the list exclusively and goes on shared, as Linux does since 4.20, unless a table is freed. Entries
//! are cleared, then flushed, and only then frames are freed.

use super::System;
use super::lock::Access as LockAccess;
use super::process::{PAGE, Process, TABLE_SPAN, USER_BASE};
use shootdown::{Range, Stride, Word};

impl<const W: usize> System<W> {
    /// `madvise(MADV_DONTNEED)` of `pages` pages at `va`.
    pub fn drop_pages(&self, process: &Process<W>, va: u64, pages: u64) {
        self.system_call(process, self.costs.syscall + self.costs.madvise, || {
            self.drop_pages_within(process, va, pages);
        });
    }

    fn drop_pages_within(&self, process: &Process<W>, va: u64, pages: u64) {
        self.lock(process, LockAccess::Shared);
        if self.settings.lru_drain {
            self.lru_drain();
        }
        process.unmapping.fetch_add_full(1);
        let (frames, cleared) = self.clear(process, va, pages);
        if cleared && self.unlocks_early() {
            let range = Range::pages(va, va + pages * PAGE, Stride::Size4K);
            self.flush_unlocking(process, range, frames, || self.unlock(process, LockAccess::Shared));
            process.unmapping.fetch_add_full(u64::MAX);
            return;
        }
        if cleared || self.another_unmaps(process) {
            self.flush(process, Range::pages(va, va + pages * PAGE, Stride::Size4K));
        }
        if self.settings.lru_drain && !frames.is_empty() {
            // The drain has put them on the list, so they have to be taken off. In a batch they would only be marked.
            self.lru_section();
        }
        frames.into_iter().for_each(|frame| self.free(frame));
        process.unmapping.fetch_add_full(u64::MAX);
        self.unlock(process, LockAccess::Shared);
    }

    /// `mmap` of an anonymous private region.
    pub fn map(&self, process: &Process<W>, va: u64, bytes: u64) {
        self.system_call(process, self.costs.syscall + self.costs.mmap, || {
            self.lock(process, LockAccess::Exclusive);
            self.settle_quarantine(process, va..va + bytes);
            for table in process.table_index(va)..=process.table_index(va + bytes - 1) {
                process.table_users.borrow_mut()[table] += 1;
            }
            self.unlock(process, LockAccess::Exclusive);
        });
    }

    /// `munmap` of a whole region, freeing the tables that no other region needs.
    pub fn unmap(&self, process: &Process<W>, va: u64, bytes: u64) {
        self.system_call(process, self.costs.syscall + self.costs.munmap, || {
            self.unmap_within(process, va, bytes);
        });
    }

    fn unmap_within(&self, process: &Process<W>, va: u64, bytes: u64) {
        self.lock(process, LockAccess::Exclusive);
        let positions = process.table_index(va)..=process.table_index(va + bytes - 1);
        let unused: Vec<_> = positions
            .filter(|&position| {
                let users = &mut process.table_users.borrow_mut()[position];
                *users -= 1;
                *users == 0
            })
            .collect();
        let may_defer = self.may_defer(process, va);
        self.forget_file(process, va);
        // The region is off the list. A table that another region could still need keeps the lock exclusive.
        let access = if unused.is_empty() {
            LockAccess::Shared
        } else {
            LockAccess::Exclusive
        };
        if access == LockAccess::Shared {
            process.lock.downgrade();
        }
        process.unmapping.fetch_add_full(1);
        let (frames, cleared) = self.clear(process, va, bytes / PAGE);
        let tables: Vec<_> = unused
            .into_iter()
            .filter_map(|position| self.unlink(process, USER_BASE + position as u64 * TABLE_SPAN))
            .collect();
        let range = Range::pages(va, va + bytes, Stride::Size4K);
        if !tables.is_empty() {
            self.flush_and_free(process, range.with_tables(), &tables);
        } else if cleared && may_defer {
            self.flush_later(process, range, frames);
            process.unmapping.fetch_add_full(u64::MAX);
            return self.unlock(process, access);
        } else if cleared && self.unlocks_early() {
            self.flush_unlocking(process, range, frames, || self.unlock(process, access));
            process.unmapping.fetch_add_full(u64::MAX);
            return;
        } else if cleared || self.another_unmaps(process) {
            self.flush(process, range);
        }
        frames.into_iter().for_each(|frame| self.free(frame));
        process.unmapping.fetch_add_full(u64::MAX);
        self.unlock(process, access);
    }
}
