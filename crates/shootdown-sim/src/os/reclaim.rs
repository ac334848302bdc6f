//! Page reclaim: pages from several processes, flushed in one batch; and the operations that must not overtake it.

use super::System;
use super::category::{self, Category};
use super::process::{PAGE, Process};
use crate::hw::{Entry, table_index};
use crate::machine;
use shootdown::Range;

/// Pages that were taken out of page tables and flushed.
pub(super) struct Taken {
    /// Number of the process, and address.
    pub pages: Vec<(u32, u64)>,
    /// Their frames, without the zero page.
    pub frames: Vec<u32>,
}

impl<const W: usize> System<W> {
    /// Takes the page at each address from its process, flushes all of them in one batch, and frees the frames. Returns
    /// the number of pages that were mapped.
    pub fn reclaim(&self, victims: &[(&Process<W>, u64)]) -> usize {
        let taken = self.take_out(victims);
        self.free_frames(taken.frames);
        taken.pages.len()
    }

    /// Takes the page at each address out of its process's page table and flushes all of them in one batch.
    pub(super) fn take_out(&self, victims: &[(&Process<W>, u64)]) -> Taken {
        let mut batch = self.engine.batch();
        let (mut frames, mut covered) = (Vec::new(), Vec::new());
        for &(process, va) in victims {
            let Some(table) = self.hw.borrow().table_at(process.root, va, 1) else {
                continue;
            };
            // Cleared and added under one hold of the lock, so that a CPU that finds the entry clear also finds the
            // batch pending.
            process.table_locks[process.table_index(va)].with(false, || {
                let index = table_index(va, 1);
                let old = self.entry(process, va, table, index);
                if !old.is_present() {
                    return;
                }
                self.store_entry(process, va, table, index, Entry::NONE);
                let stamp = self.hw.borrow_mut().request_begins(machine::cpu(), machine::now());
                batch.add(&process.space, Range::page(va));
                covered.push((process.number, va, stamp));
                if old.frame() != self.hw.borrow().zero_page() {
                    frames.push(old.frame());
                }
            });
        }
        let _done = self.timed(|| batch.finish());
        if self.settings.ideal {
            machine::drain_stores();
            for &(number, va, _) in &covered {
                let mut hw = self.hw.borrow_mut();
                hw.perfect_invalidate(machine::cpu(), number, va..va + PAGE);
            }
        }
        let mut pages = Vec::with_capacity(covered.len());
        for (number, va, stamp) in covered {
            self.hw
                .borrow_mut()
                .completed(number, va..va + PAGE, stamp, machine::cpu(), machine::now());
            pages.push((number, va));
        }
        Taken { pages, frames }
    }

    /// An `mprotect` or an unmap finds the page at `va` not mapped. Before it relies on that, a batch that took the
    /// page must have been flushed.
    pub fn rely_on_absence(&self, process: &Process<W>, va: u64) {
        let Some(table) = self.hw.borrow().table_at(process.root, va, 1) else {
            return;
        };
        process.table_locks[process.table_index(va)].with(false, || {
            if self.entry(process, va, table, table_index(va, 1)).is_present() {
                return;
            }
            self.rely_on_batches(process, va);
        });
    }

    /// Flushes any entry that a batch has cleared at `va`. Under the lock of its table.
    pub(super) fn rely_on_batches(&self, process: &Process<W>, va: u64) {
        let stamp = self.hw.borrow_mut().request_begins(machine::cpu(), machine::now());
        let outer = category::enter(Category::FlushRequester);
        self.engine.flush_pending(&process.space);
        category::leave(outer);
        self.hw
            .borrow_mut()
            .completed(process.number, va..va + PAGE, stamp, machine::cpu(), machine::now());
    }
}
