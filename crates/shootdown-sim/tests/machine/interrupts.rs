//! Interrupts: when they arrive, what they split, which merge.

use crate::{Log, finish, strict, word};
use shootdown::facade::Word;
use shootdown_sim::machine::{self as m, Config, Machine, StoreBuffer, Topology};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Release};

/// CPU 1 charges for long; `send` acts as CPU 0. Returns when CPU 1's handler ran and when its charge ended.
fn interrupted(config: Config, masked_until: Option<u64>, send: impl FnOnce() + 'static) -> (Vec<u64>, u64) {
    let mut machine = Machine::new(config);
    let log: Log<u64> = Log::default();
    let entries = Rc::clone(&log);
    machine.set_interrupt_handler(move || {
        assert!(!m::interrupts_enabled());
        assert_eq!(m::cpu(), 1);
        entries.borrow_mut().push(m::now());
        m::charge(100);
    });
    machine.spawn(0, send);
    let end = Rc::new(Cell::new(0));
    let ended = Rc::clone(&end);
    machine.spawn(1, move || {
        if let Some(until) = masked_until {
            let saved = m::interrupts_off();
            m::charge(until);
            m::interrupts_restore(saved);
        }
        m::charge(100_000);
        ended.set(m::now());
    });
    finish(&mut machine);
    let entries = log.borrow().clone();
    (entries, end.get())
}

#[test]
fn an_interrupt_splits_a_long_charge_at_its_arrival() {
    let config = Config::new(Topology::flat(2));
    let costs = config.costs.clone();
    let (entries, end) = interrupted(config, None, || {
        m::charge(5000);
        m::send_ipi([1]);
    });
    let arrival = 5000.0 + costs.ipi_first + costs.ipi_latency[1];
    assert_eq!(entries, [(arrival + costs.interrupt_entry) as u64]);
    assert_eq!(
        end,
        100_000 + (costs.interrupt_entry + 100.0 + costs.interrupt_exit) as u64
    );
}

/// One in fifty is late, by up to twice `ipi_late`, and by more than `ipi_late` as often as by less.
#[test]
fn one_interrupt_in_fifty_is_late() {
    const SENT: usize = 20_000;
    let mut config = Config::new(Topology::flat(2));
    config.costs.ipi_late = 1000.0;
    let costs = config.costs.clone();
    let mut machine = Machine::new(config);
    let log: Log<u64> = Log::default();
    let entries = Rc::clone(&log);
    machine.set_interrupt_handler(move || entries.borrow_mut().push(m::now()));
    machine.spawn(0, || {
        for _ in 0..SENT {
            m::send_ipi([1]);
            m::charge(10_000);
        }
    });
    machine.spawn(1, || m::charge(SENT as u64 * 20_000));
    finish(&mut machine);
    let entries = log.borrow();
    assert_eq!(entries.len(), SENT);
    let period = 10_000 + costs.ipi_first as u64;
    let on_time = (costs.ipi_first + costs.ipi_latency[1] + costs.interrupt_entry) as u64;
    let late_by = |(index, entry): (usize, &u64)| entry - (index as u64 * period + on_time);
    let late: Vec<u64> = entries.iter().enumerate().map(late_by).filter(|by| *by > 0).collect();
    assert!((300..500).contains(&late.len()), "{} of {SENT}", late.len());
    let median = late.iter().filter(|by| **by > 1000).count();
    assert!(median.abs_diff(late.len() / 2) < 60, "{median} of {}", late.len());
    assert!(late.iter().all(|by| *by <= 2000));
}

#[test]
fn interrupts_that_arrive_before_the_first_is_taken_merge() {
    let config = Config::new(Topology::flat(2));
    let costs = config.costs.clone();
    let (entries, _) = interrupted(config, Some(20_000), || (0..5).for_each(|_| m::send_ipi([1])));
    assert_eq!(entries, [20_000 + costs.interrupt_entry as u64]);
}

/// A handler learns when the first of the interrupts that it was called for was sent; a timer's has no sender.
#[test]
fn handler_knows_when_its_interrupt_was_sent() {
    let config = Config::new(Topology::regular(4, 1, 1, 2));
    let mut machine = Machine::new(config);
    let log: Log<Option<u64>> = Log::default();
    let entries = Rc::clone(&log);
    machine.set_interrupt_handler(move || entries.borrow_mut().push(m::interrupt_sent()));
    machine.raise(1, 50);
    machine.spawn(0, || {
        m::charge(1_000);
        // CPU 1 is the second that is sent to.
        m::send_ipi([2, 1]);
        m::charge(50_000);
        m::send_ipi([1]);
    });
    machine.spawn(1, || {
        m::charge(500);
        let saved = m::interrupts_off();
        m::charge(20_000);
        m::interrupts_restore(saved);
        m::charge(100_000);
    });
    machine.spawn(2, || ());
    machine.spawn(3, || {
        m::charge(3_000);
        m::send_ipi([1]);
    });
    finish(&mut machine);
    let log = log.borrow();
    let [timer, merged, last] = log[..] else {
        panic!("{log:?}")
    };
    assert_eq!((timer, merged), (None, Some(1_000)));
    assert!(last.is_some_and(|sent| (51_000..52_000).contains(&sent)), "{last:?}");
}

