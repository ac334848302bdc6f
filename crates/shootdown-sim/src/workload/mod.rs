//! Workloads: what the simulated threads do.
//!
//! Each is a function that one thread runs until the machine's deadline; it counts finished operations.

mod gup;
mod mprotect_all;
mod parameters;
mod tlb_flush2;
mod tlb_shared;

pub use parameters::{PREFIX as PARAMETER_PREFIX, Parameter, Parameters, all as parameters};

use crate::os::{Process, System};
use std::cell::Cell;
use std::rc::Rc;

/// What a thread of a workload gets.
pub(crate) struct Thread<const W: usize> {
    pub system: Rc<System<W>>,
    /// The process that it is a thread of.
    pub process: Rc<Process<W>>,
    /// The numbers that the run may change.
    pub parameters: Rc<Parameters>,
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
    /// A process per CPU that toggles the protection of a range of its own.
    MprotectAll,
    /// Lockless walks that pin pages, and a freeing side of table pages.
    Gup,
}

impl Workload {
    /// All, with their names and a line about each.
    pub const ALL: [(&'static str, Workload, &'static str); 4] = [
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
            "mprotect_all",
            Workload::MprotectAll,
            "a process per CPU makes a range of its own read-only and writable again (one op: both calls)",
        ),
        (
            "gup",
            Workload::Gup,
            "each thread pins and unpins 8 pages of its own by lockless walks; some may free table pages meanwhile",
        ),
    ];

    /// The workload of that name.
    pub fn named(name: &str) -> Option<Workload> {
        Self::ALL
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|&(_, workload, _)| workload)
    }

    /// The numbers that `--set workload.NAME.PARAMETER=VALUE` can change.
    pub fn parameters(self) -> &'static [Parameter] {
        match self {
            Workload::TlbFlush2 | Workload::TlbShared => &[],
            Workload::MprotectAll => mprotect_all::PARAMETERS,
            Workload::Gup => gup::PARAMETERS,
        }
    }

    /// Whether its kernel walks page tables without a lock.
    pub(crate) fn walks(self) -> bool {
        self == Workload::Gup
    }

    /// Processes that `threads` threads are spread over, thread after thread.
    pub(crate) fn processes(self, threads: usize) -> usize {
        match self {
            Workload::TlbFlush2 | Workload::TlbShared | Workload::Gup => 1,
            Workload::MprotectAll => threads,
        }
    }

    /// Bytes of user address space of each process when `threads` threads run.
    pub(crate) fn bytes(self, threads: usize, parameters: &Parameters) -> u64 {
        match self {
            Workload::MprotectAll => mprotect_all::bytes(parameters),
            Workload::Gup => gup::bytes(threads, parameters),
            Workload::TlbFlush2 => threads as u64 * tlb_flush2::REGION,
            Workload::TlbShared => tlb_shared::REGION,
        }
    }

    /// What one thread does.
    pub(crate) fn run<const W: usize>(self, thread: &Thread<W>) {
        match self {
            Workload::TlbFlush2 => tlb_flush2::run(thread),
            Workload::TlbShared => tlb_shared::run(thread),
            Workload::MprotectAll => mprotect_all::run(thread),
            Workload::Gup => gup::run(thread),
        }
    }
}
