//! The table of cache lines: the owner of each, the requests queued for it, and the CPUs that wait for a change of it.
//!
//! Owns the table. What an access costs and changes is in `line_access` and `contention`. Values live in the words
//! themselves. The line of a word is its arena offset, except on stacks, where the offset depends on how a compiler
//! laid out frames: lines there get numbers in the order of first use, which are released when a word on them is
//! dropped. Line 0 stands for everything outside the arena; it always costs a first-level hit.

use super::arena::{LINE, Mapping};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// One cache line of simulated memory, for operations on things that are not words (page-table entries, say).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(pub(crate) u32);

impl LineId {
    /// The line `index` lines after this one.
    pub fn offset(self, index: usize) -> LineId {
        LineId(self.0 + index as u32)
    }
}

/// State of one line; all zero = never touched.
#[repr(C)]
pub(crate) struct Line {
    /// End of the latest transfer that others queue for, ticks: of a write, or of the first read after one.
    pub busy: Cell<u64>,
    /// Incremented by two whenever another CPU's copy is invalidated; bit 0: some CPU waits for a change.
    pub version: Cell<u32>,
    /// Last writer (or first user), as CPU name; 0 = none.
    pub owner: Cell<u16>,
    /// The farthest CPU known to have a copy, other than the owner; 0 = the owner has the only one.
    pub sharer: Cell<u16>,
}

impl Line {
    /// Whether its owner has the only copy, so that the next reader has to take it from there.
    #[inline]
    pub(crate) fn is_modified(&self) -> bool {
        self.sharer.get() == 0
    }
}

/// Set in `Line::version` while a CPU waits.
pub(crate) const WAITED: u32 = 1;

#[derive(Default)]
pub(super) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0 ^ u64::from(value))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }
}

/// Requests of one cluster that are served consecutively.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    /// Place of the CPU with the first request.
    pub place: u64,
    /// When the first is served, ticks.
    pub start: u64,
    /// When the last is complete, ticks.
    pub end: u64,
}

/// The waiting batches of each busy line, in the order of service. Looked up, never iterated.
#[derive(Default)]
pub(super) struct Queues(pub(super) RefCell<HashMap<u32, Vec<Batch>, BuildHasherDefault<LineHasher>>>);

/// The line table.
pub(crate) struct Lines {
    base: usize,
    count: usize,
    table: Mapping,
    stacks: StackLines,
    /// Requests for busy lines.
    pub(super) queues: Queues,
    /// Waiting CPUs by line; only ever looked up, never iterated.
    pub(super) waiters: RefCell<HashMap<u32, Vec<u16>, BuildHasherDefault<LineHasher>>>,
}

/// The numbers of lines on stacks.
struct StackLines {
    /// First line, by offset, that can be on a stack.
    start: Cell<usize>,
    /// Lines of one stack; stacks are cut off from the end of the arena.
    each: usize,
    /// Number of each line in use, by offset; 0 = none.
    numbers: Mapping,
    /// The next unused number.
    fresh: Cell<u32>,
    /// Released numbers, by stack, the last first: a stack continues with lines that its CPU held.
    free: RefCell<Vec<Vec<u32>>>,
}

impl Lines {
    /// A table for `count` lines from address `base` on, those from offset `stacks` on for stacks of `each` lines.
    pub(crate) fn new(base: usize, count: usize, stacks: usize, each: usize) -> Self {
        let table = Mapping::new(count * size_of::<Line>());
        table.prefer_large_pages();
        Lines {
            base,
            count,
            table,
            stacks: StackLines {
                start: Cell::new(stacks),
                each,
                numbers: Mapping::new(count * size_of::<u32>()),
                fresh: Cell::new(stacks as u32),
                free: RefCell::default(),
            },
            queues: Queues::default(),
            waiters: RefCell::default(),
        }
    }

    /// The line of a host address.
    #[inline]
    pub(crate) fn of(&self, address: usize) -> u32 {
        let index = address.wrapping_sub(self.base) / LINE;
        if index < self.stacks.start.get() {
            index as u32
        } else if index < self.count {
            self.on_stack(index)
        } else {
            0
        }
    }

    /// Says that stacks reach down to offset `index`.
    pub(crate) fn stacks_from(&self, index: usize) {
        self.stacks.start.set(self.stacks.start.get().min(index));
    }

    #[inline]
    fn number(&self, index: usize) -> &Cell<u32> {
        debug_assert!(index < self.count);
        // SAFETY: every caller has compared `index` with `count`; the mapping has `count` zeroed entries.
        unsafe { &*self.stacks.numbers.start().cast::<Cell<u32>>().add(index) }
    }

    #[inline]
    fn on_stack(&self, index: usize) -> u32 {
        match self.number(index).get() {
            0 => self.give_number(index),
            number => number,
        }
    }

    /// Which stack a line is on.
    fn stack_of(&self, index: usize) -> usize {
        (self.count - 1 - index) / self.stacks.each
    }

    #[inline(never)]
    fn give_number(&self, index: usize) -> u32 {
        let mut free = self.stacks.free.borrow_mut();
        let number = free
            .get_mut(self.stack_of(index))
            .and_then(Vec::pop)
            .unwrap_or_else(|| {
                let number = self.stacks.fresh.get();
                assert!((number as usize) < self.count, "too many words on stacks");
                self.stacks.fresh.set(number + 1);
                number
            });
        self.number(index).set(number);
        number
    }

    /// The word at `address` is dropped: if its line is on a stack, the line's number is released.
    #[inline]
    pub(crate) fn forget(&self, address: usize) {
        let index = address.wrapping_sub(self.base) / LINE;
        if index >= self.stacks.start.get() && index < self.count && self.number(index).get() != 0 {
            self.take_number(index);
        }
    }

    #[inline(never)]
    fn take_number(&self, index: usize) {
        let (stack, number) = (self.stack_of(index), self.number(index).replace(0));
        let mut free = self.stacks.free.borrow_mut();
        if free.len() <= stack {
            free.resize_with(stack + 1, Vec::new);
        }
        free[stack].push(number);
    }

    #[inline]
    pub(crate) fn get(&self, line: u32) -> &Line {
        debug_assert!((line as usize) < self.count);
        // SAFETY: line numbers come from `of` or from the arena, so they are below `count`; the table has `count`
        // zeroed entries, and zero is a valid `Line`.
        unsafe { &*self.table.start().cast::<Line>().add(line as usize) }
    }
}

/// The per-CPU table's record of a read.
#[inline]
pub(crate) fn tag(line: u32, version: u32) -> u64 {
    u64::from(line) << 32 | u64::from(version | WAITED)
}

/// The position of the 16-bit group in which two places differ, counted from the low end; 0: none (see `Core::places`).
/// For several differences OR-ed together: the farthest.
#[inline]
pub(crate) fn distance_of(apart: u64) -> usize {
    debug_assert!(apart < 1 << 48);
    (apart << 1 | 1).ilog2().div_ceil(16) as usize
}
