//! Forbidden outcomes are unreachable, allowed ones reachable: the shapes of `docs` "conformance", for x86.

use crate::bed::*;
use shootdown::Stride;
use shootdown::{Broadcast, Local, Tag};
use shootdown_sim::hw::*;

const SEEDS: u64 = 400;

/// How often, over the seeds, CPU 1 still reads a page that CPU 0 has unmapped and passed to `flush`.
fn stale(flush: impl Fn(&mut Bed)) -> usize {
    (0..SEEDS)
        .filter(|&seed| {
            let (mut b, _) = Bed::with_page(HwConfig { seed, ..config(3) }, &[1, 0]);
            b.unmap(VA);
            flush(&mut b);
            b.now += (seed * 7) % 900;
            b.read(1, VA).is_ok()
        })
        .count()
}

fn pages(tag: u16) -> Broadcast {
    broadcast_page(tag, true)
}

#[test]
fn invlpg_on_one_cpu_does_not_affect_another() {
    assert_eq!(stale(|b| b.page(0, VA, TAG)), SEEDS as usize);
    assert_eq!(stale(|b| b.page(1, VA, TAG)), 0, "in the other's handler it does");
    assert_eq!(
        stale(|b| b.page(1, VA, TAG + 1)),
        SEEDS as usize,
        "with the wrong tag it does not"
    );
}

#[test]
fn broadcast_without_sync_is_sometimes_stale_and_sometimes_not() {
    let n = stale(|b| assert!(b.hw.broadcast(0, pages(TAG), b.now).is_ok()));
    assert!(0 < n && n < SEEDS as usize, "{n} of {SEEDS}");
}

#[test]
fn sync_on_another_cpu_completes_no_broadcast() {
    let n = stale(|b| {
        b.hw.broadcast(0, pages(TAG), b.now).unwrap();
        b.now = b.hw.sync_ready_at(2, b.now);
        b.hw.sync_done(2);
    });
    assert!(0 < n && n < SEEDS as usize, "{n} of {SEEDS}");
}

#[test]
fn broadcast_with_sync_is_never_stale() {
    let all: [fn() -> Broadcast; 5] = [
        || pages(TAG),
        || Broadcast::Tag(Tag(TAG)),
        || Broadcast::NonGlobal,
        || Broadcast::All,
        || Broadcast::Kernel {
            address: VA,
            stride: Stride::Size4K,
            count: 1,
            leaf_only: false,
        },
    ];
    for what in all {
        let n = stale(|b| {
            b.hw.broadcast(0, what(), b.now).unwrap();
            b.hw.sync_done(0);
        });
        assert_eq!(n, 0, "{:?}", what());
    }
    let wrong = |b: &mut Bed| {
        b.hw.broadcast(0, pages(TAG + 1), b.now).unwrap();
        b.hw.sync_done(0);
    };
    assert_eq!(stale(wrong), SEEDS as usize, "with the wrong tag it is");
}

#[test]
fn sync_also_reaches_a_cpu_that_has_left_the_tag() {
    for tce in [false, true] {
        let (mut b, _) = Bed::with_page(HwConfig { tce, ..config(2) }, &[1]);
        b.load(1, 0, 0, true);
        b.unmap(VA);
        b.hw.broadcast(0, pages(TAG), b.now).unwrap();
        b.hw.sync_done(0);
        b.load(1, 1, TAG, true);
        assert!(b.read(1, VA).is_err());
    }
}

#[test]
fn sync_waits_for_the_slowest_cpu() {
    let mut b = Bed::new(config(2));
    assert_eq!(b.hw.sync_ready_at(0, 50), 50);
    b.hw.broadcast(0, pages(TAG), 50).unwrap();
    let costs = b.hw.config().costs;
    let longest = (costs.broadcast_min + costs.broadcast_spread) as u64;
    assert_eq!(b.hw.sync_ready_at(0, 60), 50 + longest);
    assert_eq!(b.hw.sync_ready_at(1, 60), 60);
}

