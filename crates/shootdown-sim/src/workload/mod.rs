//! Workloads: the programs of the simulated threads.
//!
//! Each is a function that one thread runs until the machine's deadline; it counts finished operations.

mod build;
mod context_switch;
mod gup;
mod latency;
mod madvise_spin;
mod madvise_stress;
mod malloc_churn;
mod migrate;
mod mmap_churn;
mod mprotect_all;
mod parameters;
mod reclaim;
mod tlb_flush2;
mod tlb_flush_file;
mod tlb_shared;
mod unmap_shared;

pub use parameters::{PREFIX as PARAMETER_PREFIX, Parameter, Parameters, all as parameters};

use crate::model::Model;
use crate::os::{Process, System};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// State that the threads of a workload share, apart from processes.
pub(crate) enum Commons<const W: usize> {
    /// Nothing.
    Nothing,
    /// Of `build`.
    Build(build::Commons<W>),
    /// Of `unmap_shared`.
    UnmapShared(unmap_shared::Commons),
    /// Of `migrate`.
    Migrate(migrate::Commons),
}

/// Arguments of a thread of a workload.
pub(crate) struct Thread<const W: usize> {
    pub system: Rc<System<W>>,
    /// Its process.
    pub process: Rc<Process<W>>,
    /// All processes that the run began with.
    pub processes: Rc<[Rc<Process<W>>]>,
    /// Other state that all threads share.
    pub commons: Rc<Commons<W>>,
    /// The machine.
    pub model: Arc<Model>,
    /// Seed of the run.
    pub seed: u64,
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
    /// Counts finished operations.
    fn count(&self, operations: u64) {
        self.operations.set(self.operations.get() + operations);
    }
}

