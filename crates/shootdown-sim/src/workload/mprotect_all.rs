//! `mprotect_all`: every CPU runs a single-threaded process of its own, which repeatedly removes the write permission
//! of a private range and restores it. One operation is one such pair: two `mprotect` calls.
//!
//! Nothing is shared: any cost of an invalidation for other CPUs is overhead.
//!
//! The published text (E9) says only that all 32 CPUs run `mprotect` at once, and gives two times. Assumed here: each
//! CPU has a process of its own, the length of the range, the number of resident pages, and whether the range is
//! touched in between.

use super::{Parameter, Thread};
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Range of each process.
const PAGES: Parameter = Parameter {
    path: "workload.mprotect_all.pages",
    default: 1.0,
    least: 1.0,
    most: 4096.0,
    whole: true,
    about: "pages of the range, all resident (1: the most invalidations for the work around them)",
};

/// Writes of each page between restoring the permission and removing it again.
const TOUCHES: Parameter = Parameter {
    path: "workload.mprotect_all.touches",
    default: 1.0,
    least: 0.0,
    most: 1000.0,
    whole: true,
    about: "writes of each page per operation, while it is writable",
};

pub(super) const PARAMETERS: &[Parameter] = &[PAGES, TOUCHES];

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    let pages = thread.parameters.count(&PAGES);
    let touches = thread.parameters.count(&TOUCHES);
    let range = || (0..pages).map(|page| USER_BASE + page * PAGE);
    system.map(process, USER_BASE, pages * PAGE);
    range().for_each(|va| system.touch(process, va, Access::Write));
    while !machine::stop_requested() {
        system.protect(process, USER_BASE, pages, false);
        system.protect(process, USER_BASE, pages, true);
        for _ in 0..touches {
            range().for_each(|va| system.touch(process, va, Access::Write));
        }
        thread.count(1);
    }
}

/// Bytes of each process.
pub(super) fn bytes(parameters: &super::Parameters) -> u64 {
    parameters.count(&PAGES) * PAGE
}
