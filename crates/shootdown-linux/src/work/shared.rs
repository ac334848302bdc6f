//! Memory that workers share with the measuring thread, across processes.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a page of these workloads, as in the simulator. Kernels with larger pages drop and fault larger ones.
pub(super) const PAGE: usize = 4096;

/// The counts of one worker; a pair of cache lines, since adjacent lines are prefetched together.
#[repr(C, align(128))]
pub(super) struct Slot {
    pub(super) ops: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) checked: AtomicU64,
    pub(super) idle_ns: AtomicU64,
    pub(super) idle_times: AtomicU64,
    /// The error that ended it, 0 for none.
    error: AtomicU32,
    /// `context_switch`: the thread that runs next on this CPU, 0 for that of the first process.
    pub(super) turn: AtomicU32,
    stop: AtomicBool,
}

impl Slot {
    /// Adds to a counter that only this worker writes.
    pub(super) fn add(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// Whether to end. A separate flag for each worker, so that reading it moves no line.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Sums over all workers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) ops: u64,
    pub(super) stale: u64,
    pub(super) checked: u64,
    pub(super) idle_ns: u64,
    pub(super) idle_times: u64,
}

/// A slot for each worker, shared with processes that are forked later.
pub(super) struct Shared {
    slots: NonNull<Slot>,
    workers: usize,
}

// SAFETY: slots are only accessed through shared references, and all their fields are atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(super) fn new(workers: usize) -> io::Result<Shared> {
        let bytes = workers * size_of::<Slot>();
        // SAFETY: a new mapping at a free address.
        let slots = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
            )
        }?;
        let slots = NonNull::new(slots.cast()).ok_or(Errno::NOMEM)?;
        Ok(Shared { slots, workers })
    }

    /// All slots. Zeroed memory is a slot without counts.
    pub(super) fn slots(&self) -> &[Slot] {
        // SAFETY: the mapping holds that many slots, page-aligned and zeroed, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), self.workers) }
    }

    /// Asks every worker to end.
    pub(super) fn stop(&self) {
        for slot in self.slots() {
            slot.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Records how a worker ended; a failed one ends all.
    pub(super) fn report(&self, index: usize, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.slots()[index]
                .error
                .store(error.raw_os_error() as u32, Ordering::Relaxed);
            self.stop();
        }
    }

    /// The first error.
    pub(super) fn error(&self) -> Option<io::Error> {
        let errors = self.slots().iter().map(|slot| slot.error.load(Ordering::Relaxed));
        let first = errors.into_iter().find(|&error| error != 0)?;
        Some(io::Error::from_raw_os_error(first as i32))
    }

    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for slot in self.slots() {
            sum.ops += slot.ops.load(Ordering::Relaxed);
            sum.stale += slot.stale.load(Ordering::Relaxed);
            sum.checked += slot.checked.load(Ordering::Relaxed);
            sum.idle_ns += slot.idle_ns.load(Ordering::Relaxed);
            sum.idle_times += slot.idle_times.load(Ordering::Relaxed);
        }
        sum
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our mapping; no reference into it outlives `self`.
        let _ = unsafe { munmap(self.slots.as_ptr().cast(), self.workers * size_of::<Slot>()) };
    }
}

/// Private anonymous pages.
pub(super) struct Region {
    base: NonNull<u8>,
    pages: usize,
}

// SAFETY: bytes are only accessed by volatile accesses of single bytes, whose values are unspecified.
unsafe impl Sync for Region {}

impl Region {
    pub(super) fn new(pages: usize) -> Result<Region> {
        // SAFETY: a new mapping at a free address.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                pages * PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Region { base, pages })
    }

    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    /// First byte of a page.
    pub(super) fn at(&self, page: usize) -> *mut u8 {
        assert!(page < self.pages);
        // SAFETY: within the mapping.
        unsafe { self.base.as_ptr().add(page * PAGE) }
    }

    pub(super) fn write(&self, page: usize) {
        // SAFETY: within the mapping, which is writable at every call.
        unsafe { self.at(page).write_volatile(1) }
    }

    /// Drops a page; the next access finds zeroes.
    pub(super) fn drop_page(&self, page: usize) -> Result<()> {
        // SAFETY: a page of our own, whose contents are not needed.
        unsafe { madvise(self.at(page).cast(), PAGE, Advice::LinuxDontNeed) }
    }

    pub(super) fn read(&self, page: usize) -> u8 {
        // SAFETY: within the mapping, which is always readable.
        unsafe { self.at(page).read_volatile() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our mapping, without remaining references.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.pages * PAGE) };
    }
}
