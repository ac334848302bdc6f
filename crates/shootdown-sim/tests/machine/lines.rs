//! Cache lines: the cost of a transfer, and words inside and outside simulated memory.

use crate::{Log, finish, strict, strict_of, word};
use shootdown::facade::{Facade, Word};
use shootdown_sim::machine::{self as m, Config, Machine, SimWord, SimWorld, StoreBuffer, Topology};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How long (cycles) CPU 0 takes to read, then to modify, a word that CPU `owner` wrote.
fn transfer_from(owner: usize) -> (u64, u64) {
    let mut machine = Machine::new(strict_of(Topology::regular(8, 2, 4, 4)));
    let words = machine.alloc([0; 16].map(SimWord::new));
    let mine = words.clone();
    let result = Rc::new(Cell::new((0, 0)));
    let out = Rc::clone(&result);
    machine.spawn(owner, move || {
        words[0].swap_full(1);
        words[8].swap_full(1);
    });
    machine.spawn(0, move || {
        m::charge(10_000);
        let start = m::now();
        mine[0].load(Relaxed);
        let read = m::now();
        mine[8].fetch_add_full(1);
        let modified = m::now();
        out.set((read - start, modified - read));
        mine[0].load(Relaxed);
        assert_eq!(m::now() - modified, 4, "reading again must hit");
        mine[8].fetch_add_full(1);
        assert_eq!(m::now() - modified, 24, "modifying again must hit");
    });
    finish(&mut machine);
    result.get()
}

#[test]
fn a_line_costs_by_the_distance_of_its_owner() {
    let transfer = Config::new(Topology::flat(1)).costs.transfer.map(|cost| cost as u64);
    assert_eq!(transfer_from(1), (transfer[0], transfer[0] + 16));
    assert_eq!(transfer_from(2), (transfer[1], transfer[1] + 16));
    assert_eq!(transfer_from(4), (transfer[3], transfer[3] + 16));
}

#[test]
fn a_write_invalidates_the_readers_copy() {
    let mut machine = Machine::new(strict(2));
    let shared = word(&machine);
    let theirs = shared.clone();
    machine.spawn(0, move || {
        shared.swap_full(1);
        m::charge(1000);
        let start = m::now();
        shared.swap_full(2);
        assert!(m::now() - start > 50, "the other CPU's copy must be invalidated");
        let start = m::now();
        shared.swap_full(3);
        assert_eq!(m::now() - start, 20);
    });
    machine.spawn(1, move || {
        m::charge(500);
        theirs.load(Relaxed);
        m::charge(2000);
        let start = m::now();
        assert_eq!(theirs.load(Relaxed), 3);
        assert!(m::now() - start > 50, "a stale copy was read");
    });
    finish(&mut machine);
}

#[test]
fn exclusive_transfers_of_one_line_are_serialised() {
    let mut machine = Machine::new(strict(20));
    let transfer = Config::new(Topology::flat(1)).costs.transfer[1] as u64;
    let hot = word(&machine);
    let log: Log<u64> = Log::default();
    for cpu in 0..20 {
        let (hot, log) = (hot.clone(), Rc::clone(&log));
        machine.spawn(cpu, move || {
            hot.fetch_add_full(1);
            log.borrow_mut().push(m::now());
        });
    }
    finish(&mut machine);
    let mut ends = log.borrow().clone();
    ends.sort_unstable();
    assert!(
        ends.windows(2).all(|pair| pair[1] - pair[0] >= transfer),
        "two transfers overlapped: {ends:?}"
    );
    assert_eq!(hot.peek(), 20);
}

/// CPU 0 writes a word, CPUs from 1 read it at once, and one more CPU then modifies it: how long the slowest read and
/// the modification take.
fn after_a_write(readers: usize) -> (u64, u64) {
    let mut machine = Machine::new(strict(readers + 2));
    let hot = word(&machine);
    let (slowest, modified) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let writer = hot.clone();
    machine.spawn(0, move || {
        writer.swap_full(1);
    });
    for cpu in 1..=readers {
        let (hot, slowest) = (hot.clone(), Rc::clone(&slowest));
        machine.spawn(cpu, move || {
            m::charge(10_000);
            let start = m::now();
            hot.load(Relaxed);
            slowest.set(slowest.get().max(m::now() - start));
        });
    }
    let out = Rc::clone(&modified);
    machine.spawn(readers + 1, move || {
        m::charge(10_001);
        m::synchronise();
        let start = m::now();
        hot.fetch_add_full(1);
        out.set(m::now() - start);
    });
    finish(&mut machine);
    (slowest.get(), modified.get())
}

#[test]
fn first_read_after_a_write_is_a_transfer_of_its_own() {
    let costs = Config::new(Topology::flat(1)).costs;
    let (transfer, modify) = (costs.transfer[1] as u64, (costs.transfer[1] + costs.rmw) as u64);
    assert_eq!(after_a_write(1), (transfer, transfer - 1 + modify));
    // Later reads wait for it, but not for each other, and delay nobody.
    assert_eq!(after_a_write(8).0, 2 * transfer);
    assert_eq!(after_a_write(8).1, after_a_write(1).1);
}

