//! Fork with copy-on-write, and the effects of exec on a new address space.

use super::System;
use super::lock::Access as LockAccess;
use super::process::{PAGE, Process, TABLE_SPAN, USER_BASE};
use crate::hw::{Access, Entry, table_index};
use crate::machine;
use shootdown::Range;
use std::rc::Rc;

impl<const W: usize> System<W> {
    /// `fork`: a process with the same regions, numbered by the kernel. Anonymous pages, and copies of private file
    /// pages, are shared and write-protected on both sides. Other pages of files are left for the child to fault in, as
    /// in Linux. The parent's whole space is flushed, so that no CPU writes a page that is shared with the child.
    pub fn fork(&self, parent: &Process<W>) -> Rc<Process<W>> {
        self.system_call(parent, self.costs.syscall, || self.fork_within(parent))
    }

    fn fork_within(&self, parent: &Process<W>) -> Rc<Process<W>> {
        self.lock(parent, LockAccess::Exclusive);
        let changing = self.change_all_regions(parent);
        let child = self.process(self.next_number(), parent.table_locks.len() as u64 * TABLE_SPAN);
        child.take_regions_of(self, parent);
        let mut protected = false;
        for span in 0..parent.table_locks.len() as u64 {
            let base = USER_BASE + span * TABLE_SPAN;
            let Some(table) = self.hw.borrow().table_at(parent.root, base, 1) else {
                continue;
            };
            parent.table_locks[span as usize].with(false, || {
                for page in (base..base + TABLE_SPAN).step_by(PAGE as usize) {
                    protected |= self.share_page(parent, &child, table, page);
                }
            });
        }
        if protected {
            self.flush_space(parent);
        }
        changing.end();
        self.unlock(parent, LockAccess::Exclusive);
        child
    }

    /// Shares one page with a child. True when the parent's entry lost its write permission.
    fn share_page(&self, parent: &Process<W>, child: &Process<W>, table: u32, page: u64) -> bool {
        let index = table_index(page, 1);
        let old = self.entry(parent, page, table, index);
        if !old.is_present() || self.is_cached(old.frame()) {
            return false;
        }
        let protect = old.has(Entry::WRITE);
        if protect {
            self.store_entry(parent, page, table, index, old.without(Entry::WRITE));
        }
        if old.frame() != self.hw.borrow().zero_page() {
            self.get_frame(old.frame());
        }
        machine::charge(self.costs.map_entry);
        // No other CPU knows the child: its table needs no lock.
        let table = self.table_for(child, page);
        let entry = Entry::page(old.frame()).with(Entry::USER);
        self.store_entry(child, page, table, index, entry);
        protect
    }

    /// The effects of `exec` on a new address space, on the CPU that has it loaded. The page with the arguments is
    /// written at the top of the region of tables at `from`, then moved to `to`, and its old table is freed. Linux
    /// flushes twice: the page, and everything because a table is freed.
    pub fn exec(&self, process: &Process<W>, from: u64, to: u64) {
        self.map(process, from, PAGE);
        self.touch(process, from, Access::Write);
        self.system_call(process, self.costs.syscall + self.costs.mmap, || {
            self.move_page(process, from, to);
        });
    }

    fn move_page(&self, process: &Process<W>, from: u64, to: u64) {
        self.lock(process, LockAccess::Exclusive);
        let changing = self.change_all_regions(process);
        let source = self.hw.borrow().table_at(process.root, from, 1);
        if let Some(source) = source {
            let target = self.table_for(process, to);
            let moved = process.table_locks[process.table_index(from)].with(false, || {
                let index = table_index(from, 1);
                let old = self.entry(process, from, source, index);
                self.store_entry(process, from, source, index, Entry::NONE);
                self.flush(process, Range::page(from));
                old
            });
            self.store_entry(process, to, target, table_index(to, 1), moved);
            let unused = process.release_table(from);
            let unlinked = unused.then(|| self.unlink(process, from)).flatten();
            self.flush_space(process);
            if let Some(table) = unlinked {
                self.free_table(table);
            }
        }
        changing.end();
        self.unlock(process, LockAccess::Exclusive);
    }
}
