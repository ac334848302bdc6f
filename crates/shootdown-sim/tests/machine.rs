//! The core machine, told as stories: time, interrupts, waiting, lines, sleeping, failure reports.

use shootdown::facade::{Facade, Word};
use shootdown_sim::machine::{self as m, Config, Machine, Outcome, Shared, SimWord, SimWorld, StoreBuffer, Topology};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A machine of `cpus` CPUs without SMT, in strict order.
fn strict(cpus: usize) -> Config {
    Config {
        slack_cycles: 0,
        max_events: 10_000_000,
        ..Config::new(Topology::flat(cpus))
    }
}

fn word(machine: &Machine) -> Shared<SimWord> {
    machine.alloc(SimWord::new(0))
}

fn finish(machine: &mut Machine) {
    assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
}

/// A log that tasks of one run share.
type Log<T> = Rc<RefCell<Vec<T>>>;

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
fn the_same_seed_gives_the_same_run() {
    for mode in [
        StoreBuffer::Off,
        StoreBuffer::Timing,
        StoreBuffer::Random { max_cycles: 500 },
    ] {
        let first = busy_run(7, mode, 60);
        // Something in between that shifts host addresses.
        let shift = vec![0u8; 12345];
        assert_eq!(first, busy_run(7, mode, 60), "{mode:?} {}", shift.len());
        assert_ne!(first.0, busy_run(8, mode, 60).0, "{mode:?}: the seed has no effect");
        assert!(first.2 > 0 && first.1.total.events > 1000);
    }
}

#[test]
fn operations_on_shared_words_happen_in_time_order() {
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
fn a_cpu_is_never_further_ahead_than_the_slack() {
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

#[test]
fn interrupts_that_arrive_before_the_first_is_taken_merge() {
    let config = Config::new(Topology::flat(2));
    let costs = config.costs.clone();
    let (entries, _) = interrupted(config, Some(20_000), || (0..5).for_each(|_| m::send_ipi([1])));
    assert_eq!(entries, [20_000 + costs.interrupt_entry as u64]);
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
fn a_raised_interrupt_arrives_on_time_and_wakes_a_sleeper_that_sleeps_on() {
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
fn a_wake_is_not_seen_before_the_store_that_it_announces() {
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
fn every_wake_in_a_ping_pong_of_sleepers_counts() {
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
fn a_waiter_sees_the_store_and_costs_no_polling() {
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
fn no_wake_up_is_lost_when_the_store_races_with_the_evaluation() {
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
fn a_condition_may_take_the_lock_itself() {
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
fn an_interrupt_is_served_during_a_wait_and_a_masked_waiter_polls_at_its_arrival() {
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
                    // Self-service: what the handler would do.
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

/// Strict order on `topology`.
fn strict_of(topology: Topology) -> Config {
    Config {
        slack_cycles: 0,
        ..Config::new(topology)
    }
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
fn exclusive_transfers_of_one_line_follow_each_other() {
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

#[test]
fn words_outside_simulated_memory_work_and_cost_a_hit() {
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
fn a_sibling_slows_while_it_is_active_and_not_while_it_sleeps() {
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
fn time_is_booked_to_the_category_waiting_included() {
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

#[test]
fn a_deadlock_is_reported_with_each_cpu_named() {
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
fn a_thread_that_spends_no_time_ends_as_a_runaway() {
    let mut machine = Machine::new(strict(2));
    machine.spawn(0, || while !m::stop_requested() {});
    machine.spawn(1, m::sleep);
    let Outcome::Runaway(report) = machine.run(1000, |_| true) else {
        panic!("not seen")
    };
    assert!(report.contains("CPU 0 goes round without spending time"), "{report}");
    // One that spends a cycle each time may ask as often as it likes.
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

#[test]
fn a_word_that_goes_while_a_store_to_it_is_buffered_is_not_written_later() {
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

#[test]
fn a_task_that_migrates_goes_on_elsewhere_and_not_earlier() {
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
fn a_task_does_not_migrate_to_a_cpu_that_has_one() {
    let mut machine = Machine::new(strict(2));
    machine.spawn(0, || m::migrate(1));
    machine.spawn(1, || m::charge(1000));
    finish(&mut machine);
}

/// Words on a line of their own, as a request on a stack has them.
#[repr(align(64))]
struct OwnLine([SimWord; 2]);

/// Eats about `depth` times 200 bytes of stack, then calls `then`.
#[inline(never)]
fn deeper(depth: usize, then: &mut dyn FnMut()) {
    let eaten = std::hint::black_box([depth; 24]);
    match depth {
        0 => then(),
        _ => deeper(depth - 1, then),
    }
    std::hint::black_box(eaten);
}

/// Times of a run in which two CPUs put words on their stacks, now deep and now shallow, and the other one answers.
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
fn how_deep_words_lie_on_a_stack_changes_nothing() {
    let shallow = stack_words([0, 0, 0, 0]);
    assert_eq!(shallow.len(), 80);
    assert_eq!(shallow, stack_words([20, 20, 20, 20]));
    assert_eq!(shallow, stack_words([3, 41, 1, 12]));
}
