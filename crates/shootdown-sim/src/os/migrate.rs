//! Page migration: pages of a process move to other frames in batches, each with one flush.

use super::System;
use super::lock::Access as LockAccess;
use super::process::Process;
use crate::hw::{Entry, table_index};
use crate::machine;

impl<const W: usize> System<W> {
    /// Moves the pages at `pages` to other frames: takes them out of the page table, flushes all of them in one batch,
    /// and maps each again after `page_cycles`, the time of its copy. A thread that touches one of them meanwhile waits
    /// for the address-space lock, which is held until all are mapped; Linux's waits for the page alone. Returns how
    /// many were mapped.
    pub fn migrate(&self, process: &Process<W>, pages: &[u64], page_cycles: u64) -> usize {
        let victims: Vec<_> = pages.iter().map(|&va| (process, va)).collect();
        self.lock(process, LockAccess::Exclusive);
        let taken = self.take_out(&victims);
        for &(_, va) in &taken.pages {
            machine::charge(page_cycles + self.costs.page_alloc + self.costs.map_entry);
            let frame = self.hw.borrow_mut().alloc_data();
            let table = self.table_for(process, va);
            process.table_locks[process.table_index(va)].with(false, || {
                let new = Entry::page(frame).with(Entry::USER | Entry::WRITE);
                self.store_entry(process, va, table, table_index(va, 1), new);
            });
        }
        self.unlock(process, LockAccess::Exclusive);
        self.free_frames(taken.frames);
        taken.pages.len()
    }
}
