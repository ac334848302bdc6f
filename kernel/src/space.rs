//! Address spaces: the faults that fill their regions, and the changes that must be flushed.
//!
//! Locking: code that adds or changes leaves holds the region lock for reading; code that removes tables holds it for
//! writing. Leaves are changed by compare-exchange, so that faults and drops of many threads run concurrently. No CPU
//! waits for another while holding the lock for writing; everything that must outlive a flush is kept and freed after
//! it. Waiters for the lock sleep.
//!
//! So flushes of one space run concurrently with its faults and with each other. Code that finds an entry already
//! weakened calls `unflushed` to learn whether all CPUs have been flushed. A fault that fills a page which is just
//! being dropped does not: until the drop returns, CPUs may see the old page, as under Linux.

mod fault;

use crate::arch::format::{self, Entry};
use crate::cpu::add;
use crate::facade::Bare;
use crate::frames::{self, FrameList};
use crate::hooks::WORDS;
use crate::memory::{Frame, LARGE_PAGE};
use crate::paging;
use crate::region::{Access, Region, carve};
use crate::sleeping::RwLock;
use crate::time::Own;
use crate::unflushed::{Change, Unflushed};
use crate::{cpu, engine, reclaim, time, window};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use shootdown::{Flushed, Range, Root, Space, Stride};
use spin::Once;

/// An address space of user code.
pub struct AddressSpace {
    /// The engine's space.
    pub space: Space<Bare, WORDS>,
    root: Frame,
    regions: RwLock<Vec<Region>>,
    unflushed: Unflushed,
}

/// The engine's flush, under a symbol that is visible from outside: the instructions of a shootdown are counted from
/// here to the return, as in Linux those of `flush_tlb_mm_range` (docs/src/evidence/linux-baseline.md).
#[unsafe(no_mangle)]
#[inline(never)]
fn shootdown_flush(space: &Space<Bare, WORDS>, range: Range) -> Flushed {
    engine().flush(space, range)
}

/// The content of untouched memory for reads.
static ZEROES: Once<Frame> = Once::new();

fn zeroes() -> Frame {
    *ZEROES.call_once(|| frames::allocate_zeroed().expect("there is memory at boot"))
}

/// Drops a reference to a data page, after the flush; the last one frees it.
pub fn release(frame: Frame, free: &mut FrameList) {
    if frame != zeroes() && frames::note(frame).count.fetch_sub(1, Ordering::AcqRel) == 1 {
        free.push(frame);
    }
}

impl AddressSpace {
    /// An empty space. `None` when memory is exhausted.
    pub fn new() -> Option<AddressSpace> {
        let root = paging::new_root()?;
        Some(AddressSpace {
            space: engine().space(Root(root.address())),
            root,
            regions: RwLock::new(Vec::new()),
            unflushed: Unflushed::new(),
        })
    }

    /// Loads it here; this CPU's faults are handled in it from here on.
    pub fn enter(&'static self) {
        let cpu = cpu::cpu();
        cpu.space.set(Some(self));
        cpu.must_catch_up.set(false);
        // SAFETY: only `destroy` frees a space, after retiring it.
        unsafe { engine().switch_to(&self.space) };
    }

    /// Loads the kernel's own root here.
    pub fn leave() {
        engine().switch_to_kernel();
        cpu::cpu().space.set(None);
    }

    /// Makes `start..end` a region of zeroes. The addresses are free.
    pub fn map(&self, start: u64, end: u64, writable: bool) {
        self.map_region(Region {
            start,
            end,
            access: Access::data(writable),
            backing: None,
        });
    }

    /// Makes a region at free addresses.
    pub fn map_region(&self, region: Region) {
        self.regions.write().push(region);
    }

    /// Whether no page of `start..end` is present.
    pub fn is_untouched(&self, start: u64, end: u64) -> bool {
        let _regions = self.regions.read();
        let mut untouched = true;
        paging::for_each_leaf(self.root, start, end, |_, _, _| untouched = false);
        untouched
    }