#[test]
fn an_interrupt_that_arrives_after_the_first_was_taken_does_not_merge() {
    let (entries, _) = interrupted(Config::new(Topology::flat(2)), None, || {
        m::send_ipi([1]);
        m::charge(50);
        // In flight together with the first, but it arrives after that was taken.
        m::send_ipi([1]);
    });
    assert_eq!(entries.len(), 2);
    assert!(entries[1] > entries[0] + 100);
}

#[test]
fn latency_grows_with_distance_and_each_target_costs_the_sender() {
    let config = Config::new(Topology::regular(8, 1, 2, 4));
    let costs = config.costs.clone();
    let mut machine = Machine::new(config);
    let log: Log<(usize, u64)> = Log::default();
    let entries = Rc::clone(&log);
    machine.set_interrupt_handler(move || entries.borrow_mut().push((m::cpu(), m::now())));
    let sent = Rc::new(Cell::new(0));
    let sender = Rc::clone(&sent);
    machine.spawn(0, move || {
        m::send_ipi([1, 2, 4]);
        sender.set(m::now());
    });
    (1..8).for_each(|cpu| machine.spawn(cpu, || m::charge(20_000)));
    finish(&mut machine);
    assert_eq!(sent.get(), (costs.ipi_first + 2.0 * costs.ipi_next) as u64);
    let at = |hops: f64, far: usize| {
        (costs.ipi_first + hops * costs.ipi_next + costs.ipi_latency[far] + costs.interrupt_entry) as u64
    };
    assert_eq!(*log.borrow(), [(1, at(0.0, 1)), (2, at(1.0, 2)), (4, at(2.0, 3))]);
}

#[test]
fn raised_interrupt_arrives_on_time_during_sleep() {
    let mut machine = Machine::new(Config::new(Topology::flat(2)));
    let entry = Config::new(Topology::flat(1)).costs.interrupt_entry as u64;
    let log: Log<u64> = Log::default();
    let entries = Rc::clone(&log);
    machine.set_interrupt_handler(move || entries.borrow_mut().push(m::now()));
    machine.raise(1, 3000);
    machine.raise(1, 9000);
    let woken = Rc::new(Cell::new(0));
    let up = Rc::clone(&woken);
    machine.spawn(0, || {
        m::charge(50_000);
        m::wake(1, 10);
    });
    machine.spawn(1, move || {
        m::sleep();
        up.set(m::now());
    });
    finish(&mut machine);
    assert_eq!(*log.borrow(), [3000 + entry, 9000 + entry]);
    assert_eq!(woken.get(), 50_010);
}

/// A store that another CPU waits for is seen when it leaves the buffer. An interrupt that the waiter then sends
/// arrives in time, even during a long charge of its target: at once, or, with interrupts masked, when they are
/// unmasked.
#[test]
fn awaited_store_is_seen_in_time_during_a_long_charge() {
    for masked in [false, true] {
        let config = Config {
            store_buffer: StoreBuffer::Random { max_cycles: 2_000 },
            ..strict(2)
        };
        let entry = config.costs.interrupt_entry as u64;
        let mut machine = Machine::new(config);
        let flag = word(&machine);
        let theirs = flag.clone();
        let taken: Log<u64> = Log::default();
        let log = Rc::clone(&taken);
        machine.set_interrupt_handler(move || log.borrow_mut().push(m::now()));
        let woken = Rc::new(Cell::new((0, 0)));
        let times = Rc::clone(&woken);
        machine.spawn(0, move || {
            let saved = if masked { m::interrupts_off() } else { 0 };
            flag.store(1, Release);
            m::charge(100_000);
            if masked {
                m::interrupts_restore(saved);
            }
            m::charge(10);
            m::synchronise();
        });
        machine.spawn(1, move || {
            m::wait_until(|| theirs.load(Acquire) == 1);
            let seen = m::now();
            m::send_ipi([0]);
            times.set((seen, m::now()));
        });
        finish(&mut machine);
        let (seen, sent) = woken.get();
        assert!((1..5_000).contains(&seen), "masked {masked}: seen at {seen}");
        let [taken] = taken.borrow()[..] else {
            panic!("masked {masked}: taken {} times", taken.borrow().len())
        };
        let arrival = if masked { 100_000..100_011 } else { sent..sent + 5_000 };
        assert!(arrival.contains(&(taken - entry)), "masked {masked}: taken at {taken}");
    }
}
