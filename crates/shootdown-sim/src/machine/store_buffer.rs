//! Stores that wait in a CPU's store buffer, and the CPUs that have some.
//!
//! Owns what a buffered store consists of. When a store enters, drains and becomes visible is in `memory`.

use super::config::NEVER;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::AtomicU64;

/// The destination of a buffered store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A word in the arena, which stays mapped for the machine's lifetime.
    Word(*const AtomicU64),
    /// A number that the store hook interprets.
    Other(u64),
}

/// A store that other CPUs do not see yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffered {
    pub target: Target,
    pub value: u64,
    pub line: u32,
    /// Arrival time of its line, ticks.
    pub gained: u64,
    /// When it becomes visible, ticks.
    pub drain: u64,
}

/// The CPUs with buffered stores, by the drain time of their oldest.
pub(crate) struct Drains {
    pub heads: RefCell<BinaryHeap<Reverse<(u64, u16)>>>,
    /// Drain time of the first, `NEVER` when no store is buffered.
    pub next: Cell<u64>,
}

impl Default for Drains {
    fn default() -> Self {
        Drains {
            heads: RefCell::default(),
            next: Cell::new(NEVER),
        }
    }
}
