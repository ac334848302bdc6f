//! Forbidden outcomes are unreachable, allowed ones reachable: the shapes for AArch64.

mod break_before_make;

use crate::bed::*;
use shootdown::{Broadcast, BroadcastLimits, Local, Stride, Tag};
use shootdown_sim::hw::*;

const SEEDS: u64 = 400;

pub fn arm(errata: ArmErrata) -> HwConfig {
    HwConfig {
        broadcast: Some(BroadcastLimits {
            max_pages: 1 << 21,
            max_large_pages: 1 << 12,
        }),
        tce: true,
        leaf_only_keeps_psc: true,
        tag_bits: 16,
        isa: Isa::Aarch64(Aarch64 {
            errata,
            ..Aarch64::default()
        }),
        ..config(3)
    }
}

fn leaf(tag: u16) -> Local {
    Local::Page {
        address: VA,
        stride: Stride::Size4K,
        tag: Tag(tag),
        leaf_only: true,
    }
}

fn leaf_everywhere(tag: u16) -> Broadcast {
    Broadcast::Pages {
        address: VA,
        stride: Stride::Size4K,
        count: 1,
        tag: Tag(tag),
        leaf_only: true,
    }
}

/// Seeds in which CPU 1 reads a page that CPU 0 has unmapped and flushed; with `fills` it reads it in between as well.
fn stale_with(errata: ArmErrata, fills: bool, flush: impl Fn(&mut Bed)) -> usize {
    let run = |seed: u64| {
        let mut b = Bed::new(HwConfig { seed, ..arm(errata) });
        let f = b.hw.alloc_data();
        b.map(VA, f);
        b.hw.dsb(0, Scope::InnerShareable, b.now);
        if !fills {
            b.read(1, VA).expect("mapped");
        }
        // The store is issued, is buffered, and becomes visible.
        let table = b.hw.table_at(b.root, VA, 1).expect("mapped");
        let issued = b.hw.store_issued(0, b.now);
        if fills {
            b.read(1, VA).expect("still mapped");
        }
        b.now += 10;
        b.hw.set_entry(table, table_index(VA, 1), Entry::NONE, issued, b.now);
        flush(&mut b);
        b.now += (seed * 7) % 900;
        b.read(1, VA).is_ok()
    };
    (0..SEEDS).filter(|&seed| run(seed)).count()
}

fn stale(flush: impl Fn(&mut Bed)) -> usize {
    stale_with(ArmErrata::default(), false, flush)
}

#[track_caller]
fn sometimes(count: usize) {
    assert!(0 < count && count < SEEDS as usize, "{count} of {SEEDS}");
}

const ALWAYS: usize = SEEDS as usize;

fn publish(b: &mut Bed) {
    b.hw.dsb_stores(0, Scope::InnerShareable);
}

fn broadcast(b: &mut Bed, what: Broadcast) {
    let now = b.now;
    b.hw.tlbi_is(0, what, now).expect("a valid operand");
}

fn synchronise(b: &mut Bed, cpu: usize, scope: Scope) {
    b.now = b.hw.sync_ready_at(cpu, b.now);
    b.hw.dsb(cpu, scope, b.now);
}

#[test]
fn unmap_with_every_barrier_is_never_stale() {
    let forms = [
        leaf_everywhere(TAG),
        Broadcast::Tag(Tag(TAG)),
        Broadcast::NonGlobal,
        Broadcast::All,
        Broadcast::Kernel {
            address: VA,
            stride: Stride::Size4K,
            count: 1,
            leaf_only: false,
        },
    ];
    for what in forms {
        for fills in [false, true] {
            let n = stale_with(ArmErrata::default(), fills, |b| {
                publish(b);
                broadcast(b, what);
                synchronise(b, 0, Scope::InnerShareable);
            });
            assert_eq!(n, 0, "{what:?}");
        }
    }
}

#[test]
fn unmap_without_the_first_barrier_is_sometimes_stale() {
    sometimes(stale_with(ArmErrata::default(), true, |b| {
        broadcast(b, leaf_everywhere(TAG));
        synchronise(b, 0, Scope::InnerShareable);
    }));
    sometimes(stale_with(ArmErrata::default(), true, |b| {
        broadcast(b, Broadcast::Tag(Tag(TAG)));
        synchronise(b, 0, Scope::InnerShareable);
    }));
}

