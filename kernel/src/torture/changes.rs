//! Steps that change tables, and notify the oracle before and after.

use super::oracle::State;
use super::process::{self, LARGE, PAGES, Process, TABLES};
use super::traffic::{Done, Traffic};
use crate::arch::format::{self, Entry};
use crate::arch::interrupts::without_interrupts;
use crate::engine;
use crate::frames::{self, FrameList};
use crate::memory::{Frame, LARGE_PAGE, PAGE};
use crate::paging;
use crate::region::Access;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown::{Range, Retired, Stride};

impl Traffic {
    /// Maps up to three pages that are absent.
    pub(super) fn map(&mut self, process: &Process) {
        let first = self.below(TABLES * PAGES);
        let count = 1 + self.below(5);
        let links = process.links.read();
        for index in first..(first + count).min(TABLES * PAGES) {
            let page = process.page(index);
            let Some(before) = page.claim(&[State::Absent]) else {
                continue;
            };
            let address = process::address(index);
            let mapped = process.table_or_new(address).and_then(|table| {
                let frame = process::take_frame(page.stamp(page.word().serial()))?;
                let entry = Entry::page(frame, Access::data(true));
                paging::place(table, address, 1).store(entry.0, Ordering::Release);
                format::publish();
                Some(())
            });
            match mapped {
                Some(()) => page.settle(State::Writable),
                None => page.give_up(before),
            }
            self.note(Done::Maps);
        }
        drop(links);
    }

    /// Claims the mapped pages of `first..end` and clears their entries; returns the indices and frames.
    fn clear(&self, process: &Process, first: u64, end: u64) -> Vec<(u64, Frame)> {
        let mut cleared = Vec::new();
        for index in first..end {
            if process.page(index).claim(&Self::MAPPED).is_none() {
                continue;
            }
            let address = process::address(index);
            let table = Entry(process.link(address).load(Ordering::Acquire)).frame();
            let entry = Entry(paging::place(table, address, 1).swap(0, Ordering::AcqRel));
            cleared.push((index, entry.frame()));
        }
        cleared
    }

    /// Notifies the oracle that the pages are gone, and frees their frames.
    fn free_pages(process: &Process, cleared: Vec<(u64, Frame)>) {
        for &(index, _) in &cleared {
            process.page(index).settle(State::Absent);
        }
        for (_, frame) in cleared {
            process::free_frame(frame);
        }
    }

    /// Unmaps some adjacent pages, occasionally across tables and above the ceiling.
    pub(super) fn unmap(&mut self, process: &Process) {
        let (first, count) = match self.one_in(6) {
            true => (self.below(TABLES - 1) * PAGES, 2 * PAGES),
            false => (self.below(TABLES * PAGES), 1 + self.below(4)),
        };
        let end = (first + count).min(TABLES * PAGES);
        let way = self.below(4);
        let links = process.links.read();
        let cleared = self.clear(process, first, end);
        drop(links);
        let (Some(&(from, _)), Some(&(to, _))) = (cleared.first(), cleared.last()) else {
            return;
        };
        self.note(Done::Unmaps);
        let range = Range::pages(process::address(from), process::address(to) + PAGE, Stride::Size4K);
        let engine = engine();
        match way {
            0 => {
                let token = engine.dispatch(&process.space, range);
                self.pause(2);
                let _flushed = token.wait();
            }
            1 => {
                let (_flushed, ()) = engine.flush_while(&process.space, range, || ());
            }
            2 => {
                // A waiter serves requests, even so (C5).
                let _flushed = without_interrupts(|| engine.flush(&process.space, range));
            }
            _ => {
                let _flushed = engine.flush(&process.space, range);
            }
        }
        Self::free_pages(process, cleared);
    }

    /// Removes write permission, or restores it.
    pub(super) fn protect(&mut self, process: &Process) {
        let index = self.below(TABLES * PAGES);
        let (page, address) = (process.page(index), process::address(index));
        let links = process.links.read();
        let Some(before) = page.claim(&Self::MAPPED) else {
            return;
        };
        self.note(Done::Protections);
        let table = Entry(process.link(address).load(Ordering::Acquire)).frame();
        let place = paging::place(table, address, 1);
        if before.state() == State::ReadOnly {
            drop(links);
            return self.allow_writes(process, index, place);
        }
        format::forbid_writes(place);
        drop(links);
        let _flushed = engine().flush(&process.space, Range::page(address));
        page.settle(State::ReadOnly);
    }

