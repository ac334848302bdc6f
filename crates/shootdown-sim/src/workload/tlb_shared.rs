//! `tlb_shared`: one region for all threads. Every fourth thread, from the first, writes random pages and drops them,
//! occasionally a run of pages beyond the flush ceiling, and counts each. The others read and sometimes write random
//! pages of the same region, so that they hold translations that the droppers withdraw.

use super::Thread;
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Bytes of the region.
pub(super) const REGION: u64 = 1 << 20;

/// Pages of the region.
const PAGES: u64 = REGION / PAGE;

/// Pages that most accesses go to, so that threads meet.
const HOT: u64 = 32;

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    if thread.index == 0 {
        system.map(process, USER_BASE, REGION);
    }
    let random_page = || {
        let among = if machine::chance(0.75) { HOT } else { PAGES };
        machine::random_below(among)
    };
    while !machine::stop_requested() {
        if thread.index.is_multiple_of(4) {
            let first = random_page();
            let pages = if machine::chance(0.03) {
                48.min(PAGES - first)
            } else {
                1
            };
            system.touch(process, USER_BASE + first * PAGE, Access::Write);
            system.drop_pages(process, USER_BASE + first * PAGE, pages);
            thread.count(1);
        }
        let reads = if thread.index.is_multiple_of(4) && thread.threads > 1 {
            8
        } else {
            64
        };
        for _ in 0..reads {
            let access = if machine::chance(0.02) {
                Access::Write
            } else {
                Access::Read
            };
            system.touch(process, USER_BASE + random_page() * PAGE, access);
        }
    }
}
