//! Lockless walks of the simulated kernel (GUP-fast in shape), and the freeing of page-table pages that they could
//! hold.
//!
//! A walk reads the tables level by level through charged loads, and takes a reference on the page that the leaf names.
//! It then reads the leaf again, and drops the reference if the leaf has changed. Each page's reference count has its
//! own line. The lifetime of a pinned page is not simulated, so callers must not rely on its contents after the walk.

use super::System;
use super::category::{self, Category};
use super::entries::entry_key;
use super::process::{Process, TABLE_SPAN};
use crate::hw::{Entry, TableLink};
use crate::machine::{self, LineId};
use shootdown::{Grace, Range, Retired, Stride, Walkers};

/// The reference counts of a run of pages, a line each.
#[derive(Debug, Clone, Copy)]
pub struct PageReferences {
    first: LineId,
    va: u64,
}

impl PageReferences {
    fn line(&self, va: u64) -> LineId {
        self.first.offset(((va - self.va) / super::PAGE) as usize)
    }
}

/// A page-table page that is unlinked and flushed, and not yet free.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingTable {
    table: u32,
    /// Its grace period; `None` under the design `ideal`: it waits until no walk holds it.
    until: Option<Grace>,
}

impl<const W: usize> System<W> {
    /// Reference counts for `pages` pages from `va`.
    pub fn page_references(&self, va: u64, pages: u64) -> PageReferences {
        PageReferences {
            first: self.allocate_lines(pages as usize),
            va,
        }
    }

    /// Pins `pages` pages of `process` from `va`, `pages_per_walk` under each walk guard. Each page costs `page_cost`
    /// cycles in addition to the walk. Returns the number of mapped pages; the caller releases them with
    /// [`unpin`](Self::unpin). The process need not be loaded here, and must not end meanwhile.
    pub fn pin(
        &self,
        process: &Process<W>,
        references: PageReferences,
        va: u64,
        pages: u64,
        pages_per_walk: u64,
        page_cost: u64,
    ) -> u64 {
        let outer = category::enter(Category::Kernel);
        let end = va + pages * super::PAGE;
        let mut pinned = 0;
        let mut next = va;
        while next < end {
            let stop = end.min(next + pages_per_walk.max(1) * super::PAGE);
            pinned += self.in_walk(process, || {
                let mut pinned = 0;
                for page in (next..stop).step_by(super::PAGE as usize) {
                    machine::charge(page_cost);
                    pinned += u64::from(self.pin_page(process, references, page));
                }
                pinned
            });
            next = stop;
        }
        category::leave(outer);
        pinned
    }

    /// Runs `body` under a walk guard of `process`.
    pub fn in_walk<T>(&self, process: &Process<W>, body: impl FnOnce() -> T) -> T {
        let walk = self.engine.walk(&process.space);
        let result = self.watched(body);
        drop(walk);
        result
    }

    /// The same in NMI context: for the engine, interrupts stay on if they are; here the NMI holds them back.
    pub fn in_nmi_walk<T>(&self, process: &Process<W>, body: impl FnOnce() -> T) -> T {
        let saved = machine::interrupts_off();
        let walk = self.engine.walk_from_nmi(&process.space);
        let result = self.watched(body);
        drop(walk);
        machine::interrupts_restore(saved);
        result
    }

    /// Notifies the oracle of a walk for the duration of `body`.
    fn watched<T>(&self, body: impl FnOnce() -> T) -> T {
        let cpu = machine::cpu();
        self.hw.borrow_mut().software_walk_begins(cpu, machine::now());
        let result = body();
        self.hw.borrow_mut().software_walk_ends(cpu);
        result
    }

    /// One page of a walk in progress: whether it is mapped. The reference is held when it returns true.
    pub fn pin_page(&self, process: &Process<W>, references: PageReferences, va: u64) -> bool {
        let Some((table, leaf)) = self.walk_to_leaf(process, va) else {
            return false;
        };
        let count = references.line(va);
        machine::modify_line(count);
        if self.walk_read(table, process.entry_line(va), va, 1) == Some(leaf) {
            return true;
        }
        machine::modify_line(count);
        false
    }

    /// Reads the tables of `process` down to the leaf of `va`, within a walk in progress. The leaf's table and entry;
    /// `None` when a level is not mapped.
    pub fn walk_to_leaf(&self, process: &Process<W>, va: u64) -> Option<(TableLink, Entry)> {
        let cpu = machine::cpu();
        // Upper entries are on one line, as `unlink` writes it.
        let upper = machine::line_of(std::ptr::from_ref(&*process.space));
        let mut table = self.hw.borrow_mut().software_root(cpu, process.root, machine::now());
        for level in [4, 3, 2] {
            let entry = self.walk_read(table, upper, va, level)?;
            if !entry.is_present() {
                return None;
            }
            table = self.hw.borrow_mut().software_follow(cpu, entry, machine::now());
        }
        let leaf = self.walk_read(table, process.entry_line(va), va, 1)?;
        leaf.is_present().then_some((table, leaf))
    }

