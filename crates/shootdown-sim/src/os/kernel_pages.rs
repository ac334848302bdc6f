//! Dynamic kernel mappings, like Linux's `vmalloc`, reduced to single pages.
//!
//! Owns one lowest-level table of the kernel's half. Each page is mapped and unmapped by one CPU only, so no lock is
//! needed; every CPU may touch every page.

use super::System;
use super::process::PAGE;
use crate::hw::{Access, Entry, Privilege, table_index};
use crate::machine::{self, LineId};
use shootdown::{Range, Stride};
use std::cell::Cell;

/// Their first address.
pub const KERNEL_BASE: u64 = 0xffff_9000_0000_0000;

/// Up to 512 kernel pages.
#[derive(Debug)]
pub struct KernelPages {
    /// The table, unless it was freed.
    table: Cell<Option<u32>>,
    lines: LineId,
}

impl KernelPages {
    fn line(&self, page: u64) -> LineId {
        self.lines.offset(page as usize / 8)
    }
}

impl<const W: usize> System<W> {
    /// The table for kernel pages. Call it once, before the run.
    pub fn kernel_pages(&self) -> KernelPages {
        let mut hw = self.hw.borrow_mut();
        let root = hw.root(0);
        KernelPages {
            table: Cell::new(Some(hw.ensure_table(root, KERNEL_BASE, 1, 0, 0))),
            lines: self.allocate_lines(64),
        }
    }

    /// Maps page `page`, which must not be mapped: globally, unless tags are split.
    pub fn map_kernel(&self, pages: &KernelPages, page: u64) {
        let frame = self.hw.borrow_mut().alloc_data();
        let global = if self.engine.machine().split { 0 } else { Entry::GLOBAL };
        let entry = Entry::page(frame).with(Entry::WRITE | global);
        let table = pages.table.get().unwrap_or_else(|| {
            machine::charge(self.costs.page_alloc + self.costs.page_zero);
            machine::synchronise();
            let mut hw = self.hw.borrow_mut();
            let root = hw.root(0);
            hw.ensure_table(root, KERNEL_BASE, 1, machine::cpu(), machine::now())
        });
        pages.table.set(Some(table));
        self.store_at(pages.line(page), table, page as u32, entry);
    }

    /// Reads page `page` as kernel code; false if it is not mapped.
    pub fn touch_kernel(&self, page: u64) -> bool {
        machine::synchronise();
        let va = KERNEL_BASE + page * PAGE;
        let (cpu, now) = (machine::cpu(), machine::now());
        let result = self
            .hw
            .borrow_mut()
            .translate(cpu, va, Access::Read, Privilege::Kernel, now);
        let cost = result.map_or_else(|fault| fault.cost, |translation| translation.cost);
        machine::charge(u64::from(cost));
        result.is_ok()
    }

    /// Unmaps `count` pages from `first`, all mapped, flushes them everywhere and frees their frames.
    pub fn unmap_kernel(&self, pages: &KernelPages, first: u64, count: u64) {
        machine::drain_stores();
        let mut frames = Vec::new();
        let table = pages.table.get().expect("it holds what is mapped");
        for page in first..first + count {
            let index = table_index(KERNEL_BASE + page * PAGE, 1);
            machine::read_line(pages.line(page));
            frames.push(self.hw.borrow().entry(table, index).frame());
            self.store_at(pages.line(page), table, index, Entry::NONE);
        }
        let start = KERNEL_BASE + first * PAGE;
        self.flush_kernel(Range::pages(start, start + count * PAGE, Stride::Size4K));
        self.free_frames(frames);
    }

    /// Unlinks the table, flushes, and frees it. No page may be mapped, nor be mapped meanwhile.
    pub fn free_kernel_table(&self, pages: &KernelPages) {
        let Some(table) = pages.table.take() else { return };
        let root = self.hw.borrow().root(0);
        let parent = self.hw.borrow().table_at(root, KERNEL_BASE, 2);
        let parent = parent.expect("a table that is linked has a parent");
        self.store_at(pages.line(0), parent, table_index(KERNEL_BASE, 2), Entry::NONE);
        self.flush_kernel(Range::page(KERNEL_BASE).with_tables());
        self.free_table(table);
    }

    /// Flushes kernel addresses, and notifies the oracle of the start and the completion.
    fn flush_kernel(&self, range: Range) {
        let stamp = self.hw.borrow_mut().request_begins(machine::cpu(), machine::now());
        let _done = self.timed(|| self.engine.flush_kernel(range));
        self.hw
            .borrow_mut()
            .completed(0, range.start()..range.end(), stamp, machine::cpu(), machine::now());
    }
}
