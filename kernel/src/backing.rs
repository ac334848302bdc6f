//! Memory that outlives its mappings: the content of a file in memory, or of memory shared with children.

use crate::frames::{self, FrameList};
use crate::lock::Mutex;
use crate::memory::{Frame, PAGE};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

/// Pages by number, allocated on first use. Each has one reference from here.
pub struct Memory {
    pages: Mutex<Vec<Option<Frame>>>,
}

/// The part of it that a region shows.
#[derive(Clone)]
pub struct Backing {
    memory: Arc<Memory>,
    /// The address of its first page.
    origin: u64,
    /// Writes go to the memory itself, not to a copy.
    pub shared: bool,
}

impl Memory {
    /// Of no length.
    pub fn new() -> Arc<Memory> {
        Arc::new(Memory {
            pages: Mutex::new(Vec::new()),
        })
    }

    /// Makes it longer, up to a limit in bytes.
    pub fn grow(&self, length: u64) {
        let pages = length.div_ceil(PAGE) as usize;
        let mut all = self.pages.lock();
        if all.len() < pages {
            all.resize(pages, None);
        }
    }

    /// Page `number`, with one more reference; `None` beyond the end, and when memory is exhausted.
    fn page(&self, number: u64) -> Option<Frame> {
        let mut pages = self.pages.lock();
        let place = pages.get_mut(usize::try_from(number).ok()?)?;
        let frame = match *place {
            Some(frame) => frame,
            None => {
                let frame = frames::allocate_zeroed()?;
                frames::note(frame).count.store(1, Ordering::Relaxed);
                *place = Some(frame);
                frame
            }
        };
        frames::note(frame).count.fetch_add(1, Ordering::AcqRel);
        Some(frame)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut free = FrameList::EMPTY;
        for frame in self.pages.get_mut().drain(..).flatten() {
            crate::space::release(frame, &mut free);
        }
        frames::free_all(free);
    }
}

impl Backing {
    /// The memory from `offset` on at `start`.
    pub fn new(memory: Arc<Memory>, start: u64, offset: u64, shared: bool) -> Backing {
        Backing {
            memory,
            origin: start.wrapping_sub(offset),
            shared,
        }
    }

    /// The content of a page, with one more reference; `None` beyond the end, and when memory is exhausted.
    pub fn page(&self, address: u64) -> Option<Frame> {
        self.memory.page(address.wrapping_sub(self.origin) / PAGE)
    }
}
