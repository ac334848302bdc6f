//! `unmap_shared`: one thread drops or unmaps pages that all other threads of the process have just read. The
//! distribution "call" is the duration of the call, whose page count is a parameter. One operation is one call.
//!
//! In turns: the first thread maps and writes the pages, the others read each of them and wait spinning in user code,
//! and the first makes the call. This follows LATR's microbenchmark (Kumar et al., ASPLOS 2018, figures 6 and 7).

use super::{Parameter, Thread};
use crate::hw::Access;
use crate::machine::{self, Shared, SimWord};
use crate::os::{PAGE, System, USER_BASE};
use shootdown::Word;
use std::sync::atomic::Ordering;

/// Pages that the call covers.
const PAGES: Parameter = Parameter {
    path: "workload.unmap_shared.pages",
    default: 1.0,
    least: 1.0,
    most: 512.0,
    whole: true,
    about: "pages that the call covers, all of which the others have read",
};

/// The call.
const UNMAP: Parameter = Parameter {
    path: "workload.unmap_shared.unmap",
    default: 1.0,
    least: 0.0,
    most: 1.0,
    whole: true,
    about: "1: munmap of the whole region; 0: MADV_DONTNEED",
};

pub(super) const PARAMETERS: &[Parameter] = &[PAGES, UNMAP];

/// Bytes of the region, and of the page under its table that stays mapped.
pub(super) fn bytes(parameters: &super::Parameters) -> u64 {
    (parameters.count(&PAGES) + 1) * PAGE
}

/// Tells the threads which of them continues.
pub(crate) struct Commons {
    /// The round that the readers are in: its number, or the last.
    round: Shared<SimWord>,
    /// Readers that are done, of all rounds.
    done: Shared<SimWord>,
}

/// The number of a round after which there is none.
const END: u64 = u64::MAX;

impl Commons {
    pub(super) fn new<const W: usize>(system: &System<W>) -> Self {
        let word = || system.allocate(SimWord::new(0));
        Commons {
            round: word(),
            done: word(),
        }
    }
}

pub(super) fn run<const W: usize>(thread: &Thread<W>, commons: &Commons) {
    let (system, process) = (&*thread.system, &*thread.process);
    let pages = thread.parameters.count(&PAGES);
    let touch = |access| (0..pages).for_each(|page| system.touch(process, USER_BASE + page * PAGE, access));
    let mut round = 0;
    if thread.index > 0 {
        loop {
            machine::wait_until(|| commons.round.load(Ordering::Acquire) > round);
            round = commons.round.load(Ordering::Acquire);
            if round == END {
                return;
            }
            touch(Access::Read);
            commons.done.fetch_add_full(1);
        }
    }
    let unmap = thread.parameters.count(&UNMAP) == 1;
    let readers = thread.threads as u64 - 1;
    // The table outlives its pages.
    system.map(process, USER_BASE + pages * PAGE, PAGE);
    if !unmap {
        system.map(process, USER_BASE, pages * PAGE);
    }
    while !machine::stop_requested() {
        if unmap {
            system.map(process, USER_BASE, pages * PAGE);
        }
        touch(Access::Write);
        round += 1;
        commons.round.store(round, Ordering::Release);
        machine::wait_until(|| commons.done.load(Ordering::Acquire) == round * readers);
        let begun = machine::now();
        match unmap {
            true => system.unmap(process, USER_BASE, pages * PAGE),
            false => system.drop_pages(process, USER_BASE, pages),
        }
        system.preemption.latencies.call.record(machine::now() - begun);
        thread.count(1);
    }
    commons.round.store(END, Ordering::Release);
    machine::drain_stores();
}
