//! A process of the simulated kernel: its page tables, its address-space lock, page faults and the memory system calls.
//!
//! Shaped like Linux's: faults and `madvise` hold the address-space lock shared, `mmap` and `munmap` exclusive; a spinlock
//! protects each lowest-level table; `munmap` takes the region off the list exclusively and goes on shared, as Linux does
//! since 4.20, unless a table is freed; flushes come after the entries are cleared and before frames are freed. Every flush
//! is announced to the oracle when it begins and when it is said to be complete.

use super::System;
use super::category::{self, Category};
use super::lock::{Access as LockAccess, SpinLock};
use super::mapping::FileRegion;
use super::rwsem::{SleepCosts, SleepLock};
use crate::hw::{Access, Entry, Privilege};
use crate::machine::{self, LineId, Shared, SimWord, SimWorld};
use crate::timeline::{What, note};
use shootdown::{Order, Range, Root, Space, Stride, Targets, Word};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Where user regions begin.
pub const USER_BASE: u64 = 0x7f00_0000_0000;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Bytes that one lowest-level table maps.
pub(super) const TABLE_SPAN: u64 = 2 << 20;

/// A process.
pub struct Process<const W: usize> {
    /// The engine's view.
    pub space: Shared<Space<SimWorld, W>>,
    /// Number of the space in the hardware and the oracle.
    pub number: u32,
    pub(super) root: u32,
    /// Address-space lock.
    lock: Rc<SleepLock>,
    /// One per lowest-level table, by position.
    pub(super) table_locks: Rc<[SpinLock]>,
    table_lines: LineId,
    /// How many mapped regions use each lowest-level table.
    table_users: RefCell<Vec<u32>>,
    /// Counts unmaps under way in the process; Linux raises and lowers `mm->tlb_flush_pending` around each.
    unmapping: Shared<SimWord>,
    /// Regions that files back.
    pub(super) files: RefCell<Vec<FileRegion>>,
    /// Counter that every unmap of a frame updates now and then: resident pages, per CPU in practice, so free of cost.
    resident: Cell<i64>,
}

/// The kernel's own memory for a process. It is free of holders and waiters when the process ends, and serves the next one,
/// as slab caches have it.
pub(super) struct Memory {
    lock: Rc<SleepLock>,
    pub(super) table_locks: Rc<[SpinLock]>,
    table_lines: LineId,
    unmapping: Shared<SimWord>,
}

impl<const W: usize> Process<W> {
    /// A process whose regions lie within `bytes` from [`USER_BASE`].
    pub(super) fn new(system: &System<W>, number: u32, bytes: u64) -> Self {
        let tables = bytes.div_ceil(TABLE_SPAN).max(1) as usize;
        let root = system.hw.borrow_mut().new_space(number);
        system.engine.kernel().know(root, number);
        system.numbers.set(system.numbers.get().max(number));
        let space = system.place_space(system.engine.space(Root(u64::from(root))));
        let Memory {
            lock,
            table_locks,
            table_lines,
            unmapping,
        } = system.spare_memory(tables).unwrap_or_else(|| Memory {
            lock: Rc::new(SleepLock::new(
                system.machine(),
                system.spin_nodes.clone(),
                SleepCosts {
                    wake: system.costs.wake,
                    wake_latency: system.costs.wake_latency,
                    microsecond: system.costs.microsecond,
                },
                system
                    .scheduler
                    .get()
                    .map(|scheduler| Box::new(scheduler.clone()) as Box<_>),
                system.preemption.clone(),
            )),
            table_locks: (0..tables)
                .map(|_| SpinLock::new(system.machine(), system.spin_nodes.clone(), system.preemption.clone()))
                .collect(),
            table_lines: system.allocate_lines(tables * 64),
            unmapping: system.allocate(SimWord::new(0)),
        });
        Process {
            space,
            number,
            root,
            lock,
            table_locks,
            table_lines,
            table_users: RefCell::new(vec![0; tables]),
            unmapping,
            files: RefCell::default(),
            resident: Cell::new(0),
        }
    }

    /// What of a process that ends a later one can have.
    pub(super) fn memory(&self) -> Memory {
        Memory {
            lock: self.lock.clone(),
            table_locks: self.table_locks.clone(),
            table_lines: self.table_lines,
            unmapping: self.unmapping.clone(),
        }
    }

