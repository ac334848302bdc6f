//! Backing of a region: none (anonymous memory), or a file, privately or shared; and faults on files.
//!
//! Shaped after Linux. A read fault maps the cached pages around the address too, read-only; a write to a private
//! mapping gets a copy; the first write to a page of a shared mapping faults, so that the file system is notified.

use super::System;
use super::process::{FileRegion, PAGE, Process};
use super::region_lock::RegionLock;
use super::share::File;
use crate::hw::{Access, Entry, table_index};
use crate::machine;
use shootdown::Range;
use std::rc::Rc;

/// Pages that a read fault on a file maps, the aligned block around the address: Linux's `fault_around_bytes` of 64
/// KiB.
const FAULT_AROUND: u64 = 16;

/// Kind of a file mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Writes go to a copy.
    Private,
    /// Writes go to the file. Entries begin write-protected, so that the first write to each page is noticed (dirty
    /// tracking). Dropping a dirty page flushes under the lock of its table. `notify_flushes`: when a write makes the
    /// entry writable, the old one is flushed. Linux's generic code does so where an architecture does not rely on
    /// spurious faults (x86 does).
    Shared {
        /// Whether the noticed write flushes.
        notify_flushes: bool,
    },
}

impl<const W: usize> System<W> {
    /// `mmap` of a file from its first page.
    pub fn map_file(&self, process: &Process<W>, va: u64, bytes: u64, file: &Rc<File>, mapping: Mapping) {
        self.map_region(process, va, bytes, &[]);
        process.files.borrow_mut().push(FileRegion {
            start: va,
            end: va + bytes,
            file: file.clone(),
            shared: mapping != Mapping::Private,
            notify_flushes: mapping == Mapping::Shared { notify_flushes: true },
            lock: RegionLock::new(self.machine()),
        });
    }

    /// A page fault on a mapped file; false when `va` is not in one.
    pub(super) fn file_fault(&self, process: &Process<W>, va: u64, access: Access) -> bool {
        let region = {
            let files = process.files.borrow();
            let Some(region) = files.iter().find(|region| region.covers(va)) else {
                return false;
            };
            region.clone()
        };
        let held = self.lock_for_fault(process, va);
        match access {
            Access::Read => self.map_around(process, &region, va),
            Access::Write if region.shared => self.write_shared(process, &region, va),
            Access::Write => self.write_private(process, &region, va),
        }
        self.unlock_region(process, held);
        true
    }

    /// Maps the cached pages of the block around `va` that are not mapped.
    fn map_around(&self, process: &Process<W>, region: &FileRegion, va: u64) {
        let table = self.table_for(process, va);
        let first = (va & !(FAULT_AROUND * PAGE - 1)).max(region.start);
        let end = (first + FAULT_AROUND * PAGE).min(region.end);
        process.table_locks[process.table_index(va)].with(false, || {
            machine::charge(self.costs.around_page * ((end - first) / PAGE));
            for page in (first..end).step_by(PAGE as usize) {
                let index = table_index(page, 1);
                if !self.entry(process, page, table, index).is_present() {
                    let frame = region.file.frame(self, (page - region.start) / PAGE);
                    self.finish_break(process, page);
                    self.get_frame(frame);
                    machine::charge(self.costs.map_entry);
                    self.store_entry(process, page, table, index, Entry::page(frame).with(Entry::USER));
                }
            }
        });
    }

    /// The file system is notified of the write; then the entry becomes writable in place.
    fn write_shared(&self, process: &Process<W>, region: &FileRegion, va: u64) {
        let table = self.table_for(process, va);
        let index = table_index(va, 1);
        process.table_locks[process.table_index(va)].with(false, || {
            let old = self.entry(process, va, table, index);
            if old.is_present() && old.has(Entry::WRITE) {
                return;
            }
            let frame = region.file.frame(self, (va - region.start) / PAGE);
            if !old.is_present() {
                self.finish_break(process, va);
                self.get_frame(frame);
            }
            machine::charge(self.costs.map_entry);
            let new = Entry::page(frame).with(Entry::USER | Entry::WRITE);
            self.store_entry(process, va, table, index, new);
            if old.is_present() && region.notify_flushes {
                self.flush(process, Range::page(va));
            }
        });
    }

    /// A copy takes the cached page's place.
    fn write_private(&self, process: &Process<W>, region: &FileRegion, va: u64) {
        let table = self.table_for(process, va);
        let cached = region.file.frame(self, (va - region.start) / PAGE);
        self.copy_on_write(process, va, table, Some(cached));
    }

    /// A write to a page that must be copied first: `absent` is the source when nothing is mapped. Called with the
    /// address-space lock held.
    pub(super) fn copy_on_write(&self, process: &Process<W>, va: u64, table: u32, absent: Option<u32>) {
        // Reading the old page takes about as long as writing the new one, which is the cost of clearing.
        machine::charge(self.costs.page_alloc + 2 * self.costs.page_zero);
        let copy = self.hw.borrow_mut().alloc_data();
        let index = table_index(va, 1);
        let (mut used, mut replaced) = (false, None);
        process.table_locks[process.table_index(va)].with(false, || {
            let old = self.entry(process, va, table, index);
            if old.is_present() && old.has(Entry::WRITE) || !old.is_present() && absent.is_none() {
                return; // another thread was faster
            }
            if old.is_present() && !self.must_copy(old.frame()) {
                // The last owner may write the page. More is allowed than before, so nothing is flushed.
                machine::charge(self.costs.map_entry);
                return self.store_entry(process, va, table, index, old.with(Entry::WRITE));
            }
            if old.is_present() {
                self.store_entry(process, va, table, index, Entry::NONE);
                self.flush(process, Range::page(va));
                replaced = Some(old.frame());
            } else {
                self.finish_break(process, va);
            }
            machine::charge(self.costs.map_entry);
            let new = Entry::page(copy).with(Entry::USER | Entry::WRITE);
            self.store_entry(process, va, table, index, new);
            used = true;
        });
        // Flushed above: no CPU of this process reads the old page through this address any longer (C2).
        let zero_page = self.hw.borrow().zero_page();
        if let Some(frame) = replaced.filter(|&frame| frame != zero_page) {
            self.free_frames(vec![frame]);
        }
        match used {
            true => process.now_resident(self, copy),
            false => self.free(copy),
        }
    }

    /// Removes the file backing of an unmapped region.
    pub(super) fn forget_file(&self, process: &Process<W>, va: u64) {
        process.files.borrow_mut().retain(|region| region.start != va);
    }
}
