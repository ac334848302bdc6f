//! Physical pages: who gives them out, and in which order.
//!
//! Freed pages are given out again at once, last in first out: a page that is freed too early is soon somebody else's,
//! which is what the torture test wants to see. The list runs through an array of notes, one per page, which lies in
//! front of the pages themselves: the heap is for small things.

use crate::lock::Mutex;
use crate::memory::{Frame, LARGE_PAGE, PAGE};
use core::sync::atomic::{AtomicU32, Ordering};
use spin::Once;

/// Bytes of a kernel stack.
const STACK: u64 = 64 * 1024;

/// What is kept for each page.
pub struct Note {
    /// Next page of the list it is in.
    next: AtomicU32,
    /// Free for its owner: references to a data page, entries in use of a table page.
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
    /// Never given out so far: from here to `end`.
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

    /// Adds one.
    pub fn push(&mut self, frame: Frame) {
        note(frame).next.store(self.head, Ordering::Relaxed);
        self.head = frame.0;
        self.len += 1;
    }

    /// Takes the one that was added last.
    pub fn pop(&mut self) -> Option<Frame> {
        if self.len == 0 {
            return None;
        }
        let frame = Frame(self.head);
        self.head = note(frame).next.load(Ordering::Relaxed);
        self.len -= 1;
        Some(frame)
    }

    /// How many.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What is kept for `frame`.
pub fn note(frame: Frame) -> &'static Note {
    &NOTES.get().expect("frames are set up first")[frame.0 as usize]
}

/// Gives out what lies in `first..end` (physical addresses) from now on, of it `large` blocks of 2 MiB from the top.
pub fn set_up(first: u64, end: u64, large: u32) {
    let notes = first.next_multiple_of(PAGE);
    let count = (end / PAGE) as usize;
    let first = notes + (count * size_of::<Note>()) as u64;
    let top = end & !(LARGE_PAGE - 1);
    let bottom = top.saturating_sub(u64::from(large) * LARGE_PAGE);
    assert!(first < bottom, "too little memory: give the machine at least 128 MiB");
    NOTES.call_once(|| {
        let place = crate::memory::direct::<Note>(notes);
        // SAFETY: memory of ours that is used for nothing else, from the beginning of a page on; notes of zeroes are
        // valid.
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

/// A page, with whatever its last owner left in it.
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

/// So many pages next to each other, for good; the first. Of those that were never given out.
pub fn allocate_run(pages: u32) -> Option<Frame> {
    let mut pool = POOL.lock();
    if pool.end - pool.fresh < pages {
        return None;
    }
    pool.fresh += pages;
    Some(Frame(pool.fresh - pages))
}

/// A kernel stack that is never freed; its top. `None` when memory is out.
pub fn new_stack() -> Option<u64> {
    let first = allocate_run((STACK / PAGE) as u32)?;
    Some(crate::memory::direct::<u8>(first.address()) as u64 + STACK)
}

/// A page of zeroes.
pub fn allocate_zeroed() -> Option<Frame> {
    let frame = allocate()?;
    // SAFETY: the page is the caller's alone.
    unsafe { core::ptr::write_bytes(crate::memory::direct::<u8>(frame.address()), 0, PAGE as usize) };
    Some(frame)
}

/// Takes a page back. Nobody may use it any more.
pub fn free(frame: Frame) {
    POOL.lock().free.push(frame);
}

/// Takes pages back.
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

/// Takes a block back.
pub fn free_large(frame: Frame) {
    POOL.lock().large.push(frame);
}
