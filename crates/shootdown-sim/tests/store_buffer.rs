//! Store buffers: outcomes that x86-TSO allows must be reachable, forbidden ones must not.

use shootdown::facade::{Facade, Word};
use shootdown_sim::machine::{self as m, Config, Machine, Outcome, SimWord, SimWorld, StoreBuffer, Topology};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const RANDOM: StoreBuffer = StoreBuffer::Random { max_cycles: 400 };

fn machine(cpus: usize, seed: u64, store_buffer: StoreBuffer) -> Machine {
    let slack_cycles = seed % 2 * 60;
    Machine::new(Config {
        seed,
        store_buffer,
        slack_cycles,
        max_events: 1_000_000,
        ..Config::new(Topology::flat(cpus))
    })
}

/// Runs a litmus shape of two threads on words 0 and 8 (two lines); returns the values that each read.
fn litmus(seed: u64, mode: StoreBuffer, threads: [fn(&[SimWord; 16]) -> u64; 2]) -> (u64, u64) {
    let mut machine = machine(2, seed, mode);
    let words = machine.alloc([0; 16].map(SimWord::new));
    let read = Rc::new(RefCell::new([0; 2]));
    for (cpu, thread) in threads.into_iter().enumerate() {
        let (words, read) = (words.clone(), Rc::clone(&read));
        machine.spawn(cpu, move || {
            // In some runs the lines are already near.
            if m::chance(0.5) {
                words[0].load(Relaxed);
                words[8].load(Relaxed);
            }
            m::charge(m::random_below(300));
            let value = thread(&words);
            read.borrow_mut()[cpu] = value;
        });
    }
    assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
    let [a, b] = *read.borrow();
    (a, b)
}

/// One thread of the store-buffering shape, with an operation between its store and its load.
fn store_then_load(words: &[SimWord; 16], stored: usize, loaded: usize, between: fn()) -> u64 {
    words[stored].store(1, Release);
    between();
    words[loaded].load(Acquire)
}

/// How often both threads of the store-buffering shape read the old value, over 500 seeds.
fn both_old(mode: StoreBuffer, threads: [fn(&[SimWord; 16]) -> u64; 2]) -> usize {
    (0..500).filter(|&seed| litmus(seed, mode, threads) == (0, 0)).count()
}

#[test]
fn store_buffering_shows_without_a_barrier() {
    let plain: [fn(&[SimWord; 16]) -> u64; 2] = [
        |words| store_then_load(words, 0, 8, || ()),
        |words| store_then_load(words, 8, 0, || ()),
    ];
    assert!(both_old(RANDOM, plain) > 20);
    assert!(both_old(StoreBuffer::Timing, plain) > 0);
    assert_eq!(both_old(StoreBuffer::Off, plain), 0);
}

#[test]
fn store_buffering_shows_with_one_barrier_of_two() {
    let one: [fn(&[SimWord; 16]) -> u64; 2] = [
        |words| store_then_load(words, 0, 8, SimWorld::full_barrier),
        |words| store_then_load(words, 8, 0, || ()),
    ];
    assert!(both_old(RANDOM, one) > 5);
}

#[test]
fn store_buffering_never_shows_with_two_full_barriers() {
    for mode in [RANDOM, StoreBuffer::Timing] {
        let fenced: [fn(&[SimWord; 16]) -> u64; 2] = [
            |words| store_then_load(words, 0, 8, SimWorld::full_barrier),
            |words| store_then_load(words, 8, 0, SimWorld::publish_tables),
        ];
        assert_eq!(both_old(mode, fenced), 0);
        let modified: [fn(&[SimWord; 16]) -> u64; 2] = [
            |words| {
                words[0].store(1, Release);
                words[4].fetch_add_full(1);
                words[8].load(Acquire)
            },
            |words| {
                words[8].swap_full(1);
                words[0].load(Acquire)
            },
        ];
        assert_eq!(both_old(mode, modified), 0);
        let drained: [fn(&[SimWord; 16]) -> u64; 2] = [
            |words| store_then_load(words, 0, 8, m::drain_stores),
            |words| store_then_load(words, 8, 0, SimWorld::before_ipi),
        ];
        assert_eq!(both_old(mode, drained), 0);
    }
}