/// A barrier for this CPU alone (NSHST) publishes to its own walker. It does not order what another CPU's walker finds,
/// nor when that CPU's invalidation takes place.
#[test]
fn unmap_with_a_local_first_barrier_is_sometimes_stale_elsewhere() {
    let publish_here = |b: &mut Bed| b.hw.dsb_stores(0, Scope::Local);
    sometimes(stale_with(ArmErrata::default(), true, |b| {
        publish_here(b);
        broadcast(b, leaf_everywhere(TAG));
        synchronise(b, 0, Scope::InnerShareable);
    }));
    sometimes(stale_with(ArmErrata::default(), true, |b| {
        b.hw.dsb(0, Scope::Local, b.now);
        broadcast(b, leaf_everywhere(TAG));
        synchronise(b, 0, Scope::InnerShareable);
    }));
    sometimes(stale(|b| {
        publish_here(b);
        b.hw.exception_taken(1, b.now);
        b.hw.tlbi(1, leaf(TAG), b.now).expect("a valid operand");
        b.hw.dsb(1, Scope::Local, b.now);
    }));
}

#[test]
fn unmap_with_a_local_first_barrier_is_never_stale_locally() {
    for seed in 0..SEEDS {
        let mut b = Bed::new(HwConfig {
            seed,
            ..arm(ArmErrata::default())
        });
        let f = b.hw.alloc_data();
        b.map(VA, f);
        b.hw.dsb(0, Scope::InnerShareable, b.now);
        let table = b.hw.table_at(b.root, VA, 1).expect("mapped");
        let issued = b.hw.store_issued(0, b.now);
        b.read(0, VA).expect("still mapped");
        b.now += 10;
        b.hw.set_entry(table, table_index(VA, 1), Entry::NONE, issued, b.now);
        b.hw.dsb_stores(0, Scope::Local);
        b.hw.tlbi(0, leaf(TAG), b.now).expect("a valid operand");
        b.hw.dsb(0, Scope::Local, b.now);
        assert!(b.read(0, VA).is_err(), "seed {seed}");
    }
}

/// CPU 1 leaves the space; then CPU 0 frees a table of it, or its root. `between` is what CPU 1 does after the load.
fn freed_after_a_switch(of_root: bool, between: impl Fn(&mut Bed)) -> Vec<Rule> {
    let (mut b, _) = Bed::with_page(arm(ArmErrata::default()), &[1]);
    b.hw.new_space(2);
    for cpu in if of_root { vec![0, 2, 1] } else { vec![1] } {
        b.load(cpu, 2, 2, true);
        match cpu {
            1 => between(&mut b),
            _ => b.hw.dsb(cpu, Scope::Local, b.now),
        }
    }
    let freed = match of_root {
        true => b.root,
        false => {
            let table = b.hw.table_at(b.root, VA, 1).expect("mapped");
            b.set_over(VA, Entry::NONE);
            publish(&mut b);
            for cpu in [0, 2] {
                b.hw.tlbi(cpu, Local::Tag(Tag(TAG)), b.now).expect("a valid operand");
                b.hw.dsb(cpu, Scope::Local, b.now);
            }
            table
        }
    };
    b.hw.free_table(freed, 0, b.now);
    b.rules()
}

#[test]
fn walk_by_the_old_root_ends_at_a_barrier_not_at_the_load() {
    for of_root in [false, true] {
        let ended = freed_after_a_switch(of_root, |b| b.hw.dsb(1, Scope::Local, b.now));
        assert!(ended.is_empty(), "{ended:?}");
        assert!(freed_after_a_switch(of_root, |_| {}).contains(&Rule::C3));
        assert!(freed_after_a_switch(of_root, |b| b.hw.isb(1, b.now)).contains(&Rule::C3));
        assert!(freed_after_a_switch(of_root, |b| b.hw.exception_taken(1, b.now)).contains(&Rule::C3));
        assert!(freed_after_a_switch(of_root, |b| b.hw.dsb_stores(1, Scope::InnerShareable)).contains(&Rule::C3));
    }
    // An invalidation of the tag that is complete everywhere ends them as well.
    let broadcast_before = freed_after_a_switch(false, |b| {
        broadcast(b, Broadcast::Tag(Tag(TAG)));
        synchronise(b, 0, Scope::InnerShareable);
    });
    assert!(broadcast_before.is_empty(), "{broadcast_before:?}");
}

#[test]
fn unmap_without_invalidation_is_always_stale() {
    let n = stale(|b| {
        publish(b);
        synchronise(b, 0, Scope::InnerShareable);
    });
    assert_eq!(n, ALWAYS, "nothing else removes the entry");
}

#[test]
fn unmap_with_a_local_tlbi_is_stale_elsewhere() {
    let n = stale(|b| {
        publish(b);
        b.hw.tlbi(0, leaf(TAG), b.now).expect("a valid operand");
        synchronise(b, 0, Scope::InnerShareable);
    });
    assert_eq!(n, ALWAYS);
}

