//! `malloc_churn` (E11): the loop of `ebizzy -M`. Each thread allocates a chunk, copies another one to it, searches it
//! and frees it; one operation is all of that.
//!
//! `-M` keeps `malloc` from using `mmap`: the chunk comes from the heap of the thread's own arena. Its pages are mapped
//! by faults as they are written, and freeing it returns the top of the heap by `MADV_DONTNEED`. Defaults are those of
//! ebizzy 0.3 (chunks of 65,536 words of 8 bytes, all copied) and of glibc (`heap_trim` keeps `M_TOP_PAD`, 128 KiB, of
//! the top): of 128 pages 32 stay mapped and 96 are dropped in one call. Each heap begins at a multiple of 64 MiB, so
//! that no two share a page table. ebizzy has twice as many threads as there are CPUs; here the number is given.

use super::{Parameter, Parameters, Thread};
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Bytes between the heaps of two threads: the span of a lowest-level table.
const HEAP: u64 = 2 << 20;

/// Pages of a chunk that are returned when it is freed.
const DROPPED: Parameter = Parameter {
    path: "workload.malloc_churn.dropped",
    default: 96.0,
    least: 1.0,
    most: 256.0,
    whole: true,
    about: "pages of a chunk that free drops (MADV_DONTNEED)",
};

/// Pages of a chunk that stay mapped.
const KEPT: Parameter = Parameter {
    path: "workload.malloc_churn.kept",
    default: 32.0,
    least: 0.0,
    most: 256.0,
    whole: true,
    about: "pages of a chunk that stay mapped when it is freed (M_TOP_PAD)",
};

/// Time to copy a page.
const COPY_NS: Parameter = Parameter {
    path: "workload.malloc_churn.copy_ns",
    default: 400.0,
    least: 0.0,
    most: 1e6,
    whole: false,
    about: "ns to copy a page (4 KiB at 10 GB/s; assumed 200..1000)",
};

pub(super) const PARAMETERS: &[Parameter] = &[DROPPED, KEPT, COPY_NS];

/// Bytes of the process.
pub(super) fn bytes(threads: usize) -> u64 {
    threads as u64 * HEAP
}

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    let parameters: &Parameters = &thread.parameters;
    let (kept, dropped) = (parameters.count(&KEPT), parameters.count(&DROPPED));
    let copy = (parameters.get(&COPY_NS) * thread.model.ghz) as u64;
    let base = USER_BASE + thread.index as u64 * HEAP;
    system.map(process, base, (kept + dropped) * PAGE);
    // Threads do not start in step.
    machine::charge(machine::random_below(1 + copy * (kept + dropped)));
    while !machine::stop_requested() {
        for page in 0..kept + dropped {
            system.touch(process, base + page * PAGE, Access::Write);
            machine::charge(copy);
        }
        system.drop_pages(process, base + kept * PAGE, dropped);
        thread.count(1);
    }
}
