//! The oracle's reports about freed frames (C2) and tables (C3), and cases that it must not report.

use crate::bed::*;
use shootdown::Stride;
use shootdown::{Local, Tag};
use shootdown_sim::hw::*;

#[test]
fn c2_a_frame_freed_while_a_cpu_can_use_it() {
    let (mut b, f) = unmapped();
    b.hw.free_data(f, 0, b.now);
    assert_eq!(b.rules(), [Rule::C2]);
    assert_eq!(b.hw.violations()[0].cpu, 1);
}

#[test]
fn c2_a_frame_freed_while_mapped() {
    let mut b = Bed::new(config(1));
    let f = b.hw.alloc_data();
    b.map(VA, f);
    b.hw.free_data(f, 0, b.now);
    assert_eq!(b.rules(), [Rule::C2]);
}

#[test]
fn c2_frame_mapped_twice_is_found_under_both_addresses() {
    let mut b = Bed::new(config(2));
    let f = b.hw.alloc_data();
    for va in [VA, VA + 8 * PAGE] {
        b.map(va, f);
        b.read(1, va).unwrap();
        b.unmap(va);
    }
    b.hw.free_data(f, 0, b.now);
    assert_eq!(b.rules(), [Rule::C2, Rule::C2]);
}

#[test]
fn c2_frame_kept_by_a_lazy_cpu_is_caught_at_its_use() {
    let (mut b, f) = unmapped();
    b.hw.set_lazy(1, true);
    b.hw.free_data(f, 0, b.now);
    b.assert_clean();
    b.hw.set_lazy(1, false);
    let mut used = Bed { hw: b.hw.clone(), ..b };
    assert!(used.read(1, VA).is_err());
    assert_eq!(used.rules(), [Rule::C2]);
    b.hw.caught_up(1, b.now);
    assert_eq!(b.rules(), [Rule::C2]);
}

#[test]
fn c2_flushed_and_reused_frame_is_no_violation() {
    let (mut b, f) = unmapped();
    b.local(1, Local::Tag(Tag(TAG)));
    b.claim_flushed(0, 1, VA);
    b.hw.free_data(f, 0, b.now);
    assert_eq!(b.hw.alloc_data(), f);
    b.map(VA + PAGE, f);
    b.read(1, VA + PAGE).unwrap();
    b.unmap(VA + PAGE);
    b.page(1, VA + PAGE, TAG);
    b.hw.free_data(f, 0, b.now);
    b.assert_clean();
}

/// The leaf table of `VA`, unlinked, its one page unmapped and flushed as a leaf only where `links` is false.
fn table_unlinked(tag: u16) -> (Bed, u32) {
    let (mut b, _) = Bed::with_page(
        HwConfig {
            leaf_only_keeps_psc: true,
            ..config(2)
        },
        &[1],
    );
    let table = b.hw.table_at(b.root, VA, 1).unwrap();
    b.unmap(VA);
    b.set_over(VA, Entry::NONE);
    b.local(
        1,
        Local::Page {
            address: VA,
            stride: Stride::Size4K,
            tag: Tag(tag),
            leaf_only: true,
        },
    );
    b.claim_flushed(0, 1, VA);
    b.assert_clean();
    (b, table)
}

#[test]
fn c3_a_table_freed_while_linked() {
    let mut b = Bed::new(config(2));
    let f = b.hw.alloc_data();
    b.map(VA, f);
    b.unmap(VA);
    let table = b.hw.table_at(b.root, VA, 1).unwrap();
    b.hw.free_table(table, 0, b.now);
    assert_eq!(b.rules(), [Rule::C3]);
    assert!(b.read(0, VA).is_err(), "the walk runs into it");
    assert_eq!(b.rules(), [Rule::C3, Rule::C3]);
}

#[test]
fn c3_table_freed_while_a_link_is_cached() {
    for lazy in [false, true] {
        let (mut b, table) = table_unlinked(TAG);
        b.hw.set_lazy(1, lazy);
        b.hw.free_table(table, 0, b.now);
        assert_eq!(b.rules(), [Rule::C3], "lazy {lazy}");
        assert_eq!(b.hw.violations()[0].cpu, 1);
    }
}

/// It has announced that it goes offline, and has not left the space yet: it speculates.
#[test]
fn c3_table_freed_while_a_cpu_going_offline_has_the_root_loaded() {
    let (mut b, table) = table_unlinked(TAG);
    b.hw.set_online(1, false);
    let mut gone = Bed { hw: b.hw.clone(), ..b };
    b.hw.free_table(table, 0, b.now);
    assert_eq!(b.rules(), [Rule::C3]);
    assert_eq!(b.hw.violations()[0].cpu, 1);
    // A CPU that has left the space keeps its cached entries, and flushes them before it is online again.
    gone.load(1, 0, 0, true);
    gone.hw.free_table(table, 0, gone.now);
    gone.hw.set_online(1, true);
    gone.local(1, Local::All);
    gone.hw.came_online(1, gone.now);
    gone.assert_clean();
}

#[test]
fn cpu_going_offline_speculates_until_it_unloads_its_space() {
    let (mut b, _) = Bed::with_page(config(2), &[]);
    b.hw.set_online(1, false);
    b.hw.speculate(1, VA, b.now);
    assert!(b.hits(1, VA));
    let f = b.hw.alloc_data();
    b.map(VA + PAGE, f);
    b.load(1, 0, 0, true);
    b.hw.speculate(1, VA + PAGE, b.now);
    b.load(1, 1, TAG, true);
    b.hw.caught_up(1, b.now);
    assert!(!b.hits(1, VA + PAGE));
}

#[test]
fn c3_flushed_or_unreachable_links_are_no_violation() {
    let (mut b, table) = table_unlinked(TAG);
    b.page(1, VA, TAG);
    b.hw.free_table(table, 0, b.now);
    b.assert_clean();
    for keep in [false, true] {
        let (mut b, table) = table_unlinked(TAG);
        b.load(1, 0, 0, true);
        b.hw.free_table(table, 0, b.now);
        b.assert_clean();
        b.load(1, 1, TAG, keep);
        assert_eq!(b.rules().len(), keep as usize);
    }
}

#[test]
fn c3_leaf_only_broadcast_does_not_permit_a_table_free() {
    for (leaf_only, bad) in [(true, 1), (false, 0)] {
        for tce in [false, true] {
            let (mut b, _) = Bed::with_page(HwConfig { tce, ..config(2) }, &[1]);
            let table = b.hw.table_at(b.root, VA, 1).unwrap();
            b.unmap(VA);
            b.set_over(VA, Entry::NONE);
            let what = broadcast_page(TAG, leaf_only);
            b.hw.broadcast(0, what, b.now).unwrap();
            b.hw.sync_done(0);
            b.hw.free_table(table, 0, b.now);
            assert_eq!(b.rules().len(), bad, "tce {tce}");
        }
    }
}

#[test]
fn c3_a_root_freed_while_loaded() {
    let mut b = Bed::new(config(2));
    b.hw.new_space(2);
    b.load(1, 2, 2, true);
    b.hw.set_lazy(1, true);
    let root = b.hw.root(2);
    let mut good = Bed { hw: b.hw.clone(), ..b };
    good.load(1, 0, 0, true);
    good.hw.free_table(root, 0, 0);
    good.hw.end_space(2);
    good.assert_clean();
    b.hw.free_table(root, 0, 0);
    assert_eq!(b.rules(), [Rule::C3]);
}
