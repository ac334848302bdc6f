//! Virtual time: the order of operations, the slack, siblings, and where time is booked.

use crate::{Log, finish, strict, strict_of, word};
use shootdown::facade::Word;
use shootdown_sim::machine::{self as m, Config, Machine, Outcome, SimWord, StoreBuffer, Topology};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A busy mix on `cpus` CPUs; returns everything observable.
fn busy_run(seed: u64, store_buffer: StoreBuffer, slack: u64) -> (Vec<u64>, m::Statistics, u64) {
    let config = Config {
        seed,
        store_buffer,
        slack_cycles: slack,
        ..Config::new(Topology::regular(12, 2, 4, 8))
    };
    let mut machine = Machine::new(config);
    let words = machine.alloc([0; 16].map(SimWord::new));
    let taken = Rc::new(Cell::new(0));
    let count = Rc::clone(&taken);
    machine.set_interrupt_handler(move || {
        m::charge(30);
        count.set(count.get() + 1);
    });
    let log: Log<u64> = Log::default();
    for cpu in 0..12 {
        let (words, log) = (words.clone(), Rc::clone(&log));
        machine.spawn(cpu, move || {
            while !m::stop_requested() {
                let word = &words[m::random_below(16) as usize];
                match m::random_below(6) {
                    0 => drop(word.fetch_add_full(1)),
                    1 => word.store(m::random(), Release),
                    2 => m::charge(m::random_below(3000)),
                    3 if m::chance(0.2) => m::send_ipi([m::random_below(12) as usize]),
                    _ => {
                        let value = word.load(Relaxed);
                        log.borrow_mut().push(value);
                    }
                }
            }
            log.borrow_mut().push(m::now_ticks());
        });
    }
    assert_eq!(machine.run(200_000, |_| true), Outcome::Finished);
    let seen = log.borrow().clone();
    (seen, machine.statistics(), taken.get())
}

#[test]
fn same_seed_gives_the_same_run() {
    for mode in [
        StoreBuffer::Off,
        StoreBuffer::Timing,
        StoreBuffer::Random { max_cycles: 500 },
    ] {
        let first = busy_run(7, mode, 60);
        // An allocation in between that shifts host addresses.
        let shift = vec![0u8; 12345];
        assert_eq!(first, busy_run(7, mode, 60), "{mode:?} {}", shift.len());
        assert_ne!(first.0, busy_run(8, mode, 60).0, "{mode:?}: the seed has no effect");
        assert!(first.2 > 0 && first.1.total.events > 1000);
    }
}

#[test]
fn operations_on_shared_words_are_in_time_order() {
    let mut machine = Machine::new(strict(8));
    let shared = word(&machine);
    let log: Log<u64> = Log::default();
    for cpu in 0..8 {
        let (shared, log) = (shared.clone(), Rc::clone(&log));
        machine.spawn(cpu, move || {
            for _ in 0..50 {
                m::charge(1 + m::random_below(200));
                m::synchronise();
                log.borrow_mut().push(m::now_ticks());
                shared.load(Relaxed);
            }
        });
    }
    finish(&mut machine);
    assert_eq!(log.borrow().len(), 400);
    assert!(log.borrow().is_sorted(), "a CPU acted before its turn");
}

#[test]
fn cpus_run_ahead_at_most_the_slack() {
    let mut machine = Machine::new(Config {
        slack_cycles: 100,
        ..strict(4)
    });
    let latest = Rc::new(Cell::new(0u64));
    let ahead = Rc::new(Cell::new(0u64));
    for cpu in 0..4 {
        let (latest, ahead) = (Rc::clone(&latest), Rc::clone(&ahead));
        machine.spawn(cpu, move || {
            for _ in 0..200 {
                m::charge(7);
                m::synchronise();
                ahead.set(ahead.get().max(latest.get().saturating_sub(m::now())));
                latest.set(latest.get().max(m::now()));
            }
        });
    }
    finish(&mut machine);
    assert!((1..=101).contains(&ahead.get()), "{} cycles ahead", ahead.get());
}

