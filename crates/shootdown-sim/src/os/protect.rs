//! `mprotect`: removing the write permission of resident pages, and restoring it.

use super::System;
use super::lock::Access as LockAccess;
use super::process::{PAGE, Process, TABLE_SPAN};
use crate::hw::{Entry, Isa, table_index};
use crate::machine;
use shootdown::{Range, Stride};

impl<const W: usize> System<W> {
    /// `mprotect` of `pages` pages at `va`. Exclusive lock throughout, as in Linux. Charged as `mmap`, which like it
    /// finds, splits and merges regions, and for each page as an unmap.
    ///
    /// Flushes when permission is removed. When it is restored, a stricter translation may stay in a TLB, which never
    /// allows a forbidden access. x86 kernels leave it: the access that it stops makes the processor drop it and walk
    /// again, at worst after a fault ([`touch`](Self::touch)). Kernels of the other instruction sets flush.
    pub fn protect(&self, process: &Process<W>, va: u64, pages: u64, writable: bool) {
        let finds_out = matches!(self.hw.borrow().config().isa, Isa::X86_64);
        self.change_protection(process, va, pages, writable, !writable || !finds_out);
    }

    /// Restores permission without a flush, on every processor.
    pub fn allow_writes(&self, process: &Process<W>, va: u64, pages: u64) {
        self.change_protection(process, va, pages, true, false);
    }

    fn change_protection(&self, process: &Process<W>, va: u64, pages: u64, writable: bool, flushes: bool) {
        self.system_call(process, self.costs.syscall + self.costs.mmap, || {
            self.change_protection_within(process, va, pages, writable, flushes);
        });
    }

    fn change_protection_within(&self, process: &Process<W>, va: u64, pages: u64, writable: bool, flushes: bool) {
        self.lock(process, LockAccess::Exclusive);
        let changing = self.change_regions(process, &[va]);
        let end = va + pages * PAGE;
        let (mut next, mut changed) = (va, false);
        while next < end {
            let stop = end.min((next / TABLE_SPAN + 1) * TABLE_SPAN);
            let table = self.hw.borrow().table_at(process.root, next, 1);
            if let Some(table) = table {
                process.table_locks[process.table_index(next)].with(false, || {
                    for page in (next..stop).step_by(PAGE as usize) {
                        let index = table_index(page, 1);
                        let old = self.entry(process, page, table, index);
                        let new = match writable {
                            true => old.with(Entry::WRITE),
                            false => old.without(Entry::WRITE),
                        };
                        // A page that is shared becomes writable by a fault, which copies it.
                        let copies = writable && self.must_copy(old.frame());
                        if !old.is_present() || new == old || copies {
                            continue;
                        }
                        machine::charge(self.costs.unmap_entry);
                        self.store_entry(process, page, table, index, new);
                        changed = true;
                    }
                });
            }
            next = stop;
        }
        if changed && flushes {
            self.flush(process, Range::pages(va, end, Stride::Size4K));
        }
        changing.end();
        self.unlock(process, LockAccess::Exclusive);
    }
}
