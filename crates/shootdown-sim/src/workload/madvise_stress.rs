//! `madvise_stress` (E4): threads drop (`MADV_DONTNEED`) random pages of one shared region and write them again; each
//! drop counts. There may be more threads than CPUs, which then take turns. With `process_threads` they are spread over
//! processes of that many threads, each process with a region of its own, as the workers of the published program. With
//! `all_advice` a call is one with any advice, as in that program, and each call counts.

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

/// Whether calls have any advice.
const ALL_ADVICE: Parameter = Parameter {
    path: "workload.madvise_stress.all_advice",
    default: 0.0,
    least: 0.0,
    most: 1.0,
    whole: true,
    about: "1: any advice and reads of smaps, as stress-ng's stressor; 0: each call drops a page that was written",
};

pub(super) const PARAMETERS: &[Parameter] = &[PROCESS_THREADS, ALL_ADVICE];

/// Processes of `threads` threads.
pub(super) fn processes(threads: usize, parameters: &Parameters) -> usize {
    processes_of(parameters.count(&PROCESS_THREADS), threads)
}

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    let all_advice = thread.parameters.count(&ALL_ADVICE) == 1;
    let pages = if all_advice { ADVISED_PAGES } else { REGION / PAGE };
    // Threads are spread over the processes in turn: these are the first of each.
    if thread.index < thread.processes.len() {
        system.map(process, USER_BASE, REGION);
        if all_advice {
            (0..pages).for_each(|page| system.touch(process, USER_BASE + page * PAGE, Access::Write));
        }
    }
    while !machine::stop_requested() {
        let va = USER_BASE + machine::random_below(pages) * PAGE;
        if all_advice {
            advise(thread, va);
        } else {
            system.touch(process, va, Access::Write);
            system.drop_pages(process, va, 1);
        }
        thread.count(1);
    }
}

/// Kinds of advice of the published program: `madvise_options` in `core-madvise.c` of stress-ng 291fc4341.
const KINDS: u64 = 26;

/// One read of smaps for so many calls: one for 16, in the first of a thread's two loops (`stress-madvise.c`).
const CALLS_OF_A_READ: u64 = 32;

/// Pages of its region: 4 MiB (`DEFAULT_MADVISE_BYTES`). It maps all of them first. A read of smaps finds as many
/// regions: each page is one, since its neighbours had other advice.
const ADVISED_PAGES: u64 = 1024;

/// Regions that fit into the buffer of one section under the lock (`seq_read_iter`): 4 KiB, 770 bytes each in Linux
/// 6.18.
const REGIONS_OF_A_SECTION: u64 = 5;

/// Writing one region's lines, ns. Assumed, 500 to 3,400. E4's worker makes 13.64 rounds; if that is per second, 1,100
/// at most: a round has 512 reads, by 8 threads. A guest of Linux 6.18 took 3,350 (1,024 regions of a page each).
const REGION_NS: f64 = 1000.0;

/// A call with any advice for the page at `va`, and sometimes a read of the list of regions.
fn advise<const W: usize>(thread: &Thread<W>, va: u64) {
    let (system, process) = (&*thread.system, &*thread.process);
    match machine::random_below(KINDS) {
        // MADV_DONTNEED, MADV_DONTNEED_LOCKED.
        0..2 => system.drop_pages(process, va, 1),
        // MADV_POPULATE_READ, MADV_POPULATE_WRITE.
        2..4 => system.touch(process, va, Access::Write),
        // Those that mark the region, MADV_NORMAL to MADV_KEEPONFORK; the program replaces two more by MADV_NORMAL.
        4..19 => system.mark_region(process, va),
        // The rest finds nothing to do. Not simulated: MADV_FREE and MADV_COLD flush a page without dropping it.
        _ => system.read_regions(process, 1, 0),
    }
    if machine::random_below(CALLS_OF_A_READ) == 0 {
        let cycles = thread.model.cycles(REGION_NS * REGIONS_OF_A_SECTION as f64) as u64;
        system.read_regions(process, ADVISED_PAGES / REGIONS_OF_A_SECTION, cycles);
    }
}
