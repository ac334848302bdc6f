//! What tags that all CPUs share keep: in the engine the roll-over's epoch and lock, in each CPU the tag that it runs
//! under. Where spaces are promoted, a count in each CPU.
//!
//! `rollover.rs` and `adaptive/sampling.rs` say how they are read and written.

use crate::cache_padded::CachePadded;
use crate::facade::{Facade, Word};

/// The roll-over allocator, beside the pool of tags.
pub(crate) struct RollOver<F: Facade> {
    /// Current epoch, from 1. Written under the lock.
    pub(super) epoch: CachePadded<F::U64>,
    /// The number of the CPU that holds the lock, plus one; 0 if it is free. Held in the slow path of a switch, with
    /// interrupts off, and never while waiting for another CPU (regression 11).
    pub(super) lock: CachePadded<F::U64>,
}

/// Per-CPU words of the roll-over allocator; the last one is for promoted spaces, which no such allocator has.
#[repr(C, align(64))]
pub(crate) struct Running<F: Facade> {
    /// The packed `Mode::Rolled` that this CPU runs under; 0 after a roll-over has cleared it.
    pub(super) active: F::U64,
    /// The mode that it ran under at the last roll-over.
    pub(super) reserved: F::U64,
    /// 1 if it must flush itself before it runs under any tag of the new epoch. Accessed under the lock.
    pub(super) flush_pending: F::U64,
    /// Flushes on this CPU that took no generation, where reach is adaptive: they are sampled by this count. It begins
    /// at the CPU's number, so that CPUs take their samples in turn. Written pinned, with interrupts on: if a handler
    /// flushes, one count is lost.
    pub(crate) flushes: F::U64,
}

impl<F: Facade> RollOver<F> {
    pub(crate) fn new() -> Self {
        RollOver {
            epoch: CachePadded(F::U64::new(1)),
            lock: CachePadded(F::U64::new(0)),
        }
    }
}

impl<F: Facade> Running<F> {
    pub(crate) fn new() -> Self {
        Running {
            active: F::U64::new(0),
            reserved: F::U64::new(0),
            flush_pending: F::U64::new(0),
            flushes: F::U64::new(0),
        }
    }
}