#[test]
fn unmap_without_a_shareable_second_barrier_is_sometimes_stale() {
    sometimes(stale(|b| {
        publish(b);
        broadcast(b, leaf_everywhere(TAG));
    }));
    sometimes(stale(|b| {
        publish(b);
        broadcast(b, leaf_everywhere(TAG));
        b.hw.dsb(0, Scope::Local, b.now);
    }));
    sometimes(stale(|b| {
        publish(b);
        broadcast(b, leaf_everywhere(TAG));
        b.hw.dsb(2, Scope::InnerShareable, b.now);
    }));
}

#[test]
fn broadcast_under_the_wrong_asid_is_always_stale() {
    let n = stale(|b| {
        publish(b);
        broadcast(b, leaf_everywhere(TAG + 1));
        synchronise(b, 0, Scope::InnerShareable);
    });
    assert_eq!(n, ALWAYS);
}

#[test]
fn handler_invalidation_needs_its_own_barrier() {
    // The message comes after the publication; the handler invalidates, synchronises, answers.
    let n = stale(|b| {
        publish(b);
        b.hw.exception_taken(1, b.now);
        b.hw.tlbi(1, leaf(TAG), b.now).expect("a valid operand");
        b.hw.dsb(1, Scope::Local, b.now);
    });
    assert_eq!(n, 0);
    sometimes(stale(|b| {
        publish(b);
        b.hw.exception_taken(1, b.now);
        b.hw.tlbi(1, leaf(TAG), b.now).expect("a valid operand");
    }));
}

/// The requester omits its first barrier: after any form of invalidation by the handler, a walk may find the old entry
/// again. An exception on the requester's side is no barrier, and one of a third CPU only for entries that it has read.
#[test]
fn handler_invalidation_needs_the_requesters_barrier() {
    let handler = |b: &mut Bed, what: Local| {
        b.hw.exception_taken(1, b.now);
        b.hw.tlbi(1, what, b.now).expect("a valid operand");
        b.hw.dsb(1, Scope::Local, b.now);
    };
    let kernel = Local::Kernel {
        address: VA,
        stride: Stride::Size4K,
    };
    for what in [leaf(TAG), Local::Tag(Tag(TAG)), Local::All, kernel] {
        for fills in [false, true] {
            let stale = |flush: &dyn Fn(&mut Bed)| stale_with(ArmErrata::default(), fills, flush);
            sometimes(stale(&|b| handler(b, what)));
            sometimes(stale(&|b| {
                b.hw.exception_taken(0, b.now);
                handler(b, what);
            }));
            assert_eq!(
                stale(&|b| {
                    publish(b);
                    handler(b, what);
                }),
                0
            );
            assert_eq!(
                stale(&|b| {
                    b.hw.dsb_stores(2, Scope::InnerShareable);
                    handler(b, what);
                }),
                0
            );
        }
    }
}

#[test]
fn entry_of_an_unloaded_space_is_not_refilled() {
    let n = stale(|b| {
        let root = b.hw.root(0);
        b.hw.load_root(1, root, 2, true, 0, b.now).expect("a valid tag");
        b.hw.tlbi(1, Local::Tag(Tag(TAG)), b.now).expect("a valid operand");
        b.hw.dsb(1, Scope::Local, b.now);
        b.load(1, 1, TAG, true);
    });
    assert_eq!(n, 0);
}

#[test]
fn local_invalidation_eventually_takes_effect_without_barrier() {
    let n = stale(|b| {
        publish(b);
        b.hw.tlbi(1, leaf(TAG), b.now).expect("a valid operand");
        b.now += 1000;
    });
    assert_eq!(n, 0);
}

#[test]
fn new_root_takes_effect_only_after_the_isb() {
    let mut old = 0;
    for seed in 0..SEEDS {
        let mut b = Bed::new(HwConfig {
            seed,
            ..arm(ArmErrata::default())
        });
        b.hw.new_space(2);
        let (f, g) = (b.hw.alloc_data(), b.hw.alloc_data());
        b.map(VA, f);
        let (one, two) = (b.hw.root(1), b.hw.root(2));
        b.set(two, VA, 1, rw(g));
        assert_ne!(one, two);
        b.hw.write_root(0, two, 2, 2);
        let first = b.read(0, VA).expect("mapped in both").frame;
        old += usize::from(first == f);
        b.hw.isb(0, b.now);
        b.hw.caught_up(0, b.now);
        assert_eq!(b.read(0, VA).expect("mapped").frame, g);
        b.assert_clean();
    }
    sometimes(old);
}

