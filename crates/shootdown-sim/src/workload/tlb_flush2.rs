//! `tlb_flush2`: each thread maps a private 1 MiB anonymous region; for each 4 KiB page it writes a byte (fault), drops
//! the page, reads it back as zero (fault) and counts one; after 256 pages it unmaps the region and maps it again.
//!
//! Regions are adjacent, as `mmap` places them, so two share each lowest-level table. The threads start at random
//! pages: over a long run they drift apart, and a short run should not have them unmap in step.
//!
//! With `pages_per_call` one `madvise` drops that many pages. With `calls_per_flush` that many of these calls are made
//! as one (Linux's `process_madvise` with a vector) and share one flush: all pages are written, dropped, and read back.
//! A page is one operation, in either case.
//!
//! With `process_threads` they are spread over processes of that many threads (E10: two of one thread each, which never
//! interrupt each other).

use super::{Parameter, Parameters, Thread, processes_of};
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Bytes of one thread's region.
pub(super) const REGION: u64 = 1 << 20;

/// Threads of each process.
const PROCESS_THREADS: Parameter = Parameter {
    path: "workload.tlb_flush2.process_threads",
    default: 0.0,
    least: 0.0,
    most: 8192.0,
    whole: true,
    about: "threads of each process (0: one process for all)",
};

/// Pages that one call drops.
const PAGES_PER_CALL: Parameter = Parameter {
    path: "workload.tlb_flush2.pages_per_call",
    default: 1.0,
    least: 1.0,
    most: (REGION / PAGE) as f64,
    whole: true,
    about: "pages that one madvise drops (one op: a page)",
};

/// Calls that share a flush.
const CALLS_PER_FLUSH: Parameter = Parameter {
    path: "workload.tlb_flush2.calls_per_flush",
    default: 1.0,
    least: 1.0,
    most: (REGION / PAGE) as f64,
    whole: true,
    about: "madvise calls that are made as one (process_madvise) and share a flush",
};

pub(super) const PARAMETERS: &[Parameter] = &[PROCESS_THREADS, PAGES_PER_CALL, CALLS_PER_FLUSH];

/// Processes of `threads` threads.
pub(super) fn processes(threads: usize, parameters: &Parameters) -> usize {
    processes_of(parameters.count(&PROCESS_THREADS), threads)
}

/// Bytes of user address space of a process: the regions of its threads, which differ by one at most.
pub(super) fn bytes(threads: usize, parameters: &Parameters) -> u64 {
    threads.div_ceil(processes(threads, parameters)) as u64 * REGION
}

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    run_on(thread, REGION, |base| thread.system.map(&thread.process, base, REGION));
}

/// The loop, on a region of `region` bytes that `map` maps at the given address.
pub(super) fn run_on<const W: usize>(thread: &Thread<W>, region: u64, map: impl Fn(u64)) {
    let (system, process) = (&*thread.system, &*thread.process);
    // Threads are spread over the processes in turn.
    let base = USER_BASE + (thread.index / thread.processes.len()) as u64 * region;
    let pages_per_call = thread.parameters.count(&PAGES_PER_CALL);
    let pages_per_flush = pages_per_call * thread.parameters.count(&CALLS_PER_FLUSH);
    let mut page = machine::random_below(region / PAGE);
    map(base);
    while !machine::stop_requested() {
        let end = (page + pages_per_flush).min(region / PAGE);
        let touch = |access| (page..end).for_each(|page| system.touch(process, base + page * PAGE, access));
        touch(Access::Write);
        let calls: Vec<_> = (page..end)
            .step_by(pages_per_call as usize)
            .map(|first| (base + first * PAGE, pages_per_call.min(end - first)))
            .collect();
        system.drop_ranges(process, &calls);
        touch(Access::Read);
        thread.count(end - page);
        page = end;
        if page == region / PAGE {
            page = 0;
            system.unmap(process, base, region);
            map(base);
        }
    }
}