    /// One charged read of a table entry by a walk, this CPU's own buffered store first.
    fn walk_read(&self, table: TableLink, line: LineId, va: u64, level: u32) -> Option<Entry> {
        machine::read_line(line);
        let index = crate::hw::table_index(va, level);
        let read = (self.hw.borrow_mut()).software_read(machine::cpu(), table, va, level, machine::now());
        match machine::pending_other(entry_key(table.frame, index)) {
            Some(pending) => Some(self.stores.borrow()[pending as usize].value),
            None => read,
        }
    }

    /// Drops the references of `pages` pages.
    pub fn unpin(&self, references: PageReferences, va: u64, pages: u64) {
        for page in 0..pages {
            machine::modify_line(references.line(va + page * super::PAGE));
        }
    }

    /// Links `count` page-table pages at `va`, unlinks them again, flushes and frees them as the design requires. This
    /// is the freeing of page-table pages alone, without the address-space lock that would hide its cost. The range is
    /// this CPU's own.
    pub fn free_tables(&self, process: &Process<W>, va: u64, count: u64) {
        let outer = category::enter(Category::Kernel);
        let spans = (0..count).map(|table| va + table * TABLE_SPAN);
        for va in spans.clone() {
            self.table_for(process, va);
        }
        let tables: Vec<_> = spans.filter_map(|va| self.unlink(process, va)).collect();
        let range = Range::pages(va, va + count * TABLE_SPAN, Stride::Size2M);
        self.flush_and_free(process, range, &tables);
        category::leave(outer);
    }

    /// Flushes `range`, whose page-table pages `tables` are unlinked, and frees them: at once, or when their grace is
    /// over.
    pub fn flush_and_free(&self, process: &Process<W>, range: Range, tables: &[u32]) {
        let outer = category::enter(Category::FlushRequester);
        let mut retired = None;
        self.announced(process, range, || {
            retired = Some(self.engine.flush_tables_later(&process.space, range));
        });
        category::leave(outer);
        let ideal = self.settings.ideal && self.engine.policy().walkers != Walkers::None;
        let until = match retired {
            Some(Retired::Later(grace)) => Some(grace),
            _ => None,
        };
        if ideal || until.is_some() {
            let waiting = tables.iter().map(|&table| WaitingTable { table, until });
            self.waiting_tables.borrow_mut().extend(waiting);
            if ideal {
                self.free_waiting_tables();
            }
        } else {
            tables.iter().for_each(|&table| self.free_table(table));
        }
        self.tables_freed.set(self.tables_freed.get() + tables.len() as u64);
    }

    /// Flushes `range`, whose page-table pages are unlinked, so that they may be reused at once.
    pub fn flush_for_reuse(&self, process: &Process<W>, range: Range) {
        let outer = category::enter(Category::FlushRequester);
        self.announced(process, range, || {
            let flushed = self.engine.flush(&process.space, range.with_tables());
            let _free = self.engine.retire_tables(&process.space, &flushed);
        });
        category::leave(outer);
    }

    /// Frees the page-table pages whose grace period is over. For CPUs that free tables, at their ticks, since the
    /// check reads a line of every CPU.
    pub fn free_waiting_tables(&self) {
        if self.waiting_tables.borrow().is_empty() {
            return;
        }
        // Freeing takes time, in which other CPUs come here too: each takes one page at a time off the list.
        let over = self.engine.graces_over();
        loop {
            let free = |waiting: &WaitingTable| match waiting.until {
                Some(grace) => over.proof(grace).is_some(),
                None => !self.hw.borrow().software_holds(waiting.table),
            };
            if !self.waiting_tables.borrow().front().is_some_and(free) {
                return;
            }
            let Some(waiting) = self.waiting_tables.borrow_mut().pop_front() else {
                return;
            };
            self.free_table(waiting.table);
        }
    }

    /// The timer's tick on this CPU, which reports that it is in no walk.
    pub fn tick(&self) {
        let saved = machine::interrupts_off();
        self.engine.tick();
        machine::interrupts_restore(saved);
    }

    /// Table pages passed to [`flush_and_free`](Self::flush_and_free) so far, those that still wait included.
    pub fn tables_freed(&self) -> u64 {
        self.tables_freed.get()
    }

    /// Table pages that wait for their grace period.
    pub fn tables_waiting(&self) -> usize {
        self.waiting_tables.borrow().len()
    }
}