#[test]
fn messages_are_never_reordered() {
    let mut fresh = 0;
    for seed in 0..1000 {
        let (_, seen) = litmus(
            seed,
            RANDOM,
            [
                |words| {
                    words[0].store(1, Release);
                    words[8].store(1, Release);
                    0
                },
                |words| {
                    m::charge(m::random_below(1000));
                    let flag = words[8].load(Acquire);
                    flag << 1 | words[0].load(Acquire)
                },
            ],
        );
        assert_ne!(seen, 0b10, "seed {seed}: the flag was visible before the data");
        fresh += u64::from(seen == 0b11);
    }
    assert!(fresh > 20, "the shape occurred only {fresh} times");
}

#[test]
fn a_cpu_sees_its_own_stores_at_once() {
    for seed in 0..50 {
        let (seen, _) = litmus(
            seed,
            RANDOM,
            [
                |words| {
                    words[0].store(1, Release);
                    words[0].store(2, Release);
                    words[0].load(Relaxed)
                },
                |_| 0,
            ],
        );
        assert_eq!(seen, 2);
    }
}

#[test]
fn store_becomes_visible_without_barrier_after_a_delay() {
    let delayed = Rc::new(Cell::new(0));
    for seed in 0..100 {
        let mut machine = machine(2, seed, RANDOM);
        let words = machine.alloc([0; 16].map(SimWord::new));
        let (theirs, delayed) = (words.clone(), Rc::clone(&delayed));
        let stored = Rc::new(Cell::new(0));
        let when = Rc::clone(&stored);
        machine.spawn(0, move || {
            words[0].store(1, Release);
            when.set(m::now());
        });
        machine.spawn(1, move || {
            SimWorld::wait_until(|| theirs[0].load(Acquire) == 1);
            delayed.set(delayed.get() + u32::from(m::now() > stored.get() + 150));
        });
        assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
    }
    assert!(delayed.get() > 20);
}

#[test]
fn hooked_stores_are_ordered_with_words_and_forwarded() {
    for seed in 0..200 {
        let mut machine = machine(2, seed, RANDOM);
        let tables = Rc::new(RefCell::new([0; 4]));
        let hooked = Rc::clone(&tables);
        machine.set_store_hook(move |a, b| hooked.borrow_mut()[a as usize] = b);
        let line = machine.alloc_lines(1);
        let flag = machine.alloc(SimWord::new(0));
        let (theirs, seen) = (flag.clone(), Rc::clone(&tables));
        let before = Rc::clone(&tables);
        machine.spawn(0, move || {
            m::store_other(line, 2, 77);
            if before.borrow()[2] == 0 {
                assert_eq!(m::pending_other(2), Some(77));
            }
            assert_eq!(m::pending_other(1), None);
            flag.store(1, Release);
            m::drain_stores();
            assert_eq!(m::pending_other(2), None);
            assert_eq!(before.borrow()[2], 77);
        });
        machine.spawn(1, move || {
            m::wait_until(|| theirs.load(Acquire) == 1);
            assert_eq!(seen.borrow()[2], 77, "seed {seed}: the flag overtook the entry");
        });
        assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
    }
}

#[test]
fn waiter_on_a_line_is_woken_by_a_hooked_store() {
    let mut machine = machine(2, 1, StoreBuffer::Timing);
    let entry = Rc::new(Cell::new(0));
    let (hooked, seen) = (Rc::clone(&entry), Rc::clone(&entry));
    machine.set_store_hook(move |_, b| hooked.set(b));
    let line = machine.alloc_lines(1);
    machine.spawn(0, move || {
        m::charge(3000);
        m::store_other(line, 0, 9);
    });
    machine.spawn(1, move || {
        m::wait_until(|| {
            m::read_line(line);
            seen.get() == 9
        });
    });
    assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
}
