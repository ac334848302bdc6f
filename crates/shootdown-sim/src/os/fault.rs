//! Accesses of user code, and their page faults.

use super::System;
use super::category::{self, Category};
use super::entries::entry_key;
use super::process::{PAGE, Process};
use crate::hw::{Access, Entry, Isa, Privilege};
use crate::machine;
use shootdown::{Range, Word};
use std::sync::atomic::Ordering;

impl<const W: usize> System<W> {
    /// Touches `va` as user code of the process that this CPU runs: translates, and handles page faults.
    #[inline]
    pub fn touch(&self, process: &Process<W>, va: u64, access: Access) {
        loop {
            machine::synchronise();
            let result = self
                .hw
                .borrow_mut()
                .translate(machine::cpu(), va, access, Privilege::User, machine::now());
            match result {
                Ok(translation) => {
                    self.take_in_broadcasts();
                    return machine::charge(u64::from(translation.cost) + self.costs.user_access);
                }
                Err(fault) => {
                    self.faults.set(self.faults.get() + 1);
                    let outer = category::enter(Category::Kernel);
                    let entered = self.enter_kernel(process, u64::from(fault.cost), self.costs.fault);
                    self.fault(process, va, access);
                    self.engine.kernel().after_fault(va);
                    self.leave_kernel(process, entered);
                    category::leave(outer);
                }
            }
        }
    }

    /// Page faults of user code so far.
    pub fn faults(&self) -> u64 {
        self.faults.get()
    }

    /// A page fault. On an anonymous mapping: the zero page for a read, a fresh page for a write, a copy of a shared
    /// one.
    fn fault(&self, process: &Process<W>, va: u64, access: Access) {
        let va = va & !(PAGE - 1);
        if !process.files.borrow().is_empty() && self.file_fault(process, va, access) {
            return;
        }
        let held = self.lock_for_fault(process, va);
        let table = self.table_for(process, va);
        let now = self.glance(table, va);
        if now.has(Entry::USER | Entry::WRITE) {
            // Another thread handled it first; or the tables already allowed it, and a stricter translation was left in
            // the TLB. The processor dropped it with the fault.
            return self.unlock_region(process, held);
        }
        let zero = self.hw.borrow().zero_page();
        if access == Access::Write && now.is_present() && now.frame() != zero {
            self.copy_on_write(process, va, table, None);
            return self.unlock_region(process, held);
        }
        let fresh = (access == Access::Write).then(|| {
            machine::charge(self.costs.page_alloc + self.costs.page_zero);
            self.hw.borrow_mut().alloc_data()
        });
        let index = crate::hw::table_index(va, 1);
        let mut used = false;
        process.table_locks[process.table_index(va)].with(false, || {
            let old = self.entry(process, va, table, index);
            let new = match fresh {
                None if old.is_present() => return, // another thread was faster
                None => Entry::page(self.hw.borrow().zero_page()).with(Entry::USER),
                Some(_) if old.is_present() && old.has(Entry::WRITE) => return,
                Some(frame) => Entry::page(frame).with(Entry::USER | Entry::WRITE),
            };
            if old.is_present() {
                // Break before make: the old page must be gone everywhere before the new one is visible anywhere.
                self.store_entry(process, va, table, index, Entry::NONE);
                self.flush(process, Range::page(va));
            } else {
                self.finish_break(process, va);
            }
            machine::charge(self.costs.map_entry);
            self.store_entry(process, va, table, index, new);
            used = true;
        });
        match fresh {
            Some(frame) if used => process.now_resident(self, frame),
            Some(frame) => self.free(frame),
            None => {}
        }
        self.unlock_region(process, held);
    }

    /// Break before make for an entry that is already clear: another CPU may have cleared it without having flushed
    /// yet. Only where the architecture requires it; the others allow both translations until that flush is complete.
    pub(super) fn finish_break(&self, process: &Process<W>, va: u64) {
        if !matches!(self.hw.borrow().config().isa, Isa::Aarch64(_)) {
            return;
        }
        if process.unmapping.load(Ordering::Acquire) > 0 {
            self.flush(process, Range::page(va));
        }
        self.rely_on_batches(process, va);
    }

    /// The entry of the page at `va` as this CPU sees it: a check before taking a lock, free of charge.
    fn glance(&self, table: u32, va: u64) -> Entry {
        let index = crate::hw::table_index(va, 1);
        match machine::pending_other(entry_key(table, index)) {
            Some(pending) => self.stores.borrow()[pending as usize].value,
            None => self.hw.borrow().entry(table, index),
        }
    }
}
