//! How runs end: deadlocks, runaways, deadlines, panics; and the state afterwards.

use crate::{strict, word};
use shootdown::facade::Word;
use shootdown_sim::machine::{self as m, Config, Machine, Outcome, Shared, SimWord};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[test]
fn deadlock_report_names_each_cpu() {
    let mut machine = Machine::new(strict(3));
    let never = word(&machine);
    machine.spawn(0, move || m::wait_until(|| never.load(Acquire) == 1));
    machine.spawn(1, m::sleep);
    machine.spawn(2, || m::charge(50));
    let Outcome::Deadlock(report) = machine.run(u64::MAX, |_| true) else {
        panic!("not seen")
    };
    assert!(
        report.contains("CPU 0 waits") && report.contains("CPU 1 sleeps"),
        "{report}"
    );
    assert!(!report.contains("CPU 2"), "{report}");
}

#[test]
fn a_sleeper_returns_once_at_the_deadline() {
    let mut machine = Machine::new(strict(1));
    machine.spawn(0, || {
        while !m::stop_requested() {
            m::sleep();
        }
        assert_eq!(m::now(), 7000);
    });
    assert_eq!(machine.run(7000, |_| true), Outcome::Finished);
}

#[test]
fn a_livelock_ends_as_a_runaway() {
    let mut machine = Machine::new(Config {
        max_events: 50_000,
        ..strict(2)
    });
    let own = word(&machine);
    machine.spawn(0, move || {
        loop {
            own.load(Relaxed);
        }
    });
    machine.spawn(1, m::sleep);
    let Outcome::Runaway(report) = machine.run(u64::MAX, |_| true) else {
        panic!("not seen")
    };
    assert!(report.contains("CPU 0 runs"), "{report}");
}

#[test]
fn thread_that_spends_no_time_ends_as_a_runaway() {
    let mut machine = Machine::new(strict(2));
    machine.spawn(0, || while !m::stop_requested() {});
    machine.spawn(1, m::sleep);
    let Outcome::Runaway(report) = machine.run(1000, |_| true) else {
        panic!("not seen")
    };
    assert!(report.contains("CPU 0 goes round without spending time"), "{report}");
    // A task that spends a cycle each time may ask without limit.
    let mut machine = Machine::new(strict(1));
    machine.spawn(0, || {
        while !m::stop_requested() {
            m::charge(1);
        }
    });
    assert_eq!(machine.run(3_000_000, |_| true), Outcome::Finished);
}

/// Sets its flag when dropped, and touches simulated memory while at it.
struct Guard(Rc<Cell<u32>>, Shared<SimWord>);

impl Drop for Guard {
    fn drop(&mut self) {
        let saved = m::interrupts_off();
        self.1.fetch_add_full(1);
        self.1.store(5, Release);
        m::charge(10);
        m::interrupts_restore(saved);
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn an_abandoned_run_runs_the_destructors_of_its_tasks() {
    let dropped = Rc::new(Cell::new(0));
    let mut machine = Machine::new(Config {
        progress_events: 100,
        ..strict(3)
    });
    for cpu in 0..2 {
        let guard = Guard(Rc::clone(&dropped), word(&machine));
        machine.spawn(cpu, move || {
            let guard = guard;
            loop {
                guard.1.load(Relaxed);
            }
        });
    }
    let guard = Guard(Rc::clone(&dropped), word(&machine));
    machine.spawn(2, move || {
        let _guard = guard;
        m::sleep();
    });
    let mut calls = 0;
    let outcome = machine.run(u64::MAX, |progress| {
        calls += 1;
        progress.events < 1000
    });
    assert_eq!(outcome, Outcome::Abandoned);
    assert!(calls >= 2);
    drop(machine);
    assert_eq!(dropped.get(), 3);
}

#[test]
#[should_panic(expected = "CPU 1 panicked at cycle 42: out of cheese")]
fn a_panic_names_its_cpu() {
    let mut machine = Machine::new(strict(2));
    machine.spawn(0, m::sleep);
    machine.spawn(1, || {
        m::charge(42);
        panic!("out of {}", "cheese");
    });
    machine.run(u64::MAX, |_| true);
}
