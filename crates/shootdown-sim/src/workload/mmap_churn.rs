//! `mmap_churn`: each thread maps a private region of 16 pages, writes each, unmaps it, and counts one: what a program
//! does whose allocator gives large blocks back at once.
//!
//! The kernel chooses the address: the first of some places that is free, so that places in quarantine are passed over.
//! A page beside them stays mapped under each table, as a program's other memory does, so that unmapping frees no
//! table.

use super::Thread;
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Bytes that one lowest-level table maps.
const TABLE: u64 = 2 << 20;

/// Bytes of address space of each thread: enough places for all that it unmaps in three ticks.
pub(super) const SPAN: u64 = 4 * TABLE;

/// Bytes of one mapping.
const REGION: u64 = 16 * PAGE;

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    let span = USER_BASE + thread.index as u64 * SPAN;
    let tables = (0..SPAN / TABLE).map(move |table| span + table * TABLE);
    tables.clone().for_each(|table| system.map(process, table, PAGE));
    let places = tables.flat_map(|table| (1..TABLE / REGION).map(move |place| table + place * REGION));
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