    /// Removes the write permission of all pages with one flush of the whole space, as a fork does.
    pub(super) fn protect_all(&mut self, process: &Process) {
        let mut claimed = Vec::new();
        let links = process.links.read();
        for index in 0..TABLES * PAGES {
            if process.page(index).claim(&[State::Writable]).is_some() {
                let address = process::address(index);
                let table = Entry(process.link(address).load(Ordering::Acquire)).frame();
                format::forbid_writes(paging::place(table, address, 1));
                claimed.push(index);
            }
        }
        drop(links);
        if claimed.is_empty() {
            return;
        }
        self.note(Done::Protections);
        let _flushed = engine().flush(&process.space, Range::WHOLE);
        claimed
            .into_iter()
            .for_each(|index| process.page(index).settle(State::ReadOnly));
    }

    /// Maps a large page, splits it, or unmaps it.
    pub(super) fn large(&mut self, process: &Process) {
        let index = TABLES * PAGES + self.below(LARGE);
        let (page, address) = (process.page(index), process::address(index));
        let place = process.link(address);
        if let Some(before) = page.claim(&[State::Absent]) {
            let Some(frame) = frames::allocate_large() else {
                return page.give_up(before);
            };
            super::oracle::take(frame, page.stamp(page.word().serial()), false);
            let entry = Entry::large_page(frame);
            place.store(entry.0, Ordering::Release);
            format::publish();
            page.settle(State::Writable);
        } else if page.claim(&Self::MAPPED).is_some() {
            let entry = Entry(place.load(Ordering::Acquire));
            if !entry.is_large() {
                return self.unmap_split(process, index, place);
            }
            if self.one_in(2) {
                return self.split(process, index, place);
            }
            self.note(Done::LargePages);
            let entry = Entry(place.swap(0, Ordering::AcqRel));
            let range = Range::pages(address, address + LARGE_PAGE, Stride::Size2M);
            let _flushed = engine().flush(&process.space, range);
            page.settle(State::Absent);
            super::oracle::poison(entry.frame());
            frames::free_large(entry.frame());
        }
    }

    /// Replaces a claimed large page by a table of small ones: the same memory, but the first is a copy in another
    /// frame, so that a translation by the large page shows. Break before make.
    fn split(&mut self, process: &Process, index: u64, place: &AtomicU64) {
        let (page, address) = (process.page(index), process::address(index));
        let Some(table) = frames::allocate_zeroed() else {
            return page.settle(State::Writable);
        };
        let Some(copy) = process::take_frame(page.stamp(page.word().serial() + 1)) else {
            frames::free(table);
            return page.settle(State::Writable);
        };
        self.note(Done::Splits);
        let large = Entry(place.swap(0, Ordering::AcqRel)).frame();
        let range = Range::pages(address, address + LARGE_PAGE, Stride::Size2M);
        let _flushed = engine().flush(&process.space, range);
        page.next_mapping();
        super::oracle::poison(large);
        for (small, entry) in (0..).zip(table.words()) {
            let frame = if small == 0 { copy } else { Frame(large.0 + small) };
            entry.store(Entry::page(frame, Access::data(true)).0, Ordering::Relaxed);
        }
        place.store(Entry::table(table).0, Ordering::Release);
        format::publish();
        page.settle(State::Writable);
    }

    /// Unmaps a claimed large page that was split.
    fn unmap_split(&mut self, process: &Process, index: u64, place: &AtomicU64) {
        let address = process::address(index);
        let table = Entry(place.swap(0, Ordering::AcqRel)).frame();
        let range = Range::pages(address, address + LARGE_PAGE, Stride::Size4K);
        engine().flush_pending(&process.space);
        let proof = engine().flush_tables(&process.space, range);
        process.page(index).settle(State::Absent);
        process::free_split_pages(table);
        self.free_proved(&proof, table, FrameList::EMPTY);
    }

    /// Unlinks a table and frees it with all its pages.
    pub(super) fn free_table(&mut self, process: &Process) {
        let table = self.below(TABLES);
        self.free_tables(process, table..table + 1);
    }

