//! Prefetches: what overlaps, what does not, and how many lines can be in flight.

use crate::{finish, strict_of};
use shootdown::facade::{Facade, Word};
use shootdown_sim::machine::{self as m, Config, Machine, SimWord, SimWorld, Topology};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Cycles of a read that hits, and of a prefetch itself.
const HIT: u64 = 4;

/// Lines that CPU 1 has written, all as far from CPU 0.
const LINES: usize = 12;

/// A line of its own.
#[repr(align(64))]
struct Own(SimWord);

/// Cycles that a line takes from CPU 1 to CPU 0.
fn transfer() -> u64 {
    config(0).costs.transfer[1] as u64
}

fn config(prefetches: usize) -> Config {
    let mut config = strict_of(Topology::regular(2, 1, 2, 2));
    config.costs.prefetches = prefetches;
    config
}

/// How long CPU 0 takes to prefetch the first `ahead` of `read` lines and then to read all of them, with up to
/// `prefetches` in flight. CPU 1 writes line `rewritten` again in between.
fn takes(prefetches: usize, ahead: usize, read: usize, rewritten: Option<usize>) -> u64 {
    let mut machine = Machine::new(config(prefetches));
    let lines = machine.alloc([0; LINES].map(SimWord::new).map(Own));
    let (mine, took) = (lines.clone(), Rc::new(Cell::new(0)));
    machine.spawn(1, move || {
        for line in lines.iter() {
            line.0.swap_full(1);
        }
        if let Some(index) = rewritten {
            m::charge(20_000 - m::now());
            lines[index].0.swap_full(2);
        }
    });
    let out = Rc::clone(&took);
    machine.spawn(0, move || {
        m::charge(10_000);
        let begun = m::now();
        mine.iter().take(ahead).for_each(|line| SimWorld::prefetch(&line.0));
        let prefetched = m::now() - begun;
        let pause = if rewritten.is_some() { 20_000 } else { 0 };
        m::charge(pause);
        let begun = m::now();
        for (index, line) in mine.iter().take(read).enumerate() {
            let expected = if rewritten == Some(index) { 2 } else { 1 };
            assert_eq!(line.0.load(Relaxed), expected);
        }
        out.set(prefetched + m::now() - begun);
    });
    finish(&mut machine);
    took.get()
}

#[test]
fn prefetched_lines_transfer_in_parallel() {
    assert_eq!(takes(8, 0, 6, None), 6 * transfer());
    // All six are asked for in turn, and the last arrives one transfer after that.
    assert_eq!(takes(8, 6, 6, None), 6 * HIT + transfer() + HIT);
    // Lines that were not prefetched come afterwards.
    assert_eq!(takes(8, 6, 8, None), 6 * HIT + transfer() + HIT + 2 * transfer());
}

#[test]
fn outstanding_transfers_are_bounded_by_the_machine() {
    let together = takes(LINES, LINES, LINES, None);
    let in_threes = takes(4, LINES, LINES, None);
    assert!(together < 2 * transfer(), "{together}");
    assert!((3 * transfer()..4 * transfer()).contains(&in_threes), "{in_threes}");
    let one_by_one = takes(1, LINES, LINES, None);
    assert!(one_by_one >= LINES as u64 * transfer(), "{one_by_one}");
}

#[test]
fn without_prefetch_each_line_costs_a_transfer() {
    assert_eq!(takes(0, 6, 6, None), 6 * transfer());
}

#[test]
fn line_written_after_its_prefetch_is_fetched_again() {
    // The others have arrived by then.
    let kept = 5 * HIT;
    assert_eq!(takes(8, 6, 6, Some(3)), 6 * HIT + kept + transfer());
}

/// How long CPU 0 takes to change `count` words, having `read` and `prefetched` their lines before or not.
fn changing_takes(count: usize, read: bool, prefetched: bool) -> u64 {
    let mut machine = Machine::new(config(8));
    let lines = machine.alloc([0; LINES].map(SimWord::new).map(Own));
    let (mine, took) = (lines.clone(), Rc::new(Cell::new(0)));
    machine.spawn(1, move || {
        for line in lines.iter() {
            line.0.swap_full(1);
        }
    });
    let out = Rc::clone(&took);
    machine.spawn(0, move || {
        m::charge(10_000);
        let lines = || mine.iter().take(count);
        if read {
            lines().for_each(|line| assert_eq!(line.0.load(Relaxed), 1));
        }
        let begun = m::now();
        if prefetched {
            lines().for_each(|line| SimWorld::prefetch_to_write(&line.0));
        }
        lines().for_each(|line| assert_eq!(line.0.swap_full(2), 1));
        out.set(m::now() - begun);
    });
    finish(&mut machine);
    took.get()
}

#[test]
fn lines_prefetched_for_write_transfer_in_parallel() {
    for read in [false, true] {
        let one_by_one = changing_takes(6, read, false);
        let together = changing_takes(6, read, true);
        // A change of a word that is here already.
        let rmw = (one_by_one - 6 * transfer()) / 6;
        assert!(one_by_one >= 6 * transfer(), "{one_by_one}");
        assert_eq!(together, HIT + transfer() + 6 * (HIT + rmw), "{one_by_one} {rmw}");
    }
    // One prefetch alone gains nothing.
    assert!(changing_takes(1, true, true) >= changing_takes(1, true, false));
}
