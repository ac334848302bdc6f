//! Physical memory: frame numbers, the use of each frame, and how soon it is reused.
//!
//! Owns allocation. Freed frames are reused last in, first out, so that a frame freed too early shows at once. The
//! checks of C2 and C3 are in `oracle.rs`; contents of page-table pages are in `tables.rs`.

use super::Hw;

/// The use of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Nothing: allocatable.
    Free,
    /// Data.
    Data,
    /// A page of page-table entries of this level (1: leaves, 4: roots).
    Table(u8),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    /// Counts the times this frame was freed.
    pub(super) life: u32,
    /// For tables: index of the contents.
    pub(super) body: u32,
    /// For data: the ledger slot that mapped it first in this life, 0 if none.
    pub(super) slot: u32,
    /// More than one slot mapped it in this life.
    pub(super) shared: bool,
    /// Leaf entries in linked tables that map it now.
    pub(super) mapped: u32,
    /// TLB entries that map it, machine-wide, flushed ones included until they are found.
    pub(super) copies: u32,
    /// PSC entries that link to it in this life, machine-wide.
    pub(super) links: u32,
    /// CPUs that have it loaded as root.
    pub(super) loaded: u32,
}

const EMPTY: Frame = Frame {
    kind: FrameKind::Free,
    life: 0,
    body: 0,
    slot: 0,
    shared: false,
    mapped: 0,
    copies: 0,
    links: 0,
    loaded: 0,
};

/// Frame 0 is never allocated; frame 1 is the zero page.
pub(super) const ZERO_PAGE: u32 = 1;

#[derive(Debug, Clone)]
pub(super) struct Frames {
    all: Vec<Frame>,
    free: Vec<u32>,
}

impl Frames {
    pub(super) fn new() -> Frames {
        let zero = Frame {
            kind: FrameKind::Data,
            ..EMPTY
        };
        Frames {
            all: vec![EMPTY, zero],
            free: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn get(&self, frame: u32) -> &Frame {
        &self.all[frame as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, frame: u32) -> &mut Frame {
        &mut self.all[frame as usize]
    }

    pub(super) fn take(&mut self, kind: FrameKind) -> u32 {
        let frame = self.free.pop().unwrap_or_else(|| {
            self.all.push(EMPTY);
            (self.all.len() - 1) as u32
        });
        self.get_mut(frame).kind = kind;
        frame
    }

    /// Frees a frame; its TLB copies stay counted.
    pub(super) fn give_back(&mut self, frame: u32) {
        let f = self.get_mut(frame);
        assert!(f.kind != FrameKind::Free, "frame {frame} freed twice");
        *f = Frame {
            life: f.life + 1,
            copies: f.copies,
            mapped: f.mapped,
            ..EMPTY
        };
        self.free.push(frame);
    }
}

impl Hw {
    /// Allocates a frame for data, the last one freed if any.
    pub fn alloc_data(&mut self) -> u32 {
        self.frames.take(FrameKind::Data)
    }

    /// The shared page of zeros: always allocated, meant to be mapped read-only many times. Never free it.
    pub fn zero_page(&self) -> u32 {
        ZERO_PAGE
    }

    /// The use of a frame.
    pub fn frame_kind(&self, frame: u32) -> FrameKind {
        self.frames.get(frame).kind
    }

    /// How often a frame was freed: a (frame, life) pair names its contents.
    pub fn frame_life(&self, frame: u32) -> u32 {
        self.frames.get(frame).life
    }
}