/// How long CPU 0 takes for `work` on words that CPU 1 wrote, eight to a line, until its stores are visible.
fn on_lines_of_another(work: fn(&[SimWord; 24])) -> u64 {
    let mut machine = Machine::new(strict(2));
    let words = machine.alloc([0; 24].map(SimWord::new));
    let (theirs, took) = (words.clone(), Rc::new(Cell::new(0)));
    let out = Rc::clone(&took);
    machine.spawn(1, move || {
        for line in [0, 8, 16] {
            theirs[line].swap_full(1);
        }
    });
    machine.spawn(0, move || {
        m::charge(10_000);
        m::synchronise();
        let start = m::now();
        work(&words);
        m::drain_stores();
        out.set(m::now() - start);
    });
    finish(&mut machine);
    took.get()
}

#[test]
fn stores_waiting_for_one_line_share_a_transfer() {
    let transfer = Config::new(Topology::flat(1)).costs.transfer[1] as u64;
    let stores = |words: &[SimWord; 24]| (0..8).for_each(|word| words[word].store(2, Release));
    assert_eq!(on_lines_of_another(stores), transfer);
    let two_lines = |words: &[SimWord; 24]| [0, 8, 1, 9].iter().for_each(|&word| words[word].store(2, Release));
    // The second begins one store later.
    assert_eq!(on_lines_of_another(two_lines), transfer + 4);
}

#[test]
fn read_waits_for_a_line_requested_by_a_store() {
    let transfer = Config::new(Topology::flat(1)).costs.transfer[1] as u64;
    let store_and_read = |words: &[SimWord; 24]| {
        words[0].store(2, Release);
        assert_eq!(words[1].load(Relaxed), 0);
        words[2].load(Relaxed);
    };
    assert_eq!(on_lines_of_another(store_and_read), transfer + 8, "and two hits");
}

#[test]
fn words_outside_simulated_memory_cost_a_hit() {
    let mut machine = Machine::new(strict(2));
    let outside = Rc::new(SimWord::new(0));
    let theirs = Rc::clone(&outside);
    machine.spawn(0, move || {
        m::charge(5000);
        let start = m::now();
        outside.store(1, Release);
        assert_eq!(m::now() - start, 4);
    });
    machine.spawn(1, move || m::wait_until(|| theirs.load(Acquire) == 1));
    finish(&mut machine);
}

#[test]
fn buffered_store_to_a_dropped_word_is_discarded() {
    let mut machine = Machine::new(Config {
        store_buffer: StoreBuffer::Random { max_cycles: 5000 },
        ..strict(1)
    });
    machine.spawn(0, || {
        for round in 0..200u64 {
            {
                let word = SimWord::new(0);
                word.store(u64::MAX, Release);
            }
            let reused = std::hint::black_box([round; 8]);
            m::charge(6000);
            m::synchronise();
            assert_eq!(reused, [round; 8]);
        }
    });
    finish(&mut machine);
}

/// Words on a line of their own, as a request on a stack has them.
#[repr(align(64))]
struct OwnLine([SimWord; 2]);

/// Uses about `depth` times 200 bytes of stack, then calls `then`.
#[inline(never)]
fn deeper(depth: usize, then: &mut dyn FnMut()) {
    let eaten = std::hint::black_box([depth; 24]);
    match depth {
        0 => then(),
        _ => deeper(depth - 1, then),
    }
    std::hint::black_box(eaten);
}

/// Times of a run in which two CPUs put words on their stacks, alternately deep and shallow, and the other one answers.
fn stack_words(depths: [usize; 4]) -> Vec<u64> {
    let mut machine = Machine::new(Config {
        slack_cycles: 60,
        ..Config::new(Topology::regular(4, 1, 2, 4))
    });
    let (mailbox, times) = (word(&machine), Log::default());
    for cpu in [0, 3] {
        let (mailbox, times) = (mailbox.clone(), Rc::clone(&times));
        machine.spawn(cpu, move || {
            for round in 0..40 {
                let mut ask = || {
                    let request = (OwnLine([0, 0].map(SimWord::new)), OwnLine([0, 0].map(SimWord::new)));
                    request.0.0[1].store(round, Release);
                    let address = std::ptr::from_ref(&request).expose_provenance() as u64;
                    SimWorld::wait_until(|| mailbox.compare_exchange_full(0, address).is_ok());
                    SimWorld::wait_until(|| request.1.0[0].load(Acquire) != 0);
                    times.borrow_mut().push(m::now_ticks());
                };
                deeper(depths[(cpu + round as usize) % 4], &mut ask);
            }
        });
    }
    machine.spawn_daemon(1, move || {
        loop {
            SimWorld::wait_until(|| mailbox.load(Acquire) != 0);
            let address = mailbox.swap_full(0) as usize;
            // SAFETY: the asking CPU keeps the request until the answer.
            let request = unsafe { &*std::ptr::with_exposed_provenance::<(OwnLine, OwnLine)>(address) };
            request.0.0[1].load(Acquire);
            request.1.0[0].store(1, Release);
        }
    });
    finish(&mut machine);
    times.take()
}

#[test]
fn stack_depth_of_words_does_not_change_the_run() {
    let shallow = stack_words([0, 0, 0, 0]);
    assert_eq!(shallow.len(), 80);
    assert_eq!(shallow, stack_words([20, 20, 20, 20]));
    assert_eq!(shallow, stack_words([3, 41, 1, 12]));
}
