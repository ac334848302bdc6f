//! `madvise_stress` (E4): workers drop (`MADV_DONTNEED`) random pages of one shared region and write them again; each drop
//! counts. There may be more workers than CPUs: then they take turns.

use super::Thread;
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Bytes of the region. Ours: the published program's is not known.
pub(super) const REGION: u64 = 16 << 20;

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    if thread.index == 0 {
        system.map(process, USER_BASE, REGION);
    }
    while !machine::stop_requested() {
        let va = USER_BASE + machine::random_below(REGION / PAGE) * PAGE;
        system.touch(process, va, Access::Write);
        system.drop_pages(process, va, 1);
        thread.count();
    }
}