    /// Frees all tables and their pages at once, as exec does.
    pub(super) fn exec(&mut self, process: &Process) {
        self.note(Done::Execs);
        self.free_tables(process, 0..TABLES);
    }

    fn free_tables(&mut self, process: &Process, tables: core::ops::Range<u64>) {
        let way = self.below(3);
        let (mut unlinked, mut kept) = (Vec::new(), Vec::new());
        let links = process.links.write();
        for first in tables.clone().map(|table| table * PAGES) {
            let place = process.link(process::address(first));
            let link = Entry(place.load(Ordering::Acquire));
            if !link.is_present() {
                continue;
            }
            let mut cleared = self.clear(process, first, first + PAGES);
            // Pages that another CPU is changing: the table stays.
            let is_empty = (first..first + PAGES).all(|index| {
                let state = process.page(index).word().state();
                state == State::Absent || cleared.iter().any(|&(own, _)| own == index)
            });
            if is_empty {
                place.store(0, Ordering::Release);
                unlinked.push((link.frame(), cleared));
            } else {
                kept.append(&mut cleared);
            }
        }
        drop(links);
        let [start, end] = [tables.start, tables.end].map(|table| process::address(table * PAGES));
        let range = Range::pages(start, end, Stride::Size4K);
        let engine = engine();
        if unlinked.is_empty() {
            let _flushed = engine.flush(&process.space, range);
            return Self::free_pages(process, kept);
        }
        engine.flush_pending(&process.space);
        let retired = match way {
            0 => Retired::Now(engine.flush_tables(&process.space, range)),
            1 => {
                let flushed = engine.flush(&process.space, range.with_tables());
                Retired::Now(engine.retire_tables(&process.space, &flushed))
            }
            _ => engine.flush_tables_later(&process.space, range),
        };
        Self::free_pages(process, kept);
        for (table, cleared) in unlinked {
            let frames = Self::forget_pages(process, cleared);
            match &retired {
                Retired::Now(proof) => self.free_proved(proof, table, frames),
                Retired::Later(grace) => self.waiting.push_back((*grace, table, frames)),
            }
        }
    }

    /// Notifies the oracle that the pages are gone; their frames are freed with the table.
    fn forget_pages(process: &Process, cleared: Vec<(u64, Frame)>) -> FrameList {
        let mut frames = FrameList::EMPTY;
        for (index, frame) in cleared {
            process.page(index).settle(State::Absent);
            if process::drop_reference(frame) {
                frames.push(frame);
            }
        }
        frames
    }

    /// A write to a page has failed: if the page is read-only, it becomes writable.
    pub(super) fn write_fault(&mut self, process: &Process, index: u64) {
        let links = process.links.read();
        if process.page(index).claim(&[State::ReadOnly]).is_none() {
            return;
        }
        let address = process::address(index);
        let table = Entry(process.link(address).load(Ordering::Acquire)).frame();
        drop(links);
        self.allow_writes(process, index, paging::place(table, address, 1));
    }

    /// Makes a claimed read-only page writable: in place, or as a copy if another process shares it.
    fn allow_writes(&mut self, process: &Process, index: u64, place: &AtomicU64) {
        let (page, address) = (process.page(index), process::address(index));
        let old = Entry(place.load(Ordering::Acquire)).frame();
        // Only a fork of this process adds references, and that claims the page.
        if frames::note(old).count.load(Ordering::Acquire) == 1 {
            format::allow_writes(place);
            return page.settle(State::Writable);
        }
        let Some(copy) = process::take_frame(page.stamp(page.word().serial() + 1)) else {
            return page.settle(State::ReadOnly);
        };
        self.note(Done::Copies);
        place.store(0, Ordering::Release);
        let _flushed = engine().flush(&process.space, Range::page(address));
        page.next_mapping();
        place.store(Entry::page(copy, Access::data(true)).0, Ordering::Release);
        format::publish();
        page.settle(State::Writable);
        process::free_frame(old);
    }

