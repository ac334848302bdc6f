//! Page faults: untouched pages are filled, and shared pages are copied before they are written.

use super::{AddressSpace, zeroes};
use crate::arch::format::{self, Entry};
use crate::cpu::cpu;
use crate::frames::{self, FrameList};
use crate::invalidate;
use crate::memory::{Frame, PAGE};
use crate::paging;
use crate::region::{Access, Region};
use crate::time;
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown::{Flushed, Range};

impl AddressSpace {
    /// A page fault in user memory: whether the access can be tried again.
    pub fn fault(&self, address: u64, access: Access) -> bool {
        let write = access.write;
        let page = address & !(PAGE - 1);
        let regions = self.regions.read();
        let Some(region) = regions.iter().find(|region| (region.start..region.end).contains(&page)) else {
            return false;
        };
        if write && !region.access.write || access.execute && !region.access.execute {
            return false;
        }
        let Some(table) = paging::table_or_new(self.root, page, 1) else {
            return false;
        };
        let place = paging::place(table, page, 1);
        let old = Entry(place.load(Ordering::Acquire));
        if old.0 != 0 && !old.is_present() {
            // Another thread is copying it.
            time::relax();
            return true;
        }
        if !old.is_present() {
            return Self::fill(region, page, table, place, write);
        }
        if !write || old.is_writable() {
            // Another thread was faster, or this CPU had not noticed yet.
            invalidate::forget(cpu(), page);
            return true;
        }
        let shared = region.backing.as_ref().is_some_and(|backing| backing.shared);
        if shared || old.frame() != zeroes() && frames::note(old.frame()).count.load(Ordering::Acquire) == 1 {
            // Owned alone, or shared writable. More is allowed than before, which needs no flush: a CPU with the old
            // entry faults and retries.
            let new = old.writable();
            let _other_was_faster = place.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed);
            return true;
        }
        self.copy_on_write(region, page, place, old)
    }

    /// An untouched page: the shared zero page for a read, a private page for a write, or the page of the region's
    /// backing.
    fn fill(region: &Region, page: u64, table: Frame, place: &AtomicU64, write: bool) -> bool {
        let access = |write| Access { write, ..region.access };
        let new = match &region.backing {
            None if write => Self::own_page(None).map(|frame| Entry::page(frame, access(true))),
            None => Some(Entry::page(zeroes(), access(false))),
            Some(backing) => backing.page(page).and_then(|frame| match (write, backing.shared) {
                (false, _) => Some(Entry::page(frame, access(false))),
                (true, true) => Some(Entry::page(frame, access(true))),
                (true, false) => {
                    let copy = Self::own_page(Some(frame));
                    Self::release_one(frame);
                    copy.map(|copy| Entry::page(copy, access(true)))
                }
            }),
        };
        let Some(new) = new else { return false };
        // Counted first: a table that is being filled is not empty.
        frames::note(table).count.fetch_add(1, Ordering::Relaxed);
        // Release: the content of the page comes before the entry.
        if place
            .compare_exchange(0, new.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            frames::note(table).count.fetch_sub(1, Ordering::Relaxed);
            Self::release_one(new.frame());
        }
        format::publish();
        true
    }

    /// A page with one reference, of zeroes or a copy. `None` when memory is exhausted.
    fn own_page(copy_of: Option<Frame>) -> Option<Frame> {
        let frame = match copy_of {
            None => frames::allocate_zeroed()?,
            Some(from) => {
                let frame = frames::allocate()?;
                for (to, from) in frame.words().iter().zip(from.words()) {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                frame
            }
        };
        frames::note(frame).count.store(1, Ordering::Relaxed);
        Some(frame)
    }

    /// Drops a reference that has no translation, or whose translation is flushed.
    pub fn release_one(frame: Frame) {
        let mut free = FrameList::EMPTY;
        super::release(frame, &mut free);
        frames::free_all(free);
    }

    /// A write to a shared page. The old translation is gone everywhere before the new one is visible.
    fn copy_on_write(&self, region: &Region, page: u64, place: &AtomicU64, old: Entry) -> bool {
        // Not present meanwhile, and nonzero, so that no fault fills it: the other threads retry until it is done.
        let busy = Entry(old.absent().0);
        if place
            .compare_exchange(old.0, busy.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return true;
        }
        // Flushed, then copied. Until then a CPU may store through a writable translation from before a fork whose own
        // flush is not over; a store that lands later in the others' page would be missing in the copy.
        let Flushed { .. } = self.flush(Range::page(page));
        let Some(copy) = Self::own_page(Some(old.frame())) else {
            place.store(old.0, Ordering::Release);
            return false;
        };
        place.store(Entry::page(copy, region.access).0, Ordering::Release);
        format::publish();
        Self::release_one(old.frame());
        true
    }
}