#[test]
fn leaf_tlbi_keeps_links_and_full_tlbi_drops_the_path() {
    for (leaf_only, steps) in [(true, 1), (false, 4)] {
        let mut b = Bed::new(arm(ArmErrata::default()));
        let (f, g) = (b.hw.alloc_data(), b.hw.alloc_data());
        let elsewhere = VA + (1 << 40);
        b.map(VA, f);
        b.map(elsewhere, g);
        b.read(1, VA).expect("mapped");
        b.read(1, elsewhere).expect("mapped");
        let what = Local::Page {
            address: VA,
            stride: Stride::Size4K,
            tag: Tag(TAG),
            leaf_only,
        };
        b.hw.tlbi(1, what, b.now).expect("a valid operand");
        b.hw.dsb(1, Scope::Local, b.now);
        let costs = b.hw.config().costs;
        let walk = |steps: u32| costs.tlb_hit + steps * costs.walk_step;
        assert_eq!(b.read(1, VA).expect("mapped").cost, walk(steps));
        assert!(b.hits(1, elsewhere));
        b.page_elsewhere_keeps_its_links(elsewhere, walk(1));
    }
}

impl Bed {
    fn page_elsewhere_keeps_its_links(&mut self, va: u64, one_step: u32) {
        let what = Local::Page {
            address: va,
            stride: Stride::Size4K,
            tag: Tag(TAG),
            leaf_only: true,
        };
        self.hw.tlbi(1, what, self.now).expect("a valid operand");
        self.hw.dsb(1, Scope::Local, self.now);
        assert_eq!(self.read(1, va).expect("mapped").cost, one_step);
    }
}

#[test]
fn range_tlbi_covers_exactly_its_pages() {
    let mut b = Bed::new(arm(ArmErrata::default()));
    let frames: Vec<_> = (0..8).map(|_| b.hw.alloc_data()).collect();
    for (i, &f) in frames.iter().enumerate() {
        b.map(VA + i as u64 * PAGE, f);
        b.read(1, VA + i as u64 * PAGE).expect("mapped");
    }
    publish(&mut b);
    broadcast(
        &mut b,
        Broadcast::Pages {
            address: VA + PAGE,
            stride: Stride::Size4K,
            count: 5,
            tag: Tag(TAG),
            leaf_only: true,
        },
    );
    synchronise(&mut b, 0, Scope::InnerShareable);
    let hit: Vec<_> = (0..8).map(|i| b.hits(1, VA + i * PAGE)).collect();
    assert_eq!(hit, [true, false, false, false, false, false, true, true]);
}

#[test]
fn tag_that_exceeds_the_width_is_refused_not_truncated() {
    for (bits, largest) in [(8, 0xFF_u16), (16, 0xFFFF)] {
        let mut b = Bed::new(HwConfig {
            tag_bits: bits,
            ..arm(ArmErrata::default())
        });
        assert!(b.hw.tlbi(0, Local::Tag(Tag(largest)), 0).is_ok());
        let beyond = b.hw.tlbi(0, Local::Tag(Tag(largest.wrapping_add(1) | 0x100)), 0);
        assert_eq!(beyond.is_err(), bits == 8, "regression 12");
    }
    // Tags that agree in their low eight bits are different tags.
    let mut b = Bed::new(arm(ArmErrata::default()));
    let f = b.hw.alloc_data();
    b.load(0, 1, 0x105, true);
    b.map(VA, f);
    b.read(0, VA).expect("mapped");
    b.hw.tlbi(0, Local::Tag(Tag(0x005)), b.now).expect("a valid operand");
    b.hw.dsb(0, Scope::Local, b.now);
    assert!(b.hits(0, VA));
}

#[test]
fn single_tlbi_is_sometimes_lost_with_the_repeat_erratum() {
    let errata = ArmErrata {
        repeat: true,
        ..ArmErrata::default()
    };
    let once = |b: &mut Bed| {
        publish(b);
        broadcast(b, leaf_everywhere(TAG));
        synchronise(b, 0, Scope::InnerShareable);
    };
    sometimes(stale_with(errata, false, once));
    let twice = stale_with(errata, false, |b| {
        once(b);
        once(b);
    });
    assert_eq!(twice, 0);
}

#[test]
fn early_sync_is_completed_by_an_exception() {
    let errata = ArmErrata {
        early_sync: true,
        ..ArmErrata::default()
    };
    let complete = |b: &mut Bed| {
        publish(b);
        broadcast(b, leaf_everywhere(TAG));
        synchronise(b, 0, Scope::InnerShareable);
    };
    sometimes(stale_with(errata, false, complete));
    let interrupted = stale_with(errata, false, |b| {
        complete(b);
        for cpu in 1..3 {
            b.hw.exception_taken(cpu, b.now);
        }
    });
    assert_eq!(interrupted, 0);
}
