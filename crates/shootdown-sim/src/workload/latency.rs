//! `latency`: a mixed load for latency distributions. A quarter of the threads, at least one, write and drop pages of
//! their own and count each drop; the others spin in user code. Occasionally a spinning thread's CPU keeps interrupts
//! off for long, as firmware, a hypervisor or a debug console does. Initiators that wait for its answer wait as long.
//! Occasionally a spinning thread keeps preemption off for a while, as other parts of a kernel do.
//!
//! On each CPU a bystander with real-time priority sleeps for a random time and wakes up. Its wake-up delay is the
//! figure that matters to real-time kernels.

use super::Thread;
use super::madvise_spin::SPIN;
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// Bytes of one dropping thread's pages, which a table of their own maps.
const REGION: u64 = 2 << 20;

/// Shares of spinning threads' time slots that begin with interrupts off, and with preemption off. Assumed (sweep a
/// tenth to ten times): the other load of E4's machine is not known.
const MASKED_ONE_IN: u64 = 200_000;
const PREEMPTION_OFF_ONE_IN: u64 = 2_000;

/// Longest section with interrupts off, ns. Fitted on E4's 16.7 ms, the tail under waits that spin, which can only be
/// as long as the longest unanswered request ("tens of ms" at worst, it says).
const MASKED_NS: f64 = 1.9e7;

/// Longest section with preemption off unrelated to invalidation, ns. Fitted on E4's 1.5 ms, the tail that remains when
/// waits are preemptible.
const PREEMPTION_OFF_NS: f64 = 1e6;

/// Mean sleep of a bystander, ns. Assumed (sweep 0.1 ms to 10 ms): cyclictest's default is 1 ms.
const SLEEP_NS: f64 = 1e6;

/// Threads that drop pages.
fn droppers(threads: usize) -> usize {
    threads.div_ceil(4)
}

/// Bytes of user address space.
pub(super) fn bytes(threads: usize) -> u64 {
    droppers(threads) as u64 * REGION
}

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    if thread.index < droppers(thread.threads) {
        let base = USER_BASE + thread.index as u64 * REGION;
        system.map(process, base, REGION);
        while !machine::stop_requested() {
            let va = base + machine::random_below(REGION / PAGE) * PAGE;
            system.touch(process, va, Access::Write);
            system.drop_pages(process, va, 1);
            thread.count(1);
            machine::charge(machine::random_below(4 * SPIN));
        }
        return;
    }
    let up_to = |ns: f64| machine::charge(machine::random_below((ns * thread.model.ghz) as u64) + 1);
    while !machine::stop_requested() {
        if machine::random_below(MASKED_ONE_IN) == 0 {
            let saved = machine::interrupts_off();
            up_to(MASKED_NS);
            machine::interrupts_restore(saved);
        }
        if machine::random_below(PREEMPTION_OFF_ONE_IN) == 0 {
            system.without_preemption(|| up_to(PREEMPTION_OFF_NS));
        }
        machine::charge(SPIN);
    }
}

/// A bystander: a thread of a process of its own.
pub(super) fn bystander<const W: usize>(thread: &Thread<W>) {
    while !machine::stop_requested() {
        let cycles = machine::random_below((2.0 * SLEEP_NS * thread.model.ghz) as u64) + 1;
        thread.system.sleep_for(cycles);
    }
}
