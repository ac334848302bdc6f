//! Waiting for words, and sleeping until woken.

use crate::{Log, finish, strict, strict_of, word};
use shootdown::facade::{Facade, Word};
use shootdown_sim::machine::{self as m, Config, Machine, SimWord, SimWorld, StoreBuffer, Topology};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[test]
fn a_wake_before_the_sleep_is_remembered() {
    for delay in [0, 1000] {
        let mut machine = Machine::new(strict(2));
        let woken = Rc::new(Cell::new(0));
        let up = Rc::clone(&woken);
        machine.spawn(0, move || m::wake(1, delay));
        machine.spawn(1, move || {
            m::charge(500);
            m::sleep();
            up.set(m::now());
        });
        finish(&mut machine);
        assert_eq!(woken.get(), delay.max(500));
    }
}

#[test]
fn wake_is_not_seen_before_its_store() {
    for seed in 0..200 {
        let config = Config {
            store_buffer: StoreBuffer::Random { max_cycles: 2000 },
            seed,
            ..strict(2)
        };
        let mut machine = Machine::new(config);
        let flag = word(&machine);
        let theirs = flag.clone();
        machine.spawn(0, move || {
            m::charge(m::random_below(300));
            flag.store(1, Release);
            m::wake(1, 0);
        });
        machine.spawn(1, move || {
            while theirs.load(Acquire) == 0 {
                m::sleep();
            }
        });
        finish(&mut machine);
    }
}

#[test]
fn ping_pong_of_sleepers_loses_no_wake() {
    for (seed, slack_cycles) in [(1, 0), (2, 60), (3, 500)] {
        let mut machine = Machine::new(Config {
            seed,
            slack_cycles,
            ..strict(2)
        });
        let turns = machine.alloc([SimWord::new(0), SimWord::new(0)]);
        for cpu in 0..2 {
            let turns = turns.clone();
            machine.spawn(cpu, move || {
                for round in 1..=300 {
                    m::charge(m::random_below(50));
                    turns[cpu].store(round, Release);
                    m::wake(1 - cpu, m::random_below(100));
                    while turns[1 - cpu].load(Acquire) < round {
                        m::sleep();
                    }
                }
            });
        }
        finish(&mut machine);
    }
}

#[test]
fn waiter_sees_the_store_without_polling_cost() {
    let mut machine = Machine::new(strict(2));
    let flag = word(&machine);
    let theirs = flag.clone();
    let seen = Rc::new(Cell::new(0));
    let when = Rc::clone(&seen);
    machine.spawn(0, move || {
        m::charge(1_000_000);
        flag.store(1, Release);
    });
    machine.spawn(1, move || {
        m::wait_until(|| theirs.load(Acquire) == 1);
        when.set(m::now());
    });
    finish(&mut machine);
    assert!((1_000_000..1_000_400).contains(&seen.get()), "seen at {}", seen.get());
    assert!(machine.events() < 20, "{} events", machine.events());
}

#[test]
fn store_racing_with_the_wait_condition_loses_no_wake() {
    for seed in 0..300 {
        let mode = if seed % 2 == 0 {
            StoreBuffer::Timing
        } else {
            StoreBuffer::Random { max_cycles: 300 }
        };
        let mut machine = Machine::new(Config {
            seed,
            store_buffer: mode,
            slack_cycles: seed % 3 * 40,
            ..strict(4)
        });
        let words = machine.alloc([0; 8].map(SimWord::new));
        for cpu in 0..4 {
            let words = words.clone();
            machine.spawn(cpu, move || {
                for round in 1..20 {
                    m::charge(m::random_below(60));
                    words[cpu].store(round, Release);
                    m::wait_until(|| (0..4).all(|other| words[other].load(Acquire) >= round));
                }
            });
        }
        finish(&mut machine);
    }
}

#[test]
fn wait_condition_may_take_the_lock() {
    let mut machine = Machine::new(Config {
        slack_cycles: 60,
        ..strict(6)
    });
    let lock = word(&machine);
    let guarded = word(&machine);
    let total = guarded.clone();
    for cpu in 0..6 {
        let (lock, guarded) = (lock.clone(), guarded.clone());
        machine.spawn(cpu, move || {
            for _ in 0..50 {
                m::wait_until(|| lock.swap_full(1) == 0);
                let value = guarded.load(Relaxed);
                m::charge(100);
                guarded.store(value + 1, Relaxed);
                lock.store(0, Release);
            }
        });
    }
    finish(&mut machine);
    assert_eq!(total.peek(), 300);
    assert!(machine.events() < 10_000, "{} events: waiters poll", machine.events());
}

