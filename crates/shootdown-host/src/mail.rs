//! Broadcasts that are pending at a CPU.

use crossbeam_queue::ArrayQueue;
use shootdown::Broadcast;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Most pending broadcasts of one CPU. Beyond that it flushes everything instead (C6).
const LETTERS: usize = 32;

pub(crate) struct Mail {
    pub(crate) letters: ArrayQueue<Broadcast>,
    pub(crate) overflowed: AtomicBool,
    pub(crate) posted: AtomicU64,
    /// How many of the posted ones are carried out.
    pub(crate) done: AtomicU64,
}

impl Mail {
    pub(crate) fn new() -> Self {
        Mail {
            letters: ArrayQueue::new(LETTERS),
            overflowed: AtomicBool::new(false),
            posted: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }
}
