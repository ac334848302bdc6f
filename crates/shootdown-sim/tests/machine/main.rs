//! The core machine: time, interrupts, waiting, lines, sleeping, failure reports.

mod ends;
mod interrupts;
mod lines;
mod migration;
mod prefetch;
mod time;
mod waiting;

use shootdown::facade::Word;
use shootdown_sim::machine::{Config, Machine, Outcome, Shared, SimWord, Topology};
use std::cell::RefCell;
use std::rc::Rc;

/// A log that tasks of one run share.
type Log<T> = Rc<RefCell<Vec<T>>>;

/// A machine of `cpus` CPUs without SMT, in strict order.
fn strict(cpus: usize) -> Config {
    Config {
        slack_cycles: 0,
        max_events: 10_000_000,
        ..Config::new(Topology::flat(cpus))
    }
}

/// Strict order on `topology`.
fn strict_of(topology: Topology) -> Config {
    Config {
        slack_cycles: 0,
        ..Config::new(topology)
    }
}

fn word(machine: &Machine) -> Shared<SimWord> {
    machine.alloc(SimWord::new(0))
}

fn finish(machine: &mut Machine) {
    assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
}