#[test]
fn wait_serves_interrupts_and_polls_at_arrival_if_masked() {
    for masked in [false, true] {
        let mut machine = Machine::new(strict(2));
        let (flag, served) = (word(&machine), word(&machine));
        let taken = Rc::new(Cell::new(0));
        let (count, by_handler) = (Rc::clone(&taken), served.clone());
        machine.set_interrupt_handler(move || {
            count.set(count.get() + 1);
            by_handler.store(1, Release);
        });
        let evaluations = Rc::new(Cell::new(0));
        let (theirs, answer, evaluated) = (flag.clone(), served.clone(), Rc::clone(&evaluations));
        machine.spawn(0, move || {
            m::charge(1000);
            m::send_ipi([1]);
            m::wait_until(|| answer.load(Acquire) == 1);
            flag.store(1, Release);
        });
        machine.spawn(1, move || {
            let saved = if masked { m::interrupts_off() } else { 0 };
            let start = m::now();
            m::wait_until(|| {
                evaluated.set(evaluated.get() + 1);
                if masked && m::now() > start + 1000 {
                    // Self-service: the handler's work.
                    served.store(1, Release);
                }
                theirs.load(Acquire) == 1
            });
            if masked {
                assert!(!m::interrupts_enabled());
                m::interrupts_restore(saved);
            }
        });
        finish(&mut machine);
        assert_eq!(taken.get(), 1, "masked: {masked}");
        assert!((2..8).contains(&evaluations.get()), "{} evaluations", evaluations.get());
    }
}

#[test]
fn a_handler_inside_a_wait_may_wait() {
    let mut machine = Machine::new(strict(3));
    let words = machine.alloc([0; 32].map(SimWord::new));
    let inner = words.clone();
    machine.set_interrupt_handler(move || SimWorld::wait_until(|| inner[8].load(Acquire) == 1));
    let (sender, waiter, setter) = (words.clone(), words.clone(), words);
    machine.spawn(0, move || {
        m::charge(500);
        m::send_ipi([1]);
        m::charge(10_000);
        // Changes while CPU 1 waits inside its handler; the outer wait must not miss it.
        sender[0].store(1, Release);
    });
    machine.spawn(1, move || m::wait_until(|| waiter[0].load(Acquire) == 1));
    machine.spawn(2, move || {
        m::charge(20_000);
        setter[8].store(1, Release);
    });
    finish(&mut machine);
}

#[test]
fn eight_thousand_cpus_meet_at_a_barrier() {
    let cpus = m::MAX_CPUS;
    let mut machine = Machine::new(Config::new(Topology::regular(cpus, 2, 16, 128)));
    let arrived = word(&machine);
    for cpu in 0..cpus {
        let arrived = arrived.clone();
        machine.spawn(cpu, move || {
            arrived.fetch_add_full(1);
            m::wait_until(|| arrived.load(Acquire) == m::MAX_CPUS as u64);
        });
    }
    finish(&mut machine);
    assert_eq!(arrived.peek(), cpus as u64);
}

/// CPUs 0 and 1 are siblings. CPU 0 sleeps, and CPU 2 looks, then interrupts it, then wakes it.
#[test]
fn a_core_sleeps_while_none_of_its_threads_works() {
    for (sibling_works, expected) in [(500, 2500), (10_000, 0)] {
        let mut machine = Machine::new(strict_of(Topology::regular(4, 2, 4, 4)));
        let slept: Log<u64> = Log::default();
        let (in_handler, at_end, looks) = (slept.clone(), slept.clone(), slept.clone());
        machine.set_interrupt_handler(move || in_handler.borrow_mut().push(m::ended_core_sleep()));
        machine.spawn(0, move || {
            m::charge(1000);
            m::sleep();
            at_end.borrow_mut().push(m::ended_core_sleep());
        });
        machine.spawn(1, move || m::charge(sibling_works));
        machine.spawn(2, move || {
            m::charge(200);
            assert_eq!(m::core_sleep(0), 0, "it works");
            m::pass_until(3500);
            looks.borrow_mut().push(m::core_sleep(0));
            m::raise(0, 3500);
            m::pass_until(20_000);
            m::wake(0, 0);
        });
        finish(&mut machine);
        let [seen, interrupted, after] = slept.borrow()[..] else {
            panic!("{:?}", slept.borrow());
        };
        // Siblings slow each other until one sleeps.
        let near = |found: u64| found.abs_diff(expected) <= 500;
        assert!(near(seen) && near(interrupted), "{sibling_works}: {:?}", slept.borrow());
        assert_eq!([seen > 0, interrupted > 0], [expected > 0; 2], "{sibling_works}");
        assert_eq!(after, 0, "no interrupt");
    }
}
