//! Workloads: what the simulated threads do.
//!
//! Each is a function that one thread runs until the machine's deadline; it counts finished operations.

mod latency;
mod madvise_spin;
mod madvise_stress;
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
    /// Cycles per nanosecond.
    pub ghz: f64,
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
    /// Random pages of a shared region dropped, by more threads than there are CPUs if need be.
    MadviseStress,
    /// A mixed load for distributions.
    Latency,
}

impl Workload {
    /// All, with their names and a line about each.
    pub const ALL: [(&'static str, Workload, &'static str); 5] = [
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
        (
            "madvise_stress",
            Workload::MadviseStress,
            "all threads, also more than CPUs, write and drop random pages of one 16 MiB region",
        ),
        (
            "latency",
            Workload::Latency,
            "some threads drop pages, others spin, with long sections with interrupts or preemption off",
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
            Workload::MadviseStress => madvise_stress::REGION,
            Workload::Latency => latency::bytes(threads),
        }
    }

    /// Whether there may be more threads than CPUs.
    pub fn oversubscribes(self) -> bool {
        matches!(self, Workload::MadviseStress | Workload::Latency)
    }

    /// What a real-time thread on each CPU does besides, if the workload has them.
    pub(crate) fn bystander<const W: usize>(self) -> Option<fn(&Thread<W>)> {
        (self == Workload::Latency).then_some(latency::bystander)
    }

    /// What one thread does.
    pub(crate) fn run<const W: usize>(self, thread: &Thread<W>) {
        match self {
            Workload::TlbFlush2 => tlb_flush2::run(thread),
            Workload::TlbShared => tlb_shared::run(thread),
            Workload::MadviseSpin => madvise_spin::run(thread),
            Workload::MadviseStress => madvise_stress::run(thread),
            Workload::Latency => latency::run(thread),
        }
    }
}
