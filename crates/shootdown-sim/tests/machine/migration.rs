//! Tasks that continue on another CPU.

use crate::{finish, strict, word};
use shootdown::facade::Word;
use shootdown_sim::machine::{self as m, Config, Machine, StoreBuffer};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[test]
fn migrated_task_continues_on_its_new_cpu_not_earlier() {
    let mut machine = Machine::new(Config {
        store_buffer: StoreBuffer::Random { max_cycles: 5000 },
        ..strict(3)
    });
    let shared = word(&machine);
    let seen = Rc::new(Cell::new(0));
    let (stored, taken) = (shared.clone(), Rc::clone(&seen));
    machine.set_interrupt_handler(move || taken.set(taken.get() + 100 + m::cpu()));
    machine.spawn(0, move || {
        m::charge(10_000);
        stored.store(1, Relaxed);
        let left_at = m::now();
        m::migrate(2);
        assert_eq!(m::cpu(), 2);
        assert!(m::now() >= left_at);
        assert_eq!(stored.peek(), 1, "nothing stays behind in the old CPU's store buffer");
        m::raise(2, m::now() + 50);
        m::charge(1000);
        assert_eq!(seen.get(), 102, "interrupts of the new CPU are taken");
        m::migrate(0);
        assert_eq!(m::cpu(), 0);
        stored.store(2, Release);
    });
    machine.spawn(1, move || {
        m::wait_until(|| shared.load(Acquire) == 2);
        assert!(m::now() >= 10_000);
    });
    finish(&mut machine);
    let statistics = machine.statistics();
    assert!(
        statistics.cpus[2].cycles[0] < 8000.0,
        "a CPU without a task spends no time"
    );
}

#[test]
#[should_panic(expected = "CPU 1 is not idle")]
fn migration_to_an_occupied_cpu_is_refused() {
    let mut machine = Machine::new(strict(2));
    machine.spawn(0, || m::migrate(1));
    machine.spawn(1, || m::charge(1000));
    finish(&mut machine);
}