/// Number of processes for `threads` threads when each has `each` of them; 0: all are in one.
fn processes_of(each: u64, threads: usize) -> usize {
    match each as usize {
        0 => 1,
        each => threads.div_ceil(each),
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
    /// Lockless walks that pin pages, and a freeing side of page-table pages.
    Gup,
    /// `TlbFlush2` on private file mappings.
    TlbFlush1,
    /// `TlbFlush2` on shared file mappings.
    TlbFlush3,
    /// Many short processes.
    Build,
    /// Batches of pages taken from many processes.
    Reclaim,
    /// Switches between processes and idle.
    ContextSwitch,
    /// One page written and dropped, while the other threads spin.
    MadviseSpin,
    /// Random pages of a shared region dropped, by more threads than there are CPUs if necessary.
    MadviseStress,
    /// A mixed load for distributions.
    Latency,
    /// Small private regions, mapped, written and unmapped.
    MmapChurn,
    /// Chunks of each thread's heap, written and returned.
    MallocChurn,
    /// Pages that all threads have read, unmapped by one.
    UnmapShared,
    /// Pages that move to other frames.
    Migrate,
}

impl Workload {
    /// All, with their names and one-line descriptions.
    pub const ALL: [(&'static str, Workload, &'static str); 16] = [
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
            "each thread pins and unpins 8 pages of its own by lockless walks; \
             some may free page-table pages meanwhile",
        ),
        (
            "tlb_flush1",
            Workload::TlbFlush1,
            "the loop of tlb_flush2 on a private mapping of a cached file",
        ),
        (
            "tlb_flush3",
            Workload::TlbFlush3,
            "the loop of tlb_flush2 on a shared mapping of a cached file",
        ),
        (
            "build",
            Workload::Build,
            "a parallel compile: short processes with the flushes of a recorded one (one op: \
             a millisecond of its computing)",
        ),
        (
            "reclaim",
            Workload::Reclaim,
            "a kernel thread takes pages in batches from a process on each other CPU (one op: a page taken)",
        ),
        (
            "context_switch",
            Workload::ContextSwitch,
            "CPUs switch between two processes and idle while pages are dropped (one op: a switch to user code)",
        ),
        (
            "madvise_spin",
            Workload::MadviseSpin,
            "one thread repeatedly writes and drops (MADV_DONTNEED) one page, the others spin",
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
        (
            "mmap_churn",
            Workload::MmapChurn,
            "each thread maps 64 KiB at a free address, writes each page and unmaps it (one op: all of that)",
        ),
        (
            "malloc_churn",
            Workload::MallocChurn,
            "each thread, also more than CPUs, \
             fills 512 KiB of its heap and returns most of it in one call (ebizzy -M)",
        ),
        (
            "unmap_shared",
            Workload::UnmapShared,
            "one thread unmaps or drops pages that all others have just read (one op: \
             a call, whose times are \"call\")",
        ),
        (
            "migrate",
            Workload::Migrate,
            "one thread moves pages to other frames in batches while the others read them (one op: a page)",
        ),
    ];

    /// The workload of that name.
    pub fn named(name: &str) -> Option<Workload> {
        Self::ALL
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|&(_, workload, _)| workload)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        let of = Self::ALL.iter().find(|&&(_, workload, _)| workload == self);
        of.map_or("", |&(name, ..)| name)
    }

    /// The numbers that `--set workload.NAME.PARAMETER=VALUE` can change.
    pub fn parameters(self) -> &'static [Parameter] {
        match self {
            Workload::TlbShared | Workload::Latency => &[],
            Workload::TlbFlush1 => tlb_flush_file::PRIVATE,
            Workload::UnmapShared => unmap_shared::PARAMETERS,
            Workload::Migrate => migrate::PARAMETERS,
            Workload::TlbFlush2 => tlb_flush2::PARAMETERS,
            Workload::MmapChurn => mmap_churn::PARAMETERS,
            Workload::MallocChurn => malloc_churn::PARAMETERS,
            Workload::MadviseSpin => madvise_spin::PARAMETERS,
            Workload::MadviseStress => madvise_stress::PARAMETERS,
            Workload::TlbFlush3 => tlb_flush_file::SHARED,
            Workload::MprotectAll => mprotect_all::PARAMETERS,
            Workload::Gup => gup::PARAMETERS,
            Workload::Build => build::PARAMETERS,
            Workload::Reclaim => reclaim::PARAMETERS,
            Workload::ContextSwitch => context_switch::PARAMETERS,
        }
    }

    /// Whether its kernel walks page tables without a lock.
    pub(crate) fn walks(self) -> bool {
        self == Workload::Gup
    }

    /// Processes that `threads` threads are spread over, thread after thread.
    pub(crate) fn processes(self, threads: usize, parameters: &Parameters) -> usize {
        match self {
            Workload::TlbShared
            | Workload::Gup
            | Workload::MadviseSpin
            | Workload::Latency
            | Workload::MmapChurn
            | Workload::MallocChurn
            | Workload::UnmapShared
            | Workload::Migrate => 1,
            Workload::TlbFlush1 => tlb_flush_file::processes(false, threads, parameters),
            Workload::TlbFlush3 => tlb_flush_file::processes(true, threads, parameters),
            Workload::TlbFlush2 => tlb_flush2::processes(threads, parameters),
            Workload::MadviseStress => madvise_stress::processes(threads, parameters),
            Workload::MprotectAll | Workload::Reclaim => threads,
            // It makes its own processes; a thread begins in one that does nothing.
            Workload::Build => 1,
            Workload::ContextSwitch => context_switch::processes(parameters),
        }
    }

    /// Whether a process of one thread runs on one CPU only.
    pub(crate) fn stays_apart(self) -> bool {
        matches!(
            self,
            Workload::TlbFlush1 | Workload::TlbFlush2 | Workload::TlbFlush3 | Workload::MprotectAll
        )
    }

    /// Most processes that the threads make for themselves and have at the same time.
    pub(crate) fn processes_at_once(self, threads: usize) -> usize {
        match self {
            Workload::Build => 4 * (threads + 1),
            _ => 0,
        }
    }

    /// Upper bound of the processes that one thread makes in `ms` virtual milliseconds.
    pub(crate) fn processes_made(self, ms: f64, parameters: &Parameters) -> usize {
        match self {
            Workload::Build => build::most_processes(ms, parameters),
            _ => 0,
        }
    }

    /// Bytes of user address space of each process when `threads` threads run.
    pub(crate) fn bytes(self, threads: usize, parameters: &Parameters) -> u64 {
        match self {
            Workload::MprotectAll => mprotect_all::bytes(parameters),
            Workload::Gup => gup::bytes(threads, parameters),
            Workload::TlbFlush2 => tlb_flush2::bytes(threads, parameters),
            Workload::TlbFlush1 | Workload::TlbFlush3 => {
                threads.div_ceil(self.processes(threads, parameters)) as u64 * tlb_flush_file::REGION
            }
            Workload::Build => build::BYTES,
            Workload::Reclaim => reclaim::bytes(parameters),
            Workload::ContextSwitch => context_switch::bytes(parameters),
            Workload::TlbShared => tlb_shared::REGION,
            Workload::MadviseSpin => madvise_spin::bytes(parameters),
            Workload::MadviseStress => madvise_stress::REGION,
            Workload::Latency => latency::bytes(threads),
            Workload::MmapChurn => threads as u64 * mmap_churn::span(parameters),
            Workload::MallocChurn => malloc_churn::bytes(threads),
            Workload::UnmapShared => unmap_shared::bytes(parameters),
            Workload::Migrate => migrate::REGION,
        }
    }

    /// State that its threads share.
    pub(crate) fn commons<const W: usize>(self, system: &System<W>) -> Commons<W> {
        match self {
            Workload::Build => Commons::Build(build::Commons::new(system)),
            Workload::UnmapShared => Commons::UnmapShared(unmap_shared::Commons::new(system)),
            Workload::Migrate => Commons::Migrate(migrate::Commons::new(system)),
            _ => Commons::Nothing,
        }
    }

    /// Factor on the length of its measurement, so that it has enough operations.
    pub(crate) fn patience(self) -> f64 {
        match self {
            Workload::Build => 10.0,
            _ => 1.0,
        }
    }

    /// Whether there may be more threads than CPUs.
    pub fn oversubscribes(self) -> bool {
        matches!(
            self,
            Workload::MadviseStress | Workload::Latency | Workload::MallocChurn
        )
    }

    /// The program of a real-time thread on each CPU, if the workload has them.
    pub(crate) fn bystander<const W: usize>(self) -> Option<fn(&Thread<W>)> {
        (self == Workload::Latency).then_some(latency::bystander)
    }

    /// The program of one thread.
    pub(crate) fn run<const W: usize>(self, thread: &Thread<W>) {
        match self {
            Workload::TlbFlush2 => tlb_flush2::run(thread),
            Workload::TlbShared => tlb_shared::run(thread),
            Workload::MprotectAll => mprotect_all::run(thread),
            Workload::Gup => gup::run(thread),
            Workload::TlbFlush1 => tlb_flush_file::run(thread, false),
            Workload::TlbFlush3 => tlb_flush_file::run(thread, true),
            Workload::Build => {
                if let Commons::Build(commons) = &*thread.commons {
                    build::run(thread, commons);
                }
            }
            Workload::Reclaim => reclaim::run(thread),
            Workload::ContextSwitch => context_switch::run(thread),
            Workload::MadviseSpin => madvise_spin::run(thread),
            Workload::MadviseStress => madvise_stress::run(thread),
            Workload::Latency => latency::run(thread),
            Workload::MmapChurn => mmap_churn::run(thread),
            Workload::MallocChurn => malloc_churn::run(thread),
            Workload::UnmapShared => {
                if let Commons::UnmapShared(commons) = &*thread.commons {
                    unmap_shared::run(thread, commons);
                }
            }
            Workload::Migrate => {
                if let Commons::Migrate(commons) = &*thread.commons {
                    migrate::run(thread, commons);
                }
            }
        }
    }
}