#[test]
fn a_leaf_only_broadcast_keeps_links_and_a_full_one_does_not() {
    for (leaf_only, steps) in [(true, 1), (false, 4)] {
        for tce in [false, true] {
            let (mut b, _) = Bed::with_page(HwConfig { tce, ..config(2) }, &[1]);
            let what = broadcast_page(TAG, leaf_only);
            b.hw.broadcast(0, what, b.now).unwrap();
            b.hw.sync_done(0);
            let costs = b.hw.config().costs;
            assert_eq!(
                b.read(1, VA).unwrap().cost,
                costs.tlb_hit + steps * costs.walk_step,
                "tce {tce}"
            );
        }
    }
}

#[test]
fn an_entry_filled_after_a_broadcast_was_issued_may_survive_its_sync() {
    let mut b = Bed::new(HwConfig { seed: 3, ..config(2) });
    let f = b.hw.alloc_data();
    b.hw.broadcast(0, pages(TAG), 0).unwrap();
    b.map(VA, f);
    b.now = 5000;
    b.read(1, VA).unwrap();
    b.hw.sync_done(0);
    assert!(b.hits(1, VA));
}

#[test]
fn outstanding_broadcasts_are_bounded() {
    let mut b = Bed::new(config(1));
    for i in 0..5000 {
        b.hw.broadcast(0, pages(TAG), i * 100).unwrap();
    }
    assert!(b.hw.broadcasts_outstanding() <= 256);
}

#[test]
fn root_switch_under_one_tag_without_invalidation_is_stale() {
    let mut b = Bed::new(config(1));
    b.hw.new_space(2);
    let f = b.hw.alloc_data();
    b.map(VA, f);
    b.read(0, VA).unwrap();
    // As the hardware sees it; the oracle objects (C4).
    b.load(0, 2, TAG, true);
    assert!(b.read(0, VA).is_err());
    assert!(
        b.rules().iter().all(|&r| r == Rule::C4) && !b.rules().is_empty(),
        "{:?}",
        b.rules()
    );
}

#[test]
fn missing_break_before_make_allows_both_translations() {
    let mut b = Bed::new(config(2));
    let (f, g) = (b.hw.alloc_data(), b.hw.alloc_data());
    b.map(VA, f);
    b.read(0, VA).unwrap();
    b.map(VA, g);
    assert_eq!((b.read(0, VA).unwrap().frame, b.read(1, VA).unwrap().frame), (f, g));
    b.local(0, Local::Tag(Tag(TAG)));
    assert_eq!(b.read(0, VA).unwrap().frame, g);
    b.assert_clean();
}

/// How often, over the seeds, a write faults after its page has gained the right, with `flush` between.
fn faults_after_gaining(stale_faults: bool, flush: impl Fn(&mut Bed)) -> u64 {
    let faults = |seed: u64| {
        let mut b = Bed::new(HwConfig {
            seed,
            stale_faults,
            ..config(2)
        });
        let f = b.hw.alloc_data();
        b.set(b.root, VA, 1, ro(f));
        b.read(1, VA).unwrap();
        b.map(VA, f);
        flush(&mut b);
        let first = b.write(1, VA);
        assert_eq!(b.write(1, VA).map(|t| t.frame), Ok(f), "a fault takes the entry away");
        b.assert_clean();
        first.is_err()
    };
    (0..SEEDS).filter(|&seed| faults(seed)).count() as u64
}

#[test]
fn more_permissive_entry_may_fault_until_flushed() {
    let n = faults_after_gaining(true, |_| ());
    assert!(0 < n && n < SEEDS, "{n} of {SEEDS}");
    assert_eq!(faults_after_gaining(true, |b| b.page(1, VA, TAG)), 0);
    assert_eq!(
        faults_after_gaining(false, |_| ()),
        0,
        "a processor that walks before it faults"
    );
}

#[test]
fn newly_valid_entry_never_faults_on_x86() {
    for seed in 0..SEEDS {
        let mut b = Bed::new(HwConfig {
            seed,
            stale_faults: true,
            speculation: 0.5,
            ..config(2)
        });
        let f = b.hw.alloc_data();
        b.map(VA + PAGE, f);
        for _ in 0..4 {
            assert!(b.read(1, VA).is_err());
            b.read(1, VA + PAGE).unwrap();
        }
        b.map(VA, f);
        assert!(
            b.read(1, VA).is_ok(),
            "seed {seed}: no processor of this kind caches that a page is not mapped"
        );
    }
}
