//! `madvise_spin` (E4, E7): one thread repeatedly writes a page, drops it (`MADV_DONTNEED`), and counts. The other
//! threads of the process spin in user code, so every drop has to interrupt them all. If the page is not written
//! (`touch`), a drop finds nothing and flushes nothing: the call alone (E10). `pages_per_call` is the number of pages
//! of a drop; `calls_per_flush` drops are made as one call and share one flush.

use super::{Parameter, Parameters, Thread};
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Bytes of the region: the pages of all calls that share a flush.
pub(super) fn bytes(parameters: &Parameters) -> u64 {
    parameters.count(&PAGES_PER_CALL) * parameters.count(&CALLS_PER_FLUSH) * PAGE
}

/// Cycles of spinning between two checks of the deadline. A thread can be preempted after each; a few microseconds, far
/// below a time slice.
pub(super) const SPIN: u64 = 10_000;

/// Whether the page is written before it is dropped.
const TOUCH: Parameter = Parameter {
    path: "workload.madvise_spin.touch",
    default: 1.0,
    least: 0.0,
    most: 1.0,
    whole: true,
    about: "1: the page is written before each drop; 0: never, so that a drop has nothing to flush",
};

/// Pages that one call drops.
const PAGES_PER_CALL: Parameter = Parameter {
    path: "workload.madvise_spin.pages_per_call",
    default: 1.0,
    least: 1.0,
    most: 512.0,
    whole: true,
    about: "pages that one madvise drops (one op: a call)",
};

/// Calls that share a flush.
const CALLS_PER_FLUSH: Parameter = Parameter {
    path: "workload.madvise_spin.calls_per_flush",
    default: 1.0,
    least: 1.0,
    most: 64.0,
    whole: true,
    about: "madvise calls that are made as one (process_madvise) and share a flush",
};

pub(super) const PARAMETERS: &[Parameter] = &[TOUCH, PAGES_PER_CALL, CALLS_PER_FLUSH];

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    if thread.index > 0 {
        while !machine::stop_requested() {
            machine::charge(SPIN);
        }
        return;
    }
    let region = bytes(&thread.parameters);
    system.map(process, USER_BASE, region);
    let pages = thread.parameters.count(&PAGES_PER_CALL);
    let calls: Vec<_> = (USER_BASE..USER_BASE + region)
        .step_by((pages * PAGE) as usize)
        .map(|va| (va, pages))
        .collect();
    let touch = thread.parameters.count(&TOUCH) == 1;
    while !machine::stop_requested() {
        if touch {
            let addresses = (USER_BASE..USER_BASE + region).step_by(PAGE as usize);
            addresses.for_each(|va| system.touch(process, va, Access::Write));
        }
        system.drop_ranges(process, &calls);
        thread.count(calls.len() as u64);
    }
}