    /// A copy of a process: mapped pages are shared until either side writes. `None` when memory is exhausted.
    pub(super) fn fork(&mut self, parent: &Process, number: u64) -> Option<Process> {
        let child = Process::new(number)?;
        self.note(Done::Forks);
        let mut claimed = Vec::new();
        let links = parent.links.read();
        for index in 0..TABLES * PAGES {
            let page = parent.page(index);
            if page.claim(&Self::MAPPED).is_none() {
                continue;
            }
            claimed.push(index);
            let address = process::address(index);
            let table = Entry(parent.link(address).load(Ordering::Acquire)).frame();
            let place = paging::place(table, address, 1);
            let old = format::forbid_writes(place);
            if let Some(table) = child.table_or_new(address) {
                frames::note(old.frame()).count.fetch_add(1, Ordering::AcqRel);
                paging::place(table, address, 1).store(old.read_only().0, Ordering::Release);
                child.page(index).inherit(page.bears());
            }
        }
        drop(links);
        let _flushed = engine().flush(&parent.space, Range::WHOLE);
        for index in claimed {
            parent.page(index).settle(State::ReadOnly);
        }
        Some(child)
    }

    /// Page reclaim: scattered pages, one request. The process is loaded.
    pub(super) fn batch(&mut self, process: &Arc<Process>) {
        self.note(Done::Batches);
        let mut taken = Vec::new();
        let mut batch = engine().batch();
        for _ in 0..4 {
            let index = self.below(TABLES * PAGES);
            self.access_page(process, index);
            let links = process.links.read();
            for (index, frame) in self.clear(process, index, index + 1) {
                // Into the batch first: a CPU that sees the page pending must find the space pending.
                batch.add(&process.space, Range::page(process::address(index)));
                let pending = process.page(index).settle_pending();
                taken.push((index, frame, pending));
            }
            drop(links);
            self.pause(1);
        }
        if self.one_in(2) {
            // Another CPU relies on them before the batch is over, perhaps the one that collects it.
            engine().flush_pending(&process.space);
            for &(index, _, pending) in &taken {
                process.page(index).rely_on_absence(pending);
                self.access_page(process, index);
            }
        }
        let _flushed = batch.finish();
        for (index, frame, pending) in taken {
            process.page(index).rely_on_absence(pending);
            process::free_frame(frame);
        }
    }

    /// Relies on entries that are already clear, as an unmap of a range does: flushes pending batches first (rule 9).
    /// The process is loaded.
    pub(super) fn rely_on_absence(&mut self, process: &Process) {
        let first = self.below(TABLES) * PAGES;
        let pages = first..first + PAGES;
        let words = pages.map(|index| (index, process.page(index).word()));
        let clear: Vec<_> = words.filter(|(_, word)| word.state() == State::Pending).collect();
        engine().flush_pending(&process.space);
        for (index, pending) in clear {
            process.page(index).rely_on_absence(pending);
            self.access_page(process, index);
        }
    }

    /// Maps a kernel page, global.
    pub(super) fn map_kernel(&mut self, index: u64) {
        let (page, address) = (&self.arena.kernel[index as usize], process::kernel_address(index));
        let Some(before) = page.claim(&[State::Absent]) else {
            return;
        };
        let place =
            paging::table_or_new(paging::kernel_table(), address, 1).map(|table| paging::place(table, address, 1));
        let frame = process::take_frame(page.stamp(page.word().serial()));
        let (Some(place), Some(frame)) = (place, frame) else {
            return page.give_up(before);
        };
        place.store(Entry::kernel_page(frame).0, Ordering::Release);
        format::publish();
        page.settle(State::Writable);
    }

    /// Unmaps a kernel page.
    pub(super) fn unmap_kernel(&mut self, index: u64) {
        let (page, address) = (&self.arena.kernel[index as usize], process::kernel_address(index));
        if page.claim(&Self::MAPPED).is_none() {
            return;
        }
        self.note(Done::KernelUnmaps);
        let table = paging::table(paging::kernel_table(), address, 1).expect("it was mapped");
        let entry = Entry(paging::place(table, address, 1).swap(0, Ordering::AcqRel));
        let flush = || engine().flush_kernel(Range::page(address));
        // It concerns every CPU; two that wait for each other with interrupts off must both make progress (C5).
        let _flushed = if self.one_in(2) {
            without_interrupts(flush)
        } else {
            flush()
        };
        page.settle(State::Absent);
        process::free_frame(entry.frame());
    }
}
