//! `mmap_churn`: each thread maps a private region of 16 pages, writes each, unmaps it, and counts one. Programs whose
//! allocator returns large blocks at once do this.
//!
//! The kernel chooses the address: the first of some places that is free, so that places in quarantine are passed over.
//! `pages_per_call` is the number of pages of a region; `calls_per_flush` regions are mapped and written, then unmapped
//! in one call with one flush. A region is one operation. After each call it reads `pages_in_use` pages of other
//! memory.
//!
//! Another page stays mapped under each table, as a program's other memory does, so that unmapping frees no table.

use super::{Parameter, Parameters, Thread};
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// The span of a lowest-level table, bytes.
const TABLE: u64 = 2 << 20;

/// Pages of one mapping.
const PAGES_PER_CALL: Parameter = Parameter {
    path: "workload.mmap_churn.pages_per_call",
    default: 16.0,
    least: 1.0,
    most: 256.0,
    whole: true,
    about: "pages of each region, which one munmap covers (one op: a region)",
};

/// Regions that are unmapped together.
const CALLS_PER_FLUSH: Parameter = Parameter {
    path: "workload.mmap_churn.calls_per_flush",
    default: 1.0,
    least: 1.0,
    most: 16.0,
    whole: true,
    about: "regions that are unmapped in one call and share a flush",
};

/// Other memory in use: its translations are what a flush of the whole tag loses.
const PAGES_IN_USE: Parameter = Parameter {
    path: "workload.mmap_churn.pages_in_use",
    default: 0.0,
    least: 0.0,
    most: 4096.0,
    whole: true,
    about: "pages of other memory that each thread reads, each once, after every call",
};

pub(super) const PARAMETERS: &[Parameter] = &[PAGES_PER_CALL, CALLS_PER_FLUSH, PAGES_IN_USE];

/// Tables of each thread, at least: enough places for all regions that it unmaps in three ticks.
const TABLES: u64 = 4;

/// Bytes of one mapping.
fn region(parameters: &Parameters) -> u64 {
    parameters.count(&PAGES_PER_CALL) * PAGE
}

/// Bytes of address space of each thread in which its regions lie: room for all that it has at once, in addition to the
/// page that stays mapped under each table.
fn regions_span(parameters: &Parameters) -> u64 {
    let places = TABLE / region(parameters) - 1;
    TABLES.max(parameters.count(&CALLS_PER_FLUSH).div_ceil(places)) * TABLE
}

/// Bytes of address space of each thread: that of its regions, then its other memory.
pub(super) fn span(parameters: &Parameters) -> u64 {
    regions_span(parameters) + (parameters.count(&PAGES_IN_USE) * PAGE).next_multiple_of(TABLE)
}

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    let (bytes, regions_span) = (region(&thread.parameters), regions_span(&thread.parameters));
    let base = USER_BASE + thread.index as u64 * span(&thread.parameters);
    let pages_in_use = thread.parameters.count(&PAGES_IN_USE);
    let in_use = (0..pages_in_use).map(|page| base + regions_span + page * PAGE);
    if pages_in_use > 0 {
        system.map(process, base + regions_span, pages_in_use * PAGE);
        in_use.clone().for_each(|va| system.touch(process, va, Access::Write));
    }
    let tables = (0..regions_span / TABLE).map(move |table| base + table * TABLE);
    tables.clone().for_each(|table| system.map(process, table, PAGE));
    let places = tables.flat_map(|table| (1..TABLE / bytes).map(move |place| table + place * bytes));
    let at_once = thread.parameters.count(&CALLS_PER_FLUSH);
    let mut regions = Vec::new();
    while !machine::stop_requested() {
        regions.clear();
        for _ in 0..at_once {
            let free = places.clone().filter(|place| !regions.contains(place));
            let va = system.place(process, free, bytes);
            system.map(process, va, bytes);
            for page in 0..bytes / PAGE {
                system.touch(process, va + page * PAGE, Access::Write);
            }
            regions.push(va);
        }
        regions.sort_unstable();
        system.unmap_regions(process, &regions, bytes);
        in_use.clone().for_each(|va| system.touch(process, va, Access::Read));
        thread.count(at_once);
    }
}
