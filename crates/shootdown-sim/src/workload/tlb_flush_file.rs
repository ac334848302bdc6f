//! `tlb_flush1` and `tlb_flush3`: the loop of `tlb_flush2` on a file for each thread, of 128 MiB, mapped privately or
//! shared. It is the published programs' size: no two threads share a page table, and each remaps only once in 32,768
//! loops. The file is in the page cache, so nothing is read from a disk.
//!
//! Measured (E10): 1.9 interrupts per loop with two threads, where anonymous memory takes 0.99. Where the second one
//! comes from depends on the mapping.
//!
//! Private: the read fault after the drop also maps the cached pages around it (16, Linux's fault-around). So in 15 of
//! 16 loops the page is already mapped, read-only, when it is written. That write copies it, and the old translation
//! must be gone everywhere before the copy is used. 15/16 + 1 = 1.94.
//!
//! Shared: the drop of a dirty page flushes before the lock of its page table is released (Linux's `zap_pte_range`,
//! `force_flush`), and flushes again if another thread of the process is in such a call (`mm_tlb_flush_nested`). One
//! thread alone flushes once. The write that makes an entry writable flushes nothing on x86;
//! `workload.tlb_flush3.notify_flushes` makes it flush.
//!
//! In the first pass of will-it-scale over its file only the loop's own pages are cached, so a loop flushes once. That
//! pass is not simulated. In its process mode each process has a file of its own: `process_threads` 1.

use super::{Parameter, Parameters, Thread, processes_of, tlb_flush2};
use crate::os::{Mapping, PAGE};

/// Whether the write that dirties a page of a shared mapping flushes its write-protected entry.
const NOTIFY_FLUSHES: Parameter = Parameter {
    path: "workload.tlb_flush3.notify_flushes",
    default: 0.0,
    least: 0.0,
    most: 1.0,
    whole: true,
    about: "1: the write that makes a page dirty flushes the write-protected entry; 0: a spurious fault is enough",
};

/// Bytes of one thread's region.
pub(super) const REGION: u64 = 128 << 20;

/// Threads of each process of `tlb_flush1`, and of `tlb_flush3`.
const PRIVATE_THREADS: Parameter = Parameter {
    path: "workload.tlb_flush1.process_threads",
    default: 0.0,
    least: 0.0,
    most: 8192.0,
    whole: true,
    about: "threads of each process (0: one process for all; 1: will-it-scale's process mode)",
};
const SHARED_THREADS: Parameter = Parameter {
    path: "workload.tlb_flush3.process_threads",
    ..PRIVATE_THREADS
};

pub(super) const PRIVATE: &[Parameter] = &[PRIVATE_THREADS];
pub(super) const SHARED: &[Parameter] = &[SHARED_THREADS, NOTIFY_FLUSHES];

/// Processes of `threads` threads.
pub(super) fn processes(shared: bool, threads: usize, parameters: &Parameters) -> usize {
    let each = if shared { &SHARED_THREADS } else { &PRIVATE_THREADS };
    processes_of(parameters.count(each), threads)
}

pub(super) fn run<const W: usize>(thread: &Thread<W>, shared: bool) {
    let notify_flushes = thread.parameters.count(&NOTIFY_FLUSHES) == 1;
    let mapping = match shared {
        true => Mapping::Shared { notify_flushes },
        false => Mapping::Private,
    };
    let file = thread.system.file(REGION / PAGE);
    tlb_flush2::run_on(thread, REGION, |base| {
        thread.system.map_file(&thread.process, base, REGION, &file, mapping);
    });
}
