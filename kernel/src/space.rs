//! Address spaces: regions, the faults that fill them, and the changes that must be flushed.
//!
//! Locking: whoever adds or changes leaves holds the region lock to read, whoever removes tables holds it to write. Leaves are
//! changed by compare-exchange, so that faults and drops of many threads run side by side. Nobody waits for another CPU while
//! holding the lock to write; what a flush must precede is kept and freed after it.

use crate::arch::cpu::add;
use crate::arch::lock::RwLock;
use crate::arch::time::Own;
use crate::facade::Bare;
use crate::frames::{self, FrameList};
use crate::hooks::WORDS;
use crate::memory::{Frame, LARGE_PAGE, PAGE};
use crate::paging::{self, Entry, Flags, USER};
use crate::{arch, engine, reclaim};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown::{Flushed, Range, Root, Space, Stride};
use spin::Once;

/// A stretch of addresses that faults fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Whether it may be written.
    pub writable: bool,
}

/// An address space of user code.
pub struct AddressSpace {
    /// As the engine knows it.
    pub space: Space<Bare, WORDS>,
    root: Frame,
    regions: RwLock<Vec<Region>>,
}

/// What reads of untouched memory see.
static ZEROES: Once<Frame> = Once::new();

fn zeroes() -> Frame {
    *ZEROES.call_once(|| frames::allocate_zeroed().expect("there is memory at boot"))
}

/// A reference to a data page is gone, and flushed; the last one frees it.
fn release(frame: Frame, free: &mut FrameList) {
    if frame != zeroes() && frames::note(frame).count.fetch_sub(1, Ordering::AcqRel) == 1 {
        free.push(frame);
    }
}

impl AddressSpace {
    /// An empty one. `None` when memory is out.
    pub fn new() -> Option<AddressSpace> {
        let root = paging::new_root(crate::kernel_root())?;
        Some(AddressSpace {
            space: engine().space(Root(root.address())),
            root,
            regions: RwLock::new(Vec::new()),
        })
    }

    /// Loads it here; faults of this CPU are its own from now on.
    pub fn enter(&'static self) {
        arch::cpu().space.set(Some(self));
        // SAFETY: a space is freed by `destroy` only, which retires it.
        unsafe { engine().switch_to(&self.space) };
    }

    /// Loads the kernel's own root here.
    pub fn leave() {
        engine().switch_to_kernel();
        arch::cpu().space.set(None);
    }

    /// Makes `start..end` a region, of zeroes until it is written. The addresses are nobody's yet.
    pub fn map(&self, start: u64, end: u64, writable: bool) {
        self.regions.write().push(Region { start, end, writable });
    }

    fn flush(&self, range: Range) -> Flushed {
        let cpu = arch::cpu();
        let begun = Own::now(cpu);
        let flushed = engine().flush(&self.space, range);
        add(&cpu.counts.flushes, 1);
        add(&cpu.counts.flush_ticks, begun.elapsed(cpu));
        flushed
    }

