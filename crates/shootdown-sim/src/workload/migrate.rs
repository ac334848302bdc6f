//! `migrate`: the first thread moves pages of its process to other frames, in batches, while the others read them. One
//! operation is one page moved.
//!
//! Like Linux's `migrate_pages`: a batch of pages is taken out of the page table, all of it is flushed at once, each
//! page is copied and mapped again; with batches of one page each is flushed by itself, as before Linux 6.3. The others
//! begin to read when the pages have been written once.

use super::{Parameter, Thread};
use crate::hw::Access;
use crate::machine::{self, Shared, SimWord};
use crate::os::{PAGE, System, USER_BASE};
use shootdown::Word;
use std::sync::atomic::Ordering;

/// Pages of a batch.
const BATCH: Parameter = Parameter {
    path: "workload.migrate.batch",
    default: 512.0,
    least: 1.0,
    most: 512.0,
    whole: true,
    about: "pages that share a flush (Linux's NR_MAX_BATCHED_MIGRATION: 512)",
};

/// Time of a page apart from its flush and its faults.
const PAGE_NS: Parameter = Parameter {
    path: "workload.migrate.page_ns",
    default: 1500.0,
    least: 0.0,
    most: 1e6,
    whole: false,
    about: "ns for each page beside flush and mapping: isolation, reverse map, copy (assumed 500..4000)",
};

pub(super) const PARAMETERS: &[Parameter] = &[BATCH, PAGE_NS];

/// Pages of the region.
const PAGES: u64 = 2048;

/// Bytes of the region.
pub(super) const REGION: u64 = PAGES * PAGE;

/// Pages that a reader touches between two checks of the clock.
const READS: u64 = 16;

/// Whether the pages have been written.
pub(crate) struct Commons(Shared<SimWord>);

impl Commons {
    pub(super) fn new<const W: usize>(system: &System<W>) -> Self {
        Commons(system.allocate(SimWord::new(0)))
    }
}

pub(super) fn run<const W: usize>(thread: &Thread<W>, written: &Commons) {
    let (system, process) = (&*thread.system, &*thread.process);
    if thread.index > 0 {
        machine::wait_until(|| written.0.load(Ordering::Acquire) == 1);
        while !machine::stop_requested() {
            for _ in 0..READS {
                let va = USER_BASE + machine::random_below(PAGES) * PAGE;
                system.touch(process, va, Access::Read);
            }
        }
        return;
    }
    let batch = thread.parameters.count(&BATCH);
    let page_cycles = (thread.parameters.get(&PAGE_NS) * thread.model.ghz) as u64;
    let page = |number: u64| USER_BASE + number % PAGES * PAGE;
    system.map(process, USER_BASE, REGION);
    (0..PAGES).for_each(|number| system.touch(process, page(number), Access::Write));
    written.0.store(1, Ordering::Release);
    machine::drain_stores();
    let mut next = 0;
    while !machine::stop_requested() {
        let pages: Vec<u64> = (next..next + batch).map(page).collect();
        next = (next + batch) % PAGES;
        thread.count(system.migrate(process, &pages, page_cycles) as u64);
    }
}