    fn flush(&self, range: Range) -> Flushed {
        window::hold_open();
        let cpu = cpu::cpu();
        let begun = Own::if_kept();
        let flushed = shootdown_flush(&self.space, range);
        add(&cpu.counts.flushes, 1);
        if let Some(begun) = begun {
            add(&cpu.counts.flush_ticks, begun.elapsed(cpu));
        }
        flushed
    }

    /// Drops the pages in `start..end`; they read as zeroes afterwards (MADV_DONTNEED).
    pub fn drop_pages(&self, start: u64, end: u64) {
        let mut dropped = Vec::new();
        let mut change = self.unflushed.change();
        // Until the flush is over: a waiting writer sleeps meanwhile, and an idle CPU is not interrupted.
        let _regions = self.regions.read();
        self.clear(start, end, &mut change, &mut dropped);
        if change.must_flush() {
            let flushed = self.flush(Range::pages(start, end, Stride::Size4K));
            Self::release_all(&dropped, &flushed);
        }
    }

    /// Clears the leaves in `start..end`. Waits for pages that are being copied.
    fn clear(&self, start: u64, end: u64, change: &mut Change<'_>, dropped: &mut Vec<Frame>) {
        paging::for_each_leaf(self.root, start, end, |_, table, place| {
            change.weakens();
            let old = loop {
                let old = Entry(place.load(Ordering::Acquire));
                if !old.is_present() && old.0 != 0 {
                    time::relax();
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

    /// Removes the regions in `start..end`: pages, and tables that are then empty (munmap).
    pub fn unmap(&self, start: u64, end: u64) {
        let (mut dropped, mut tables) = (Vec::new(), FrameList::EMPTY);
        let mut change = self.unflushed.change();
        {
            let mut regions = self.regions.write();
            carve(&mut regions, start, end);
            self.clear(start, end, &mut change, &mut dropped);
            let first = start & !(LARGE_PAGE - 1);
            for span in (first..end).step_by(LARGE_PAGE as usize) {
                self.unlink_if_empty(span, &mut tables);
            }
        }
        let range = Range::pages(start, end, Stride::Size4K);
        if !tables.is_empty() {
            window::hold_open();
            reclaim::flush_and_free(&self.space, range, tables);
            let mut free = FrameList::EMPTY;
            dropped.iter().for_each(|&frame| release(frame, &mut free));
            frames::free_all(free);
        } else if change.must_flush() {
            let flushed = self.flush(range);
            Self::release_all(&dropped, &flushed);
        }
    }

    /// Unlinks the lowest-level table for `address` if it is empty. The lock is held for writing.
    fn unlink_if_empty(&self, address: u64, tables: &mut FrameList) {
        let Some(above) = paging::table(self.root, address, 2) else {
            return;
        };
        let place = paging::place(above, address, 2);
        let link = Entry(place.load(Ordering::Acquire));
        if link.is_present() && !link.is_large() && frames::note(link.frame()).count.load(Ordering::Acquire) == 0 {
            place.store(0, Ordering::Release);
            tables.push(link.frame());
        }
    }

    /// Allows or forbids writes of the pages in `start..end` (mprotect). Instructions are not fetched from there.
    pub fn protect(&self, start: u64, end: u64, writable: bool) {
        self.set_access(start, end, Access::data(writable));
    }

    /// Sets the rights of user code in `start..end`. Addresses without a region become one of zeroes.
    pub fn set_access(&self, start: u64, end: u64, access: Access) {
        let mut change = self.unflushed.change();
        {
            let mut regions = self.regions.write();
            let mut old = carve(&mut regions, start, end);
            old.sort_by_key(|region| region.start);
            let mut at = start;
            for region in old {
                if at < region.start {
                    regions.push(Region {
                        start: at,
                        end: region.start,
                        access,
                        backing: None,
                    });
                }
                at = region.end;
                regions.push(Region { access, ..region });
            }
            if at < end {
                regions.push(Region {
                    start: at,
                    end,
                    access,
                    backing: None,
                });
            }
            // If writes are allowed again, the next one faults and finds the page's owner.
            paging::for_each_leaf(self.root, start, end, |_, _, place| {
                // No other CPU changes rights: the lock is held for writing.
                let old = Entry(place.load(Ordering::Acquire));
                if old.allows_more_than(old.restricted(access)) {
                    change.weakens();
                }
                // The processor may set accessed and dirty bits at any time.
                let _ = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                    Some(Entry(old).restricted(access).0)
                });
            });
        }
        if change.must_flush() {
            let Flushed { .. } = self.flush(Range::pages(start, end, Stride::Size4K));
        }
    }

    /// A copy: private pages are copied when either side writes them. `None` when memory is exhausted.
    pub fn fork(&self) -> Option<AddressSpace> {
        let copy = AddressSpace::new()?;
        let mut change = self.unflushed.change();
        let mut complete = true;
        {
            // For writing: no fault is in progress, so no entry is being copied.
            let regions = self.regions.write();
            for region in regions.iter() {
                let shared = region.backing.as_ref().is_some_and(|backing| backing.shared);
                paging::for_each_leaf(self.root, region.start, region.end, |address, _, place| {
                    let Some(table) = paging::table_or_new(copy.root, address, 1) else {
                        complete = false;
                        return;
                    };
                    if !shared && Entry(place.load(Ordering::Acquire)).is_writable() {
                        change.weakens();
                    }
                    let kept = if shared {
                        Entry(place.load(Ordering::Acquire))
                    } else {
                        format::forbid_writes(place).read_only()
                    };
                    if kept.frame() != zeroes() {
                        frames::note(kept.frame()).count.fetch_add(1, Ordering::AcqRel);
                    }
                    frames::note(table).count.fetch_add(1, Ordering::Relaxed);
                    paging::place(table, address, 1).store(kept.0, Ordering::Release);
                });
            }
            copy.regions.write().clone_from(&regions);
        }
        if change.must_flush() {
            // Before the copy is used: from here on a write finds the page's owner.
            let Flushed { .. } = self.flush(Range::pages(0, crate::memory::USER_END, Stride::Size4K));
        }
        if complete {
            return Some(copy);
        }
        copy.destroy();
        None
    }

    /// Takes a reference to the page at `address`, found by a lockless walk; `None` when it is absent. The caller drops
    /// it by [`release_one`](Self::release_one).
    ///
    /// Correct if flushes wait for CPUs with interrupts off, as flushes by IPI do: then no frame that the walk finds is
    /// reused before the walk is over.
    pub fn pin(&self, address: u64) -> Option<Frame> {
        let walk = engine().walk(&self.space);
        let place = paging::place(paging::table(self.root, address, 1)?, address, 1);
        let entry = Entry(place.load(Ordering::Acquire));
        let pinned = entry.is_present().then(|| entry.frame());
        if let Some(frame) = pinned.filter(|&frame| frame != zeroes()) {
            frames::note(frame).count.fetch_add(1, Ordering::AcqRel);
        }
        drop(walk);
        pinned
    }

    /// Ends the space: unloads it from every CPU and frees its memory. It must have no user.
    pub fn destroy(self) {
        let _left = engine().retire(&self.space);
        free_tables(self.root, format::levels());
    }
}

/// Frees a table of that level of a space that no CPU has loaded, with everything below it in the lower half.
fn free_tables(table: Frame, level: u32) {
    let own = if level == format::levels() {
        format::USER_ENTRIES
    } else {
        512
    };
    let mut free = FrameList::EMPTY;
    for place in &table.words()[..own] {
        let entry = Entry(place.load(Ordering::Acquire));
        if !entry.is_present() {
            continue;
        }
        match level {
            1 => release(entry.frame(), &mut free),
            2 if entry.is_large() => frames::free_large(entry.frame()),
            _ => free_tables(entry.frame(), level - 1),
        }
    }
    free.push(table);
    frames::free_all(free);
}
