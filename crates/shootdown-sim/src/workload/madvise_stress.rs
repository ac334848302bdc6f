//! `madvise_stress` (E4): threads drop (`MADV_DONTNEED`) random pages of one shared region and write them again; each
//! drop counts. There may be more threads than CPUs, which then take turns. With `process_threads` they are spread over
//! processes of that many threads, each process with a region of its own, as the workers of the published program.

use super::{Parameter, Parameters, Thread, processes_of};
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Bytes of the region. Assumed: the published program's is not known.
pub(super) const REGION: u64 = 16 << 20;

/// Threads of each process.
const PROCESS_THREADS: Parameter = Parameter {
    path: "workload.madvise_stress.process_threads",
    default: 0.0,
    least: 0.0,
    most: 8192.0,
    whole: true,
    about: "threads of each process, all of which share its region (0: one process for all)",
};

pub(super) const PARAMETERS: &[Parameter] = &[PROCESS_THREADS];

/// Processes of `threads` threads.
pub(super) fn processes(threads: usize, parameters: &Parameters) -> usize {
    processes_of(parameters.count(&PROCESS_THREADS), threads)
}

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    // Threads are spread over the processes in turn: these are the first of each.
    if thread.index < thread.processes.len() {
        system.map(process, USER_BASE, REGION);
    }
    while !machine::stop_requested() {
        let va = USER_BASE + machine::random_below(REGION / PAGE) * PAGE;
        system.touch(process, va, Access::Write);
        system.drop_pages(process, va, 1);
        thread.count(1);
    }
}
