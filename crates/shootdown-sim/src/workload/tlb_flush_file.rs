//! `tlb_flush1` and `tlb_flush3`: the loop of `tlb_flush2` on 1 MiB of a file of each thread's own, mapped privately or
//! shared; the file is in the page cache, so that nothing is read from a disk.
//!
//! Measured (E10): 1.9 interrupts per loop with two threads, where anonymous memory takes 0.99. The second one, as
//! modelled:
//! the read fault after the drop maps the cached pages around it too (16, Linux's fault-around), so that in 15 of 16
//! loops the page is already there, read-only, when it is written. Privately that write copies it, and the old
//! translation must go everywhere before the copy is used. Shared, the first write is noticed so that the page can be
//! marked dirty, and the write-protected entry is flushed when it becomes writable; x86 Linux leaves that flush out in
//! its own code, and what made up for it in the measurement is not known: `workload.tlb_flush3.notify_flushes` turns it
//! off. 15/16 + 1 = 1.94.

use super::{Parameter, Thread, tlb_flush2};
use crate::os::{Mapping, PAGE};

/// Whether the write that dirties a page of a shared mapping flushes its write-protected entry.
const NOTIFY_FLUSHES: Parameter = Parameter {
    path: "workload.tlb_flush3.notify_flushes",
    default: 1.0,
    least: 0.0,
    most: 1.0,
    whole: true,
    about: "1: the write that makes a page dirty flushes the write-protected entry; 0: a spurious fault is enough",
};

pub(super) const PARAMETERS: &[Parameter] = &[NOTIFY_FLUSHES];

pub(super) fn run<const W: usize>(thread: &Thread<W>, shared: bool) {
    let notify_flushes = thread.parameters.count(&NOTIFY_FLUSHES) == 1;
    let mapping = match shared {
        true => Mapping::Shared { notify_flushes },
        false => Mapping::Private,
    };
    let file = thread.system.file(tlb_flush2::REGION / PAGE);
    tlb_flush2::run_on(thread, |base| {
        thread
            .system
            .map_file(&thread.process, base, tlb_flush2::REGION, &file, mapping);
    });
}
