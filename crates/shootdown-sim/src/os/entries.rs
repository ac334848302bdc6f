//! Page-table entries as the kernel handles them: looked up, stored through the CPU's store buffer, cleared; and the
//! freeing of frames and tables without references.

use super::System;
use super::process::{PAGE, Process, TABLE_SPAN};
use crate::hw::Entry;
use crate::machine::{self, LineId};
use shootdown::{Range, Stride};

impl<const W: usize> System<W> {
    /// Clears the entries of `pages` pages. Returns the frames that are no longer mapped, and whether any entry was
    /// cleared that is not flushed yet.
    pub(super) fn clear(&self, process: &Process<W>, va: u64, pages: u64) -> (Vec<u32>, bool) {
        let (mut frames, mut cleared) = (Vec::new(), false);
        let zero_page = self.hw.borrow().zero_page();
        let mut next = va;
        let end = va + pages * PAGE;
        while next < end {
            let stop = end.min((next / TABLE_SPAN + 1) * TABLE_SPAN);
            let table = self.hw.borrow().table_at(process.root, next, 1);
            if let Some(table) = table {
                process.table_locks[process.table_index(next)].with(false, || {
                    let (mut found, mut dirty) = (false, false);
                    for page in (next..stop).step_by(PAGE as usize) {
                        let index = crate::hw::table_index(page, 1);
                        let old = self.entry(process, page, table, index);
                        if !old.is_present() {
                            continue;
                        }
                        machine::charge(self.costs.unmap_entry);
                        self.store_entry(process, page, table, index, Entry::NONE);
                        dirty |= old.has(Entry::WRITE) && process.is_shared_file(page);
                        found = true;
                        if old.frame() != zero_page {
                            frames.push(old.frame());
                        }
                    }
                    if dirty {
                        // As Linux since 3.15: no CPU may write to a page through its TLB once the page counts as
                        // clean.
                        self.flush(process, Range::pages(next, stop, Stride::Size4K));
                    } else {
                        cleared |= found;
                    }
                });
            }
            next = stop;
        }
        (frames, cleared)
    }

    /// Clears the entries of `pages` pages and nothing else. The caller flushes, and then passes the returned frames to
    /// [`free_frames`](Self::free_frames).
    pub fn withdraw(&self, process: &Process<W>, va: u64, pages: u64) -> Vec<u32> {
        self.clear(process, va, pages).0
    }

    /// Takes frames off the LRU list and drops a reference to each. Their entries are clear, and flushed everywhere.
    pub fn free_frames(&self, frames: Vec<u32>) {
        self.lru_release(&frames);
        frames.into_iter().for_each(|frame| self.free(frame));
    }

    /// Unlinks the lowest-level table at `va` from its parent. The caller flushes, and then calls
    /// [`free_table`](Self::free_table).
    pub fn unlink(&self, process: &Process<W>, va: u64) -> Option<u32> {
        let (table, parent) = {
            let hw = self.hw.borrow();
            (hw.table_at(process.root, va, 1)?, hw.table_at(process.root, va, 2)?)
        };
        let line = machine::line_of(std::ptr::from_ref(&*process.space));
        self.store_at(line, parent, crate::hw::table_index(va, 2), Entry::NONE);
        Some(table)
    }

    /// Frees a table that is linked nowhere.
    pub fn free_table(&self, table: u32) {
        machine::charge(self.costs.page_free);
        // The last reference to a page is dropped by an atomic operation, which is a barrier.
        machine::drain_stores();
        machine::synchronise();
        self.hw.borrow_mut().free_table(table, machine::cpu(), machine::now());
    }

    /// The lowest-level table for `va`, created if missing.
    pub(super) fn table_for(&self, process: &Process<W>, va: u64) -> u32 {
        let found = self.hw.borrow().table_at(process.root, va, 1);
        found.unwrap_or_else(|| {
            machine::charge(self.costs.page_alloc + self.costs.page_zero);
            machine::synchronise();
            self.hw
                .borrow_mut()
                .ensure_table(process.root, va, 1, machine::cpu(), machine::now())
        })
    }

    /// Reads an entry, this CPU's own buffered store first.
    pub(super) fn entry(&self, process: &Process<W>, va: u64, table: u32, index: u32) -> Entry {
        machine::read_line(process.entry_line(va));
        match machine::pending_other(entry_key(table, index)) {
            Some(pending) => self.stores.borrow()[pending as usize].value,
            None => self.hw.borrow().entry(table, index),
        }
    }

    pub(super) fn store_entry(&self, process: &Process<W>, va: u64, table: u32, index: u32, value: Entry) {
        self.store_at(process.entry_line(va), table, index, value);
    }

    /// Puts the store of an entry into this CPU's store buffer.
    pub(super) fn store_at(&self, line: LineId, table: u32, index: u32, value: Entry) {
        let issued = self.hw.borrow_mut().store_issued(machine::cpu(), machine::now());
        let number = self.stores.borrow_mut().put(super::PendingStore { value, issued });
        machine::store_other(line, entry_key(table, index), number as u64);
    }

    /// Drops a reference to a frame; the last one frees it.
    pub(super) fn free(&self, frame: u32) {
        machine::charge(self.costs.page_free);
        self.hand_back(frame);
    }

    /// [`free`](Self::free), with the accounting already charged.
    pub(super) fn hand_back(&self, frame: u32) {
        if !self.put_shared(frame) {
            self.hw.borrow_mut().free_data(frame, machine::cpu(), machine::now());
        }
    }
}

pub(super) fn entry_key(table: u32, index: u32) -> u64 {
    u64::from(table) << 9 | u64::from(index)
}
