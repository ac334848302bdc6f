//! Physical pages: allocation, and its order.
//!
//! Freed pages are reused at once, last in first out: a page that is freed too early soon has another owner, which the
//! torture test detects. The list runs through an array with one record per page, in front of the pages themselves; the
//! heap is for small objects.

use crate::lock::Mutex;
use crate::memory::{Frame, LARGE_PAGE, PAGE};
use core::sync::atomic::{AtomicU32, Ordering};
use spin::Once;

/// Bytes of a kernel stack.
const STACK: u64 = 64 * 1024;

/// The record of each page.
pub struct Note {
    /// Next page of the list it is in.
    next: AtomicU32,
    /// For the owner's use: references to a data page, entries in use of a table page.
    pub count: AtomicU32,
}

/// Pages in a list. Dropping it leaks them.
#[derive(Debug)]
#[must_use = "the pages in it are lost when it is dropped"]
pub struct FrameList {
    head: u32,
    len: u32,
}

struct Pool {
    free: FrameList,
    /// Never allocated so far: from here to `end`.
    fresh: u32,
    end: u32,
    large: FrameList,
}

static NOTES: Once<&'static [Note]> = Once::new();
static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: FrameList::EMPTY,
    fresh: 0,
    end: 0,
    large: FrameList::EMPTY,
});

impl FrameList {
    /// No pages.
    pub const EMPTY: FrameList = FrameList { head: u32::MAX, len: 0 };

    /// Adds a page.
    pub fn push(&mut self, frame: Frame) {
        note(frame).next.store(self.head, Ordering::Relaxed);
        self.head = frame.0;
        self.len += 1;
    }

    /// Takes the page that was added last.
    pub fn pop(&mut self) -> Option<Frame> {
        if self.len == 0 {
            return None;
        }
        let frame = Frame(self.head);
        self.head = note(frame).next.load(Ordering::Relaxed);
        self.len -= 1;
        Some(frame)
    }

    /// Number of pages.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The record of `frame`.
pub fn note(frame: Frame) -> &'static Note {
    &NOTES.get().expect("frames are set up first")[frame.0 as usize]
}

/// Adds the memory `first..end` (physical addresses), of which `large` blocks of 2 MiB from the top.
pub fn set_up(first: u64, end: u64, large: u32) {
    let notes = first.next_multiple_of(PAGE);
    let count = (end / PAGE) as usize;
    let first = notes + (count * size_of::<Note>()) as u64;
    let top = end & !(LARGE_PAGE - 1);
    let bottom = top.saturating_sub(u64::from(large) * LARGE_PAGE);
    if first >= bottom {
        crate::serial::give_up(format_args!(
            "memory ends at {end:#x}, which is too little; give the machine at least 128 MiB (QEMU: -m 256M)"
        ));
    }
    NOTES.call_once(|| {
        let place = crate::memory::direct::<Note>(notes);
        // SAFETY: memory of this kernel without other use, from the beginning of a page on; zeroed records are valid.
        unsafe {
            core::ptr::write_bytes(place, 0, count);
            core::slice::from_raw_parts(place, count)
        }
    });
    let mut pool = POOL.lock();
    for block in 0..u64::from(large) {
        pool.large.push(Frame::at(bottom + block * LARGE_PAGE));
    }
    pool.fresh = Frame::at(first + PAGE - 1).0;
    pool.end = Frame::at(bottom).0;
}

/// A page, with its last owner's content.
pub fn allocate() -> Option<Frame> {
    let mut pool = POOL.lock();
    if let Some(frame) = pool.free.pop() {
        return Some(frame);
    }
    if pool.fresh == pool.end {
        return None;
    }
    pool.fresh += 1;
    Some(Frame(pool.fresh - 1))
}

/// That many adjacent pages, for ever; returns the first. Only pages that were never allocated.
pub fn allocate_run(pages: u32) -> Option<Frame> {
    let mut pool = POOL.lock();
    if pool.end - pool.fresh < pages {
        return None;
    }
    pool.fresh += pages;
    Some(Frame(pool.fresh - pages))
}

/// A kernel stack that is never freed; its top. `None` when memory is exhausted.
pub fn new_stack() -> Option<u64> {
    let first = allocate_run((STACK / PAGE) as u32)?;
    Some(crate::memory::direct::<u8>(first.address()) as u64 + STACK)
}

/// A page of zeroes.
pub fn allocate_zeroed() -> Option<Frame> {
    let frame = allocate()?;
    // SAFETY: the page belongs to the caller alone.
    unsafe { core::ptr::write_bytes(crate::memory::direct::<u8>(frame.address()), 0, PAGE as usize) };
    Some(frame)
}

/// Frees a page. It must have no user.
pub fn free(frame: Frame) {
    POOL.lock().free.push(frame);
}

/// Frees pages.
pub fn free_all(mut frames: FrameList) {
    if frames.is_empty() {
        return;
    }
    let mut pool = POOL.lock();
    while let Some(frame) = frames.pop() {
        pool.free.push(frame);
    }
}

/// A block of 2 MiB.
pub fn allocate_large() -> Option<Frame> {
    POOL.lock().large.pop()
}

/// Frees a block.
pub fn free_large(frame: Frame) {
    POOL.lock().large.push(frame);
}
