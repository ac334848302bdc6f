//! `madvise_spin` (E4, E7): one thread writes a page and drops it (`MADV_DONTNEED`), again and again, and counts each;
//! the other threads of the process spin in user code, so that every drop has to interrupt them all. Where the page is
//! not written (`touch`), a drop finds nothing and flushes nothing: the call alone (E10).

use super::{Parameter, Thread};
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Bytes of the region: one page.
pub(super) const REGION: u64 = PAGE;

/// Cycles of spinning between two looks at the deadline. A thread can be preempted after each; a few microseconds, far
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

pub(super) const PARAMETERS: &[Parameter] = &[TOUCH];

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    if thread.index > 0 {
        while !machine::stop_requested() {
            machine::charge(SPIN);
        }
        return;
    }
    system.map(process, USER_BASE, REGION);
    let touch = thread.parameters.count(&TOUCH) == 1;
    while !machine::stop_requested() {
        if touch {
            system.touch(process, USER_BASE, Access::Write);
        }
        system.drop_pages(process, USER_BASE, 1);
        thread.count();
    }
}