    /// As a forked process begins.
    pub(super) fn take_regions_of(&self, parent: &Process<W>) {
        *self.files.borrow_mut() = parent.files.borrow().clone();
        *self.table_users.borrow_mut() = parent.table_users.borrow().clone();
        self.resident.set(parent.resident.get());
    }

    /// A page that was written for the first time is accounted for.
    pub(super) fn now_resident(&self, system: &System<W>) {
        self.resident.set(self.resident.get() + 1);
        system.lru_add();
    }

    /// A region gives up the lowest-level table at `va`. True when no other region uses it.
    pub(super) fn release_table(&self, va: u64) -> bool {
        let users = &mut self.table_users.borrow_mut()[self.table_index(va)];
        *users -= 1;
        *users == 0
    }

    pub(super) fn table_index(&self, va: u64) -> usize {
        ((va - USER_BASE) / TABLE_SPAN) as usize
    }

    /// Line of the entry for `va` in its lowest-level table.
    pub(super) fn entry_line(&self, va: u64) -> LineId {
        self.table_lines
            .offset(self.table_index(va) * 64 + (va / PAGE % 512 / 8) as usize)
    }

    /// Pages resident now.
    pub fn resident(&self) -> i64 {
        self.resident.get()
    }
}

impl<const W: usize> System<W> {
    /// Touches `va` as user code of the process that this CPU runs: translates, takes the faults that come up.
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
                    return machine::charge(u64::from(translation.cost) + self.costs.user_access);
                }
                Err(fault) => {
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

    /// A page fault. On an anonymous mapping: the zero page for a read, a fresh page for a write, a copy of a shared one.
    fn fault(&self, process: &Process<W>, va: u64, access: Access) {
        let va = va & !(PAGE - 1);
        if !process.files.borrow().is_empty() && self.file_fault(process, va, access) {
            return;
        }
        self.lock(process, LockAccess::Shared);
        let table = self.table_for(process, va);
        if access == Access::Write && self.is_protected(table, va) {
            self.copy_on_write(process, va, table, None);
            return self.unlock(process, LockAccess::Shared);
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
                None if old.is_present() => return, // somebody was faster
                None => Entry::page(self.hw.borrow().zero_page()).with(Entry::USER),
                Some(_) if old.is_present() && old.has(Entry::WRITE) => return,
                Some(frame) => Entry::page(frame).with(Entry::USER | Entry::WRITE),
            };
            if old.is_present() {
                // Break before make: the old page must be gone everywhere before the new one is seen anywhere.
                self.store_entry(process, va, table, index, Entry::NONE);
                self.flush(process, Range::page(va));
            }
            machine::charge(self.costs.map_entry);
            self.store_entry(process, va, table, index, new);
            used = true;
        });
        match fresh {
            Some(_) if used => {
                process.now_resident(self);
            }
            Some(frame) => self.free(frame),
            None => {}
        }
        self.unlock(process, LockAccess::Shared);
    }

    /// Whether a page other than the zero page is mapped read-only: a look before the lock is taken, free of charge.
    fn is_protected(&self, table: u32, va: u64) -> bool {
        let index = crate::hw::table_index(va, 1);
        let entry = match machine::pending_other(entry_key(table, index)) {
            Some(pending) => self.stores.borrow()[pending as usize].value,
            None => self.hw.borrow().entry(table, index),
        };
        entry.is_present() && !entry.has(Entry::WRITE) && entry.frame() != self.hw.borrow().zero_page()
    }

    /// `madvise(MADV_DONTNEED)` of `pages` pages at `va`.
    pub fn drop_pages(&self, process: &Process<W>, va: u64, pages: u64) {
        let outer = category::enter(Category::Kernel);
        let entered = self.enter_kernel(process, 0, self.costs.syscall + self.costs.madvise);
        self.drop_pages_within(process, va, pages);
        self.leave_kernel(process, entered);
        category::leave(outer);
    }

    fn drop_pages_within(&self, process: &Process<W>, va: u64, pages: u64) {
        self.lock(process, LockAccess::Shared);
        if self.settings.lru_drain {
            self.lru_drain();
        }
        process.unmapping.fetch_add_full(1);
        let (frames, cleared) = self.clear(process, va, pages);
        if cleared && self.unlocks_early() {
            self.flush_unlocking(process, Range::pages(va, va + pages * PAGE, Stride::Size4K), || {
                self.unlock(process, LockAccess::Shared);
            });
            frames.into_iter().for_each(|frame| self.free(frame));
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
        let outer = category::enter(Category::Kernel);
        let entered = self.enter_kernel(process, 0, self.costs.syscall + self.costs.mmap);
        self.lock(process, LockAccess::Exclusive);
        for table in process.table_index(va)..=process.table_index(va + bytes - 1) {
            process.table_users.borrow_mut()[table] += 1;
        }
        self.unlock(process, LockAccess::Exclusive);
        self.leave_kernel(process, entered);
        category::leave(outer);
    }

    /// `munmap` of a whole region, freeing the tables that no other region needs.
    pub fn unmap(&self, process: &Process<W>, va: u64, bytes: u64) {
        let outer = category::enter(Category::Kernel);
        let entered = self.enter_kernel(process, 0, self.costs.syscall + self.costs.munmap);
        self.unmap_within(process, va, bytes);
        self.leave_kernel(process, entered);
        category::leave(outer);
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
        } else if cleared && self.unlocks_early() {
            self.flush_unlocking(process, range, || self.unlock(process, access));
            frames.into_iter().for_each(|frame| self.free(frame));
            process.unmapping.fetch_add_full(u64::MAX);
            return;
        } else if cleared || self.another_unmaps(process) {
            self.flush(process, range);
        }
        frames.into_iter().for_each(|frame| self.free(frame));
        process.unmapping.fetch_add_full(u64::MAX);
        self.unlock(process, access);
    }

    /// Clears the entries of `pages` pages. Returns the frames that are no longer mapped, and whether any entry was.
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
                    for page in (next..stop).step_by(PAGE as usize) {
                        let index = crate::hw::table_index(page, 1);
                        let old = self.entry(process, page, table, index);
                        if !old.is_present() {
                            continue;
                        }
                        machine::charge(self.costs.unmap_entry);
                        self.store_entry(process, page, table, index, Entry::NONE);
                        cleared = true;
                        if old.frame() != zero_page {
                            frames.push(old.frame());
                        }
                    }
                });
            }
            next = stop;
        }
        (frames, cleared)
    }

    /// Clears the entries of `pages` pages and does nothing else: flushing, and only then giving the returned frames to
    /// [`free_frames`](Self::free_frames), is left to the caller.
    pub fn withdraw(&self, process: &Process<W>, va: u64, pages: u64) -> Vec<u32> {
        self.clear(process, va, pages).0
    }

    /// Frees frames that [`withdraw`](Self::withdraw) returned.
    pub fn free_frames(&self, frames: Vec<u32>) {
        frames.into_iter().for_each(|frame| self.free(frame));
    }

    /// Frees a table that is linked nowhere.
    pub fn free_table(&self, table: u32) {
        machine::charge(self.costs.page_free);
        self.hw.borrow_mut().free_table(table, machine::cpu(), machine::now());
    }

    /// Takes the lowest-level table at `va` out of its parent; it is for the caller to flush, and then to
    /// [`free_table`](Self::free_table) it.
    pub fn unlink(&self, process: &Process<W>, va: u64) -> Option<u32> {
        let (table, parent) = {
            let hw = self.hw.borrow();
            (hw.table_at(process.root, va, 1)?, hw.table_at(process.root, va, 2)?)
        };
        let line = machine::line_of(std::ptr::from_ref(&*process.space));
        self.store_at(line, parent, crate::hw::table_index(va, 2), Entry::NONE);
        Some(table)
    }

    /// The lowest-level table for `va`, made if it is missing.
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

    /// Gives up a reference to a frame; the last one frees it.
    pub(super) fn free(&self, frame: u32) {
        machine::charge(self.costs.page_free);
        if self.put_shared(frame) {
            return;
        }
        self.hw.borrow_mut().free_data(frame, machine::cpu(), machine::now());
    }

    /// Flushes, and tells the oracle when it began and when it was said to be complete.
    pub fn flush(&self, process: &Process<W>, range: Range) {
        let outer = category::enter(Category::FlushRequester);
        self.announced(process, range, || {
            let _done = self.engine.flush(&process.space, range);
        });
        category::leave(outer);
    }

    /// Runs `flush`, and tells the oracle when it began and when it was said to be complete.
    pub(super) fn announced(&self, process: &Process<W>, range: Range, flush: impl FnOnce()) {
        let stamp = self.hw.borrow_mut().request_begins(machine::cpu(), machine::now());
        let begun = machine::now();
        note(|| What::FlushBegins);
        flush();
        self.flush_ended(begun);
        if self.settings.ideal {
            machine::drain_stores();
            self.hw
                .borrow_mut()
                .perfect_invalidate(machine::cpu(), process.number, range.start()..range.end());
        }
        self.hw.borrow_mut().completed(
            process.number,
            range.start()..range.end(),
            stamp,
            machine::cpu(),
            machine::now(),
        );
    }

    /// User code of `process` enters the kernel, which touches no user address before [`leave_kernel`](Self::leave_kernel).
    /// Charges `before`, and the entry, the work and the exit that `cost` sums up. Where the design has a use for it the
    /// engine is told after the entry, for which half a null system call is taken.
    pub(super) fn enter_kernel(&self, process: &Process<W>, before: u64, cost: u64) -> bool {
        if self.engine.design().targets != Targets::InUser {
            machine::charge(before + cost);
            return false;
        }
        let entry = (self.costs.syscall / 2).min(cost);
        machine::charge(before + entry);
        let entered = self.tell_entered(process);
        machine::charge(cost - entry);
        entered
    }

    fn tell_entered(&self, process: &Process<W>) -> bool {
        if self.hw.borrow().is_lazy(machine::cpu()) {
            return false;
        }
        // The promise first: a request may skip this CPU as soon as the engine says so.
        self.hw.borrow_mut().set_lazy(machine::cpu(), true);
        let entered = self.engine.enter_kernel(&process.space);
        if !entered {
            self.now_in_user();
        }
        entered
    }

    pub(super) fn leave_kernel(&self, process: &Process<W>, entered: bool) {
        if entered {
            self.resume(process);
        }
    }

    /// Whether the address-space lock is let go of before the flush is complete. The design's own interface allows it, where
    /// asking and waiting are apart; frames stay until the proof is there, and who finds an entry clear looks whether
    /// somebody still flushes it ([`another_unmaps`](Self::another_unmaps)).
    fn unlocks_early(&self) -> bool {
        self.engine.design().order == Order::Concurrent && !self.settings.lru_drain
    }

    /// After entries were found clear: whether an unmap that may have cleared them is still under way (bug 34). Linux asks
    /// the same of its `tlb_flush_pending`.
    fn another_unmaps(&self, process: &Process<W>) -> bool {
        process.unmapping.load(Ordering::Acquire) > 1
    }

    /// A flush that began at `begun` is complete: for the timeline, the distributions and the diary.
    fn flush_ended(&self, begun: u64) {
        note(|| What::FlushEnds);
        let took = machine::now().saturating_sub(begun);
        self.preemption.latencies.flush.record(took);
        self.engine.kernel().flush_took(begun);
    }

    /// As [`flush`](Self::flush), calling `unlock` while it is under way.
    fn flush_unlocking(&self, process: &Process<W>, range: Range, unlock: impl FnOnce()) {
        let outer = category::enter(Category::FlushRequester);
        let begun = machine::now();
        let stamp = self.hw.borrow_mut().request_begins(machine::cpu(), begun);
        note(|| What::FlushBegins);
        let (_done, ()) = self.engine.flush_while(&process.space, range, || {
            category::leave(outer);
            unlock();
            category::enter(Category::FlushRequester);
        });
        self.flush_ended(begun);
        let (cpu, now) = (machine::cpu(), machine::now());
        let mut hw = self.hw.borrow_mut();
        hw.completed(process.number, range.start()..range.end(), stamp, cpu, now);
        drop(hw);
        category::leave(outer);
    }

    pub(super) fn lock(&self, process: &Process<W>, access: LockAccess) {
        process.lock.lock(access, || self.block(process));
    }

    pub(super) fn unlock(&self, process: &Process<W>, access: LockAccess) {
        process.lock.unlock(access);
    }

    /// Puts this thread to sleep until it is woken: the CPU idles, lazily on the thread's space, or runs another thread.
    pub fn block(&self, process: &Process<W>) {
        if let Some(scheduler) = self.scheduler.get() {
            return scheduler.sleep();
        }
        machine::charge(self.costs.sleep);
        self.go_lazy();
        let outer = category::enter(Category::Idle);
        machine::sleep();
        category::leave(outer);
        machine::charge(self.costs.switch);
        self.resume(process);
    }
}

pub(super) fn entry_key(table: u32, index: u32) -> u64 {
    u64::from(table) << 9 | u64::from(index)
}

/// Runs `body` on this CPU as a thread of `process`.
pub fn run_thread<const W: usize>(system: &Rc<System<W>>, process: &Rc<Process<W>>, body: impl FnOnce()) {
    system.load(process);
    body();
    system.unload();
}