#[test]
fn only_an_active_sibling_slows_a_cpu() {
    let run = |sibling: fn()| {
        let mut machine = Machine::new(strict_of(Topology::regular(2, 2, 2, 2)));
        let end = Rc::new(Cell::new(0));
        let out = Rc::clone(&end);
        machine.spawn_daemon(1, sibling);
        machine.spawn(0, move || {
            m::charge(10);
            m::synchronise();
            let start = m::now();
            (0..100).for_each(|_| m::charge(100));
            out.set(m::now() - start);
        });
        finish(&mut machine);
        end.get()
    };
    let alone = run(|| ());
    assert_eq!(alone, 10_000);
    assert_eq!(run(m::sleep), 10_000);
    let beside = run(|| m::charge(1_000_000));
    assert!((13_450..13_550).contains(&beside), "{beside}");
    let spinning = run(|| m::wait_until(|| false));
    assert!((10_950..11_050).contains(&spinning), "{spinning}");
}

#[test]
fn a_sibling_does_not_slow_a_transfer() {
    let gains = |sibling: fn()| {
        let mut machine = Machine::new(strict_of(Topology::regular(4, 2, 4, 4)));
        let words = machine.alloc([0; 24].map(m::SimWord::new));
        let (theirs, took) = (words.clone(), Rc::new(Cell::new(0)));
        let out = Rc::clone(&took);
        machine.spawn(2, move || {
            for line in [0, 8] {
                theirs[line].swap_full(1);
            }
        });
        machine.spawn_daemon(1, sibling);
        machine.spawn(0, move || {
            m::charge(10_000);
            m::synchronise();
            let start = m::now();
            words[0].load(Relaxed);
            words[8].swap_full(2);
            out.set(m::now() - start);
        });
        finish(&mut machine);
        took.get()
    };
    let costs = Config::new(Topology::flat(1)).costs;
    let alone = 2 * costs.transfer[1] as u64 + costs.rmw as u64;
    assert_eq!(gains(|| ()), alone);
    let beside = gains(|| m::charge(1_000_000));
    let instruction = costs.rmw * (costs.smt_slowdown - 1.0);
    assert_eq!(
        beside,
        alone + instruction.round() as u64,
        "only the instruction itself is slowed"
    );
}

#[test]
fn timed_wait_ends_on_time_despite_siblings_and_interrupts() {
    let mut machine = Machine::new(strict_of(Topology::regular(2, 2, 2, 2)));
    let served: Log<u64> = Log::default();
    let log = Rc::clone(&served);
    machine.set_interrupt_handler(move || {
        log.borrow_mut().push(m::now());
        m::charge(300);
    });
    machine.raise(0, 4000);
    machine.raise(0, 19_900);
    machine.spawn_daemon(1, || m::charge(1_000_000));
    machine.spawn(0, || {
        m::pass_until(10_000);
        assert_eq!(m::now(), 10_000);
        m::pass_until(9_000);
        assert_eq!(m::now(), 10_000, "it has passed");
        m::pass_until(20_000);
        assert!(
            (20_200..22_500).contains(&m::now()),
            "the handler ends later: {}",
            m::now()
        );
    });
    finish(&mut machine);
    let served = served.borrow();
    assert!((4000..5000).contains(&served[0]) && served.len() == 2, "{served:?}");
}

#[test]
fn time_is_booked_by_category_including_waits() {
    let mut machine = Machine::new(strict(2));
    let flag = word(&machine);
    let theirs = flag.clone();
    machine.at(500, m::reset_statistics);
    machine.spawn(0, move || {
        m::charge(1000);
        m::set_category(3);
        m::wait_until(|| theirs.load(Acquire) == 1);
        assert_eq!(m::set_category(1), 3);
    });
    machine.spawn(1, move || {
        m::charge(5000);
        flag.swap_full(1);
    });
    finish(&mut machine);
    let cycles = machine.statistics().cpus[0].cycles;
    assert_eq!(cycles[0], 500.0, "what passed before the reset must not count");
    assert!((4000.0..4300.0).contains(&cycles[3]), "{cycles:?}");
}
