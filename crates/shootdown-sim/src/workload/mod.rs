//! Workloads: what the simulated threads do.
//!
//! Each is a function that one thread runs until the machine's deadline; it counts finished operations.

mod madvise_spin;
mod tlb_flush2;
mod tlb_shared;

use crate::os::{Process, System};
use std::cell::Cell;
use std::rc::Rc;

/// What a thread of a workload gets.
pub(crate) struct Thread<const W: usize> {
    pub system: Rc<System<W>>,
    pub process: Rc<Process<W>>,
    /// Number of this thread, from 0.
    pub index: usize,
    /// Threads in all.
    pub threads: usize,
    /// Operations that this thread has finished.
    pub operations: Rc<Cell<u64>>,
}

impl<const W: usize> Thread<W> {
    fn count(&self) {
        self.operations.set(self.operations.get() + 1);
    }
}

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Private regions: write a page, drop it, read it back.
    TlbFlush2,
    /// The same on one region shared by all threads, with readers on other CPUs.
    TlbShared,
    /// One page written and dropped, while the other threads spin.
    MadviseSpin,
}

impl Workload {
    /// All, with their names and a line about each.
    pub const ALL: [(&'static str, Workload, &'static str); 3] = [
        (
            "tlb_flush2",
            Workload::TlbFlush2,
            "each thread writes, drops (MADV_DONTNEED) and reads back the pages of a 1 MiB region of its own",
        ),
        (
            "tlb_shared",
            Workload::TlbShared,
            "one 1 MiB region for all threads: some write and drop pages, the others read them meanwhile",
        ),
        (
            "madvise_spin",
            Workload::MadviseSpin,
            "one thread writes and drops (MADV_DONTNEED) one page again and again, the others spin",
        ),
    ];

    /// The workload of that name.
    pub fn named(name: &str) -> Option<Workload> {
        Self::ALL
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|&(_, workload, _)| workload)
    }

    /// Bytes of user address space that `threads` threads need.
    pub(crate) fn bytes(self, threads: usize) -> u64 {
        match self {
            Workload::TlbFlush2 => threads as u64 * tlb_flush2::REGION,
            Workload::TlbShared => tlb_shared::REGION,
            Workload::MadviseSpin => madvise_spin::REGION,
        }
    }

    /// What one thread does.
    pub(crate) fn run<const W: usize>(self, thread: &Thread<W>) {
        match self {
            Workload::TlbFlush2 => tlb_flush2::run(thread),
            Workload::TlbShared => tlb_shared::run(thread),
            Workload::MadviseSpin => madvise_spin::run(thread),
        }
    }
}
