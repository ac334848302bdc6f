//! `mmap_churn`: each thread maps a private region of 16 pages, writes each, unmaps it, and counts one: what a program does
//! whose allocator gives large blocks back at once.
//!
//! The kernel chooses the address: the lowest of a few places that is free, so that a place in quarantine is passed over.
//! A page next to them stays mapped, as a program's other memory does, so that unmapping frees no table.

use super::Thread;
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Bytes of address space of each thread: what one lowest-level table maps.
pub(super) const SPAN: u64 = 2 << 20;

/// Bytes of one mapping.
const REGION: u64 = 16 * PAGE;

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    let span = USER_BASE + thread.index as u64 * SPAN;
    system.map(process, span, PAGE);
    let places = (1..SPAN / REGION).map(|place| span + place * REGION);
    while !machine::stop_requested() {
        let va = system.place(process, places.clone(), REGION);
        system.map(process, va, REGION);
        for page in 0..REGION / PAGE {
            system.touch(process, va + page * PAGE, Access::Write);
        }
        system.unmap(process, va, REGION);
        thread.count();
    }
}
