//! `gup`: every thread repeatedly pins eight pages of its own by lockless walks and unpins them; one operation is one
//! such pin. The last threads may free page-table pages instead, at a configurable rate.
//!
//! The shape is that of E5: 60 threads, 500,000 pins of 8 pages each, 1.489 s without tracking, which is 2.98 us for a
//! pin. The published program's breakdown is not known. Here a pin is a system call and, for each page, fixed work
//! (`page_ns`), the table reads, the reference taken and the leaf read again; `page_ns` is fitted on that one row, on a
//! 64-core machine of 2.7 GHz.
//!
//! The number of pages per walk is not published either, and determines the cost of tracking: the published 3 % are 88
//! ns for a pin, and a full barrier takes 20 to 40 cycles. Eight walks of a page each match that; one walk of eight
//! pages does not. So `pages_per_walk` is 1 by default. It is inferred from the published row, and not independent of
//! it.
//!
//! Costs from other sources: barrier, exchange, loads and stores are the machine model's; benches/walk.rs of the engine
//! measures the same guards on a host, as a check.

use super::{Parameter, Thread};
use crate::hw::Access;
use crate::machine;
use crate::os::{PAGE, Process, USER_BASE};

/// Pages of one pin.
const PAGES: u64 = 8;

/// Bytes that one lowest-level table maps: each thread, and each freeing thread, has a table of its own.
const TABLE: u64 = 2 << 20;

/// Time between two ticks of a CPU, ns (250 Hz, a customary setting).
const TICK_NS: f64 = 4e6;

const PAGES_PER_WALK: Parameter = Parameter {
    path: "workload.gup.pages_per_walk",
    default: 1.0,
    least: 1.0,
    most: PAGES as f64,
    whole: true,
    about: "pages of a pin that share a walk guard (1: what the published cost of tracking implies)",
};

const PAGE_NS: Parameter = Parameter {
    path: "workload.gup.page_ns",
    default: 321.5,
    least: 0.0,
    most: 100_000.0,
    whole: false,
    about: "work on each page in addition to walking and counting, ns (fitted: E5 without tracking)",
};

const FREES_PER_S: Parameter = Parameter {
    path: "workload.gup.frees_per_s",
    default: 0.0,
    least: 0.0,
    most: 1e8,
    whole: false,
    about: "page-table pages freed per second, all freeing threads together, if they can keep up",
};

const FREEING_THREADS: Parameter = Parameter {
    path: "workload.gup.freeing_threads",
    default: 4.0,
    least: 1.0,
    most: 1024.0,
    whole: true,
    about: "threads, the last ones, that free page-table pages instead of pinning, when any are freed",
};

const OWN_SPACE: Parameter = Parameter {
    path: "workload.gup.own_space",
    default: 1.0,
    least: 0.0,
    most: 1.0,
    whole: true,
    about: "1: freeing threads free tables of their own process, which has no walks; 0: of the one that is walked",
};

const TABLES_PER_FREE: Parameter = Parameter {
    path: "workload.gup.tables_per_free",
    default: 1.0,
    least: 1.0,
    most: 64.0,
    whole: true,
    about: "page-table pages that one flush frees",
};

pub(super) const PARAMETERS: &[Parameter] = &[
    PAGES_PER_WALK,
    PAGE_NS,
    FREES_PER_S,
    FREEING_THREADS,
    OWN_SPACE,
    TABLES_PER_FREE,
];

fn freeing(threads: usize, parameters: &super::Parameters) -> usize {
    if parameters.get(&FREES_PER_S) > 0.0 {
        (parameters.count(&FREEING_THREADS) as usize).min(threads - 1)
    } else {
        0
    }
}

pub(super) fn bytes(threads: usize, parameters: &super::Parameters) -> u64 {
    (threads as u64 + freeing(threads, parameters) as u64 * parameters.count(&TABLES_PER_FREE)) * TABLE
}

pub(super) fn run<const W: usize>(thread: &Thread<W>) {
    let freeing = freeing(thread.threads, &thread.parameters);
    if thread.index + freeing < thread.threads {
        pin(thread);
    } else {
        free(thread, freeing);
    }
}

fn pin<const W: usize>(thread: &Thread<W>) {
    let (system, process) = (&*thread.system, &*thread.process);
    let base = USER_BASE + thread.index as u64 * TABLE;
    system.map(process, base, PAGES * PAGE);
    for page in 0..PAGES {
        system.touch(process, base + page * PAGE, Access::Write);
    }
    let references = system.page_references(base, PAGES);
    let pages_per_walk = thread.parameters.count(&PAGES_PER_WALK);
    let cycles = |ns: f64| system.engine.kernel().cycles(ns);
    let (page_cost, tick) = (cycles(thread.parameters.get(&PAGE_NS)), cycles(TICK_NS));
    // Ticks of the CPUs are spread over their period.
    let mut next_tick = machine::now() + machine::random_below(tick);
    while !machine::stop_requested() {
        let pinned = system.system_call(process, system.costs.syscall, || {
            system.pin(process, references, base, PAGES, pages_per_walk, page_cost)
        });
        assert_eq!(pinned, PAGES, "the pages stay mapped");
        system.unpin(references, base, PAGES);
        thread.count(1);
        if machine::now() >= next_tick {
            system.tick();
            next_tick += tick;
        }
    }
}

fn free<const W: usize>(thread: &Thread<W>, freeing: usize) {
    let system = &*thread.system;
    let tables = thread.parameters.count(&TABLES_PER_FREE);
    let own = (thread.parameters.count(&OWN_SPACE) == 1).then(|| {
        // Numbers of spaces are never reused; the run's own is 1.
        system.process(2 + thread.index as u32, tables * TABLE)
    });
    let (process, base): (&Process<W>, u64) = match &own {
        Some(own) => {
            system.load(own);
            (own, USER_BASE)
        }
        None => {
            let position = thread.index + freeing - thread.threads;
            let first = thread.threads as u64 + position as u64 * tables;
            (&thread.process, USER_BASE + first * TABLE)
        }
    };
    let seconds = freeing as f64 * tables as f64 / thread.parameters.get(&FREES_PER_S);
    let period = system.engine.kernel().cycles(seconds * 1e9).max(1);
    let tick = system.engine.kernel().cycles(TICK_NS);
    let mut due = machine::now() + machine::random_below(period);
    let mut next_tick = machine::now() + machine::random_below(tick);
    while !machine::stop_requested() {
        machine::charge(due.saturating_sub(machine::now()));
        // A thread that cannot keep up does not accumulate a backlog.
        due = (due + period).max(machine::now());
        system.free_tables(process, base, tables);
        if machine::now() >= next_tick {
            system.tick();
            system.free_waiting_tables();
            next_tick += tick;
        }
    }
}
