//! Frames that more than one entry may map: those shared by fork, and those of the page cache.
//!
//! Owns the counts of references beyond the first. A frame that is not in the map has one reference: a run without fork
//! and files only checks an empty map.

use super::System;
use crate::machine::{self, LineId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// References to frames beyond the first.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    frames: HashMap<u32, Shared>,
}

#[derive(Debug)]
struct Shared {
    beyond_first: u32,
    /// Line of the count, for frames of the page cache, whose first reference is the cache's own.
    cache: Option<LineId>,
}

/// A file whose pages are all in the page cache.
#[derive(Debug)]
pub struct File {
    /// The frames of the pages that were looked up.
    frames: RefCell<HashMap<u64, u32>>,
    /// Lines of their reference counts.
    lines: LineId,
}

/// Lines of the reference counts of a file; pages at this distance share one.
const COUNT_LINES: u64 = 1 << 10;

impl File {
    /// The frame that caches page `index`.
    pub(super) fn frame<const W: usize>(&self, system: &System<W>, index: u64) -> u32 {
        let mut frames = self.frames.borrow_mut();
        *frames.entry(index).or_insert_with(|| {
            let frame = system.hw.borrow_mut().alloc_data();
            let shared = Shared {
                beyond_first: 0,
                cache: Some(self.lines.offset((index % COUNT_LINES) as usize)),
            };
            system.sharing.borrow_mut().frames.insert(frame, shared);
            frame
        })
    }
}

impl<const W: usize> System<W> {
    /// A file of `pages` pages, all cached. Each page's reference count has a cache line of its own, as its
    /// `struct page` has in Linux, but that pages far apart share one.
    pub fn file(&self, pages: u64) -> Rc<File> {
        Rc::new(File {
            frames: RefCell::default(),
            lines: self.allocate_lines(pages.min(COUNT_LINES) as usize),
        })
    }

    /// Whether more than one reference to `frame` may exist, so that it must be copied before it is written.
    pub(super) fn is_shared(&self, frame: u32) -> bool {
        let sharing = self.sharing.borrow();
        !sharing.frames.is_empty() && sharing.frames.contains_key(&frame)
    }

    /// Whether a write to `frame` needs a copy of it first.
    pub(super) fn must_copy(&self, frame: u32) -> bool {
        self.is_shared(frame) || frame == self.hw.borrow().zero_page()
    }

    /// Whether the page cache owns `frame`.
    pub(super) fn is_cached(&self, frame: u32) -> bool {
        let sharing = self.sharing.borrow();
        sharing.frames.get(&frame).is_some_and(|shared| shared.cache.is_some())
    }

    /// One more entry maps `frame`.
    pub(super) fn get_frame(&self, frame: u32) {
        let line = {
            let mut sharing = self.sharing.borrow_mut();
            let new = Shared {
                beyond_first: 0,
                cache: None,
            };
            let shared = sharing.frames.entry(frame).or_insert(new);
            shared.beyond_first += 1;
            shared.cache
        };
        if let Some(line) = line {
            machine::modify_line(line);
        }
    }

    /// Drops a reference beyond the first. False when there was none: then the frame is to be freed.
    pub(super) fn put_shared(&self, frame: u32) -> bool {
        let line = {
            let mut sharing = self.sharing.borrow_mut();
            if sharing.frames.is_empty() {
                return false;
            }
            let Some(shared) = sharing.frames.get_mut(&frame) else {
                return false;
            };
            shared.beyond_first -= 1;
            let line = shared.cache;
            if shared.beyond_first == 0 && line.is_none() {
                sharing.frames.remove(&frame);
            }
            line
        };
        if let Some(line) = line {
            machine::modify_line(line);
        }
        true
    }
}
