//! The kernel's spinlock: no waiter starves, holders exclude each other, and releasing it is no barrier.

use shootdown::Word;
use shootdown_sim::machine::{self, Config, Machine, Outcome, Shared, SimWord, StoreBuffer, Topology};
use shootdown_sim::os::{Preemption, SpinLock};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

fn machine(cpus: usize, seed: u64) -> Machine {
    Machine::new(Config {
        seed,
        slack_cycles: seed % 2 * 60,
        store_buffer: StoreBuffer::Random { max_cycles: 400 },
        max_events: 1_000_000,
        ..Config::new(Topology::flat(cpus))
    })
}

/// That many free locks, for `cpus` CPUs.
fn locks(machine: &Machine, cpus: usize, count: usize) -> Vec<Rc<SpinLock>> {
    let nodes: Rc<[Shared<SimWord>]> = (0..cpus).map(|_| machine.alloc(SimWord::new(0))).collect();
    let preemption = Rc::new(Preemption::new(cpus, 2.0));
    let lock = || Rc::new(SpinLock::new(machine, nodes.clone(), preemption.clone()));
    (0..count).map(|_| lock()).collect()
}

#[test]
fn lock_is_mutually_exclusive_and_fair() {
    const TURNS: u64 = 30;
    for seed in 0..40 {
        let cpus = 2 + seed as usize % 7;
        let mut machine = machine(cpus, seed);
        let lock = locks(&machine, cpus, 1).remove(0);
        let (count, inside) = (machine.alloc(SimWord::new(0)), Rc::new(Cell::new(false)));
        for cpu in 0..cpus {
            let (lock, count, inside) = (lock.clone(), count.clone(), inside.clone());
            machine.spawn(cpu, move || {
                for turn in 0..TURNS {
                    machine::charge(machine::random_below(300));
                    lock.with(turn % 2 == 0, || {
                        assert!(!inside.replace(true), "seed {seed}: two at once");
                        let old = count.load(Acquire);
                        machine::charge(machine::random_below(100));
                        machine::synchronise();
                        count.store(old + 1, Relaxed);
                        inside.set(false);
                    });
                }
            });
        }
        assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished, "seed {seed}");
        assert_eq!(count.peek(), cpus as u64 * TURNS, "seed {seed}");
    }
}

/// Two CPUs store to a word of their own, each under a lock of its own, and then read the other's.
#[test]
fn unlock_is_not_a_full_barrier() {
    let both_old = |seed: &u64| {
        let mut machine = machine(2, *seed);
        let locks = locks(&machine, 2, 2);
        let words = machine.alloc([0; 16].map(SimWord::new));
        let read = Rc::new(RefCell::new([1; 2]));
        for (cpu, lock) in locks.iter().enumerate() {
            // A clone: dropping a lock also drops its buffered stores.
            let (lock, words, read) = (lock.clone(), words.clone(), read.clone());
            machine.spawn(cpu, move || {
                words[8 - 8 * cpu].load(Relaxed);
                machine::charge(machine::random_below(300));
                lock.with(false, || words[8 * cpu].store(1, Relaxed));
                let seen = words[8 - 8 * cpu].load(Acquire);
                read.borrow_mut()[cpu] = seen;
            });
        }
        assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
        read.take() == [0, 0]
    };
    let count = (0..300).filter(both_old).count();
    assert!(0 < count && count < 300, "{count} of 300");
}
