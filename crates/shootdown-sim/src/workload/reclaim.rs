//! `reclaim`: memory is short. Every CPU but the reclaiming ones runs a process of its own that writes random pages of
//! its region. Reclaiming CPUs (kernel threads) take single pages from all of them and flush each batch at once. One
//! operation is one page taken. With a single thread, that CPU does both in turn.

use super::{Parameter, Thread};
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Reclaiming CPUs.
const RECLAIMERS: Parameter = Parameter {
    path: "workload.reclaim.reclaimers",
    default: 1.0,
    least: 1.0,
    most: 64.0,
    whole: true,
    about: "reclaiming CPUs, the first ones; at least one CPU is left to run a process",
};

/// Pages of one batch.
const BATCH: Parameter = Parameter {
    path: "workload.reclaim.batch",
    default: 32.0,
    least: 1.0,
    most: 512.0,
    whole: true,
    about: "pages looked at for one batch (32: Linux's SWAP_CLUSTER_MAX)",
};

/// Pages of each process.
const PAGES: Parameter = Parameter {
    path: "workload.reclaim.pages",
    default: 128.0,
    least: 1.0,
    most: 512.0,
    whole: true,
    about: "pages of each process",
};

pub(super) const PARAMETERS: &[Parameter] = &[RECLAIMERS, BATCH, PAGES];

/// Bytes of each process.
pub(super) fn bytes(parameters: &super::Parameters) -> u64 {
    parameters.count(&PAGES) * PAGE
}

/// Pages that a process writes between two checks of the clock.
const WRITES: u64 = 16;

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    let pages = thread.parameters.count(&PAGES);
    let batch = thread.parameters.count(&BATCH);
    let reclaimers = (thread.parameters.count(&RECLAIMERS) as usize).min(thread.threads - 1);
    let write = |process| {
        for _ in 0..WRITES {
            let va = USER_BASE + machine::random_below(pages) * PAGE;
            system.touch(process, va, Access::Write);
        }
    };
    let reclaim = |from: usize| {
        // The search costs at least a cycle, so that a CPU that finds no page still spends time.
        machine::charge(1 + batch * system.costs.unmap_entry);
        let among = (thread.processes.len() - from) as u64;
        let victims: Vec<_> = (0..batch)
            .map(|_| {
                let process = &*thread.processes[from + machine::random_below(among) as usize];
                (process, USER_BASE + machine::random_below(pages) * PAGE)
            })
            .collect();
        let taken = system.reclaim(&victims);
        thread.operations.set(thread.operations.get() + taken as u64);
    };
    system.map(process, USER_BASE, pages * PAGE);
    if thread.threads == 1 {
        while !machine::stop_requested() {
            write(process);
            reclaim(0);
        }
    } else if thread.index < reclaimers {
        // A kernel thread: no user space of its own.
        system.unload();
        while !machine::stop_requested() {
            reclaim(reclaimers);
        }
    } else {
        while !machine::stop_requested() {
            write(process);
        }
    }
}