    /// A page fault in user memory: whether the access can be tried again.
    pub fn fault(&self, address: u64, write: bool) -> bool {
        let page = address & !(PAGE - 1);
        let regions = self.regions.read();
        let Some(region) = regions.iter().find(|region| (region.start..region.end).contains(&page)) else {
            return false;
        };
        if write && !region.writable {
            return false;
        }
        let Some(table) = paging::table_or_new(self.root, page, 1) else {
            return false;
        };
        let place = paging::place(table, page, 1);
        let old = Entry(place.load(Ordering::Acquire));
        if !old.is_present() {
            return Self::fill(table, place, write);
        }
        if !write || old.has(Flags::WRITABLE) {
            // Another thread was faster, or this CPU had not noticed yet.
            return true;
        }
        if old.frame() != zeroes() && frames::note(old.frame()).count.load(Ordering::Acquire) == 1 {
            // Nobody else's: more is allowed than before, which needs no flush on x86.
            let new = old.with(Flags::WRITABLE);
            let _other_was_faster = place.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed);
            return true;
        }
        self.copy_on_write(page, place, old)
    }

    /// An untouched page: of zeroes that all share, for a read; of its own, for a write.
    fn fill(table: Frame, place: &AtomicU64, write: bool) -> bool {
        let new = if write {
            let Some(frame) = frames::allocate_zeroed() else {
                return false;
            };
            frames::note(frame).count.store(1, Ordering::Relaxed);
            Entry::new(frame, USER | Flags::WRITABLE)
        } else {
            Entry::new(zeroes(), USER)
        };
        // Counted first: a table that somebody is filling is not empty.
        frames::note(table).count.fetch_add(1, Ordering::Relaxed);
        // Release: the zeroes come before the entry.
        if place
            .compare_exchange(0, new.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            frames::note(table).count.fetch_sub(1, Ordering::Relaxed);
            if write {
                frames::free(new.frame());
            }
        }
        true
    }

    /// A write to a page that is not this space's alone. The old translation goes everywhere before the new one is seen.
    fn copy_on_write(&self, page: u64, place: &AtomicU64, old: Entry) -> bool {
        let Some(copy) = frames::allocate() else { return false };
        frames::note(copy).count.store(1, Ordering::Relaxed);
        // Not present meanwhile, and not 0, so that no fault fills it: the other threads try again until it is done.
        let busy = Entry(old.without(Flags::PRESENT).0);
        if place
            .compare_exchange(old.0, busy.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            frames::free(copy);
            return true;
        }
        for (to, from) in copy.words().iter().zip(old.frame().words()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let Flushed { .. } = self.flush(Range::page(page));
        place.store(Entry::new(copy, USER | Flags::WRITABLE).0, Ordering::Release);
        let mut free = FrameList::EMPTY;
        release(old.frame(), &mut free);
        frames::free_all(free);
        true
    }

    /// Gives the pages in `start..end` back; they read as zeroes afterwards (MADV_DONTNEED).
    pub fn drop_pages(&self, start: u64, end: u64) {
        let mut dropped = Vec::new();
        {
            let _regions = self.regions.read();
            self.clear(start, end, &mut dropped);
        }
        if !dropped.is_empty() {
            let flushed = self.flush(Range::pages(start, end, Stride::Size4K));
            Self::release_all(&dropped, &flushed);
        }
    }

    /// Takes the leaves in `start..end` out of the tables. Pages that are being copied are waited for.
    fn clear(&self, start: u64, end: u64, dropped: &mut Vec<Frame>) {
        paging::for_each_leaf(self.root, start, end, |_, table, place| {
            let old = loop {
                let old = Entry(place.load(Ordering::Acquire));
                if !old.is_present() && old.0 != 0 {
                    arch::relax();
                } else if place
                    .compare_exchange(old.0, 0, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
                {
                    break old;
                }
            };
            if old.is_present() {
                frames::note(table).count.fetch_sub(1, Ordering::Relaxed);
                dropped.push(old.frame());
            }
        });
    }

    fn release_all(dropped: &[Frame], _proof: &Flushed) {
        let mut free = FrameList::EMPTY;
        for &frame in dropped {
            release(frame, &mut free);
        }
        frames::free_all(free);
    }

    /// Ends whatever regions are in `start..end`: pages, and tables that are empty then (munmap).
    pub fn unmap(&self, start: u64, end: u64) {
        let (mut dropped, mut tables) = (Vec::new(), FrameList::EMPTY);
        {
            let mut regions = self.regions.write();
            carve(&mut regions, start, end);
            self.clear(start, end, &mut dropped);
            let first = start & !(LARGE_PAGE - 1);
            for span in (first..end).step_by(LARGE_PAGE as usize) {
                self.unlink_if_empty(span, &mut tables);
            }
        }
        let range = Range::pages(start, end, Stride::Size4K);
        if !tables.is_empty() {
            reclaim::flush_and_free(&self.space, range, tables);
            let mut free = FrameList::EMPTY;
            dropped.iter().for_each(|&frame| release(frame, &mut free));
            frames::free_all(free);
        } else if !dropped.is_empty() {
            let flushed = self.flush(range);
            Self::release_all(&dropped, &flushed);
        }
    }

    /// Unlinks the lowest-level table for `address` if nothing is in it. The lock is held to write.
    fn unlink_if_empty(&self, address: u64, tables: &mut FrameList) {
        let Some(above) = paging::table(self.root, address, 2) else {
            return;
        };
        let place = paging::place(above, address, 2);
        let link = Entry(place.load(Ordering::Acquire));
        if link.is_present()
            && !link.has(Flags::HUGE_PAGE)
            && frames::note(link.frame()).count.load(Ordering::Acquire) == 0
        {
            place.store(0, Ordering::Release);
            tables.push(link.frame());
        }
    }

    /// Allows or forbids writes of the pages in `start..end` (mprotect).
    pub fn protect(&self, start: u64, end: u64, writable: bool) {
        let mut weakened = false;
        {
            let mut regions = self.regions.write();
            carve(&mut regions, start, end);
            regions.push(Region { start, end, writable });
            paging::for_each_leaf(self.root, start, end, |_, _, place| {
                if !writable {
                    let old = Entry(place.fetch_and(!Flags::WRITABLE.bits(), Ordering::AcqRel));
                    weakened |= old.has(Flags::PRESENT | Flags::WRITABLE);
                }
                // Where writes are allowed again, the next one faults and finds out whose page it is.
            });
        }
        if weakened {
            let Flushed { .. } = self.flush(Range::pages(start, end, Stride::Size4K));
        }
    }

    /// Ends the space: takes it off every CPU, frees all it has. Nobody uses it any more.
    pub fn destroy(self) {
        let _left = engine().retire(&self.space);
        free_tables(self.root, 4);
    }
}

/// Frees a table of that level of a space that no CPU has loaded, with all that is below it in the lower half.
fn free_tables(table: Frame, level: u32) {
    let own = if level == 4 { 256 } else { 512 };
    let mut free = FrameList::EMPTY;
    for place in &table.words()[..own] {
        let entry = Entry(place.load(Ordering::Acquire));
        if !entry.is_present() {
            continue;
        }
        match level {
            1 => release(entry.frame(), &mut free),
            2 if entry.has(Flags::HUGE_PAGE) => frames::free_large(entry.frame()),
            _ => free_tables(entry.frame(), level - 1),
        }
    }
    free.push(table);
    frames::free_all(free);
}

/// Takes `start..end` out of the regions, splitting where need be.
fn carve(regions: &mut Vec<Region>, start: u64, end: u64) {
    let mut index = 0;
    while index < regions.len() {
        let region = regions[index];
        if region.end <= start || region.start >= end {
            index += 1;
            continue;
        }
        regions.swap_remove(index);
        for (from, to) in [(region.start, start), (end, region.end)] {
            if from < to {
                regions.push(Region {
                    start: from,
                    end: to,
                    ..region
                });
            }
        }
    }
}
