//! `context_switch`: every CPU alternates between a thread of one process, the idle loop or a kernel thread (lazy TLB
//! mode), and occasionally a thread of a second process. In one of many stretches of user code each drops a page of the
//! process that the others have loaded. So flushes arrive while they are in lazy TLB mode. One operation is one switch
//! to user code.
//!
//! Every CPU drops in proportion to its operations, so an operation costs the same number of flushes, and of faults
//! after them, under every design. Drops at a fixed rate by a few CPUs would not do: a design with slow flushes would
//! fall behind that rate, spare the other CPUs faults, and look better for it. A drop is rarer the more CPUs there are,
//! since each of them faults once after it. Otherwise 128 CPUs would only wait for the lock of the page table, and the
//! cost of a switch would not show.
//!
//! With `processes` above 2 it is `hackbench` instead: see [`run_among_many`].

use super::{Parameter, Thread};
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, USER_BASE};

/// How long a CPU stays in lazy TLB mode.
const LAZY_NS: Parameter = Parameter {
    path: "workload.context_switch.lazy_ns",
    default: 2000.0,
    least: 0.0,
    most: 1e7,
    whole: false,
    about: "nanoseconds that a CPU stays lazy between two stretches of user code",
};

/// One in how many switches goes to the other process.
const OTHER: Parameter = Parameter {
    path: "workload.context_switch.other_one_in",
    default: 4.0,
    least: 1.0,
    most: 1e6,
    whole: true,
    about: "one in this many switches goes to the other process and back, instead of to the idle loop",
};

/// Pages of each process.
const PAGES: Parameter = Parameter {
    path: "workload.context_switch.pages",
    default: 32.0,
    least: 1.0,
    most: 512.0,
    whole: true,
    about: "pages of each process; all are read in each stretch of user code",
};

/// Pages dropped.
const DROPS: Parameter = Parameter {
    path: "workload.context_switch.drops_one_in",
    default: 64.0,
    least: 1.0,
    most: 1e6,
    whole: true,
    about: "one in this many switches to the process, times threads, \
        is followed by dropping one of its pages (at random)",
};

/// Processes.
const PROCESSES: Parameter = Parameter {
    path: "workload.context_switch.processes",
    default: 2.0,
    least: 2.0,
    most: 4096.0,
    whole: true,
    about: "processes; with more than 2 each switch goes to one of them at random, and none drops pages",
};

pub(super) const PARAMETERS: &[Parameter] = &[LAZY_NS, OTHER, PAGES, DROPS, PROCESSES];

/// Number of processes.
pub(super) fn processes(parameters: &super::Parameters) -> usize {
    parameters.count(&PROCESSES) as usize
}

/// Bytes of each process.
pub(super) fn bytes(parameters: &super::Parameters) -> u64 {
    parameters.count(&PAGES) * PAGE
}

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    if thread.processes.len() > 2 {
        return run_among_many(thread);
    }
    let system = &*thread.system;
    let pages = thread.parameters.count(&PAGES);
    let other_one_in = thread.parameters.count(&OTHER);
    let drop_chance = 1.0 / (thread.parameters.get(&DROPS) * thread.threads as f64);
    let lazy = thread.model.cycles(thread.parameters.get(&LAZY_NS)) as u64;
    let (own, other) = (&*thread.processes[0], &*thread.processes[1]);
    if thread.index == 0 {
        system.map(own, USER_BASE, pages * PAGE);
        system.map(other, USER_BASE, pages * PAGE);
    }
    let user = |process| {
        for page in 0..pages {
            system.touch(process, USER_BASE + page * PAGE, Access::Read);
        }
        thread.count(1);
    };
    system.load(own);
    let mut switches = 0_u64;
    while !machine::stop_requested() {
        switches += 1;
        user(own);
        if machine::chance(drop_chance) {
            let va = USER_BASE + machine::random_below(pages) * PAGE;
            system.touch(own, va, Access::Write);
            system.drop_pages(own, va, 1);
        }
        machine::charge(system.costs.switch);
        if switches.is_multiple_of(other_one_in) {
            system.load(other);
            user(other);
            machine::charge(system.costs.switch);
            system.load(own);
        } else {
            system.go_lazy();
            machine::charge(lazy);
            system.resume(own);
        }
    }
}

/// Many processes of one thread each, as `hackbench` makes them: more are ready than there are CPUs, so no CPU idles,
/// and a process rarely runs again on the CPU that ran it last.
fn run_among_many<const W: usize>(thread: &Thread<W>) {
    let system = &*thread.system;
    let pages = thread.parameters.count(&PAGES);
    let kernel_work = thread.model.cycles(thread.parameters.get(&LAZY_NS)) as u64;
    if thread.index == 0 {
        thread
            .processes
            .iter()
            .for_each(|process| system.map(process, USER_BASE, pages * PAGE));
    }
    while !machine::stop_requested() {
        let process = &*thread.processes[machine::random_below(thread.processes.len() as u64) as usize];
        machine::charge(system.costs.switch);
        system.load(process);
        machine::charge(kernel_work);
        (0..pages).for_each(|page| system.touch(process, USER_BASE + page * PAGE, Access::Read));
        thread.count(1);
    }
}
