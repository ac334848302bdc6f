//! The oracle's reports about translations and tags, and cases at which it must stay silent. `freed.rs` has the reports
//! about freed frames and tables.

use crate::bed::*;
use shootdown::{Broadcast, Local, Stride, Tag};
use shootdown_sim::hw::*;

#[test]
fn c1_request_that_missed_a_cpu_is_reported_with_its_history() {
    let (mut b, f) = unmapped();
    b.claim_flushed(0, 1, VA);
    assert_eq!(b.rules(), [Rule::C1]);
    let v = &b.hw.violations()[0];
    assert_eq!((v.cpu, v.va, v.space), (1, VA, 1));
    for part in [
        "C1",
        "CPU 1",
        "tag 1",
        "filled at",
        "withdrawn",
        "CPU 0",
        "begun at",
        "still usable",
        &f.to_string(),
    ] {
        assert!(v.diagnosis.contains(part), "{part} missing in:\n{}", v.diagnosis);
    }
    assert!(v.diagnosis.lines().count() >= 5);
    assert!(b.read(1, VA).is_err(), "the entry is dropped");
    assert_eq!(b.hw.violation_count(), 1);
}

#[test]
fn c1_before_the_request_completes_a_stale_hit_is_allowed() {
    let (mut b, _) = unmapped();
    assert!(b.hits(1, VA));
    let stamp = b.hw.request_begins(0, b.now);
    assert!(b.hits(1, VA));
    b.page(1, VA, TAG);
    b.hw.completed(1, VA..VA + PAGE, stamp, 0, b.now);
    assert!(b.read(1, VA).is_err());
    b.assert_clean();
}

#[test]
fn c1_request_does_not_cover_later_withdrawals() {
    let (mut b, _) = Bed::with_page(config(2), &[1]);
    let stamp = b.hw.request_begins(0, b.now);
    b.unmap(VA);
    b.hw.completed(1, VA..VA + PAGE, stamp, 0, b.now);
    b.hw.completed_space(1, stamp, 0, b.now);
    assert!(b.hits(1, VA));
    b.assert_clean();
    b.claim_flushed(0, 1, VA);
    assert_eq!(b.rules(), [Rule::C1]);
}

#[test]
fn c1_store_buffered_past_its_flush_is_caught() {
    let mut b = Bed::new(config(2));
    let f = b.hw.alloc_data();
    b.map(VA, f);
    let table = b.hw.table_at(b.root, VA, 1).unwrap();
    let issued = b.hw.store_issued(0, b.now);
    let stamp = b.hw.request_begins(0, b.now);
    b.page(1, VA, TAG);
    b.read(1, VA).unwrap(); // refills the old translation: the store is not visible yet
    b.hw.completed(1, VA..VA + PAGE, stamp, 0, b.now);
    b.assert_clean();
    b.hw.set_entry(table, table_index(VA, 1), Entry::NONE, issued, b.now + 10);
    assert_eq!(b.rules(), [Rule::C1]);
    assert!(b.hw.violations()[0].diagnosis.contains("store buffer"));
}

#[test]
fn c1_only_lost_rights_are_withdrawals() {
    for (first, second, bad) in [
        (rw(9), ro(9), true),
        (ro(9), rw(9), false),
        (rw(9), rw(9).with(Entry::DIRTY), false),
    ] {
        let mut b = Bed::new(config(2));
        let f = b.hw.alloc_data();
        let with = |e: Entry| Entry::page(f).with(e.0 & 0xfff);
        b.set(b.root, VA, 1, with(first));
        b.read(1, VA).unwrap();
        b.set(b.root, VA, 1, with(second));
        b.claim_flushed(0, 1, VA);
        assert_eq!(b.rules().len(), bad as usize, "{first:?} to {second:?}");
    }
}

#[test]
fn c1_remapping_the_same_frame_is_no_violation() {
    let (mut b, f) = unmapped();
    b.map(VA, f);
    b.claim_flushed(0, 1, VA);
    assert!(b.hits(1, VA));
    b.assert_clean();
    // Until it is withdrawn again: its old request does not cover the new withdrawal.
    b.unmap(VA);
    assert!(b.hits(1, VA));
    b.assert_clean();
    b.claim_flushed(0, 1, VA);
    assert_eq!(b.rules(), [Rule::C1]);
}

#[test]
fn c1_older_and_newer_withdrawals_are_distinguished() {
    let (mut b, _) = unmapped(); // CPU 1 caches the first frame
    let stamp = b.hw.request_begins(0, b.now);
    let g = b.hw.alloc_data();
    b.map(VA, g);
    b.read(0, VA).unwrap(); // CPU 0 caches the second
    b.unmap(VA);
    b.hw.completed(1, VA..VA + PAGE, stamp, 0, b.now);
    assert_eq!(b.hw.violations().iter().map(|v| v.cpu).collect::<Vec<_>>(), [1]);
    assert!(b.hits(0, VA));
    assert_eq!(b.hw.violation_count(), 1);
}

#[test]
fn c1_lazy_cpu_may_keep_stale_entries_until_it_leaves() {
    let (mut b, _) = unmapped();
    b.hw.set_lazy(1, true);
    b.claim_flushed(0, 1, VA);
    b.hw.caught_up(1, b.now);
    b.assert_clean();
    let mut good = Bed { hw: b.hw.clone(), ..b };
    good.hw.set_lazy(1, false);
    good.page(1, VA, TAG);
    good.hw.caught_up(1, good.now);
    good.assert_clean();
    b.hw.set_lazy(1, false);
    b.assert_clean();
    b.hw.caught_up(1, b.now);
    assert_eq!(b.rules(), [Rule::C1]);
}

#[test]
fn c1_lazy_cpu_using_a_stale_entry_is_caught() {
    let (mut b, _) = unmapped();
    b.hw.set_lazy(1, true);
    b.claim_flushed(0, 1, VA);
    assert!(b.read(1, VA).is_err());
    assert_eq!(b.rules(), [Rule::C1]);
}

#[test]
fn c1_unloaded_tag_may_be_stale_until_loaded() {
    for flush in [true, false] {
        let (mut b, _) = unmapped();
        b.load(1, 0, 0, true);
        b.claim_flushed(0, 1, VA);
        b.load(1, 1, TAG, !flush);
        b.assert_clean();
        b.hw.caught_up(1, b.now);
        assert_eq!(b.rules().len(), !flush as usize);
    }
}

#[test]
fn c1_a_switch_may_finish_catching_up_after_a_completion() {
    let (mut b, _) = unmapped();
    b.load(1, 0, 0, true);
    b.load(1, 1, TAG, true);
    b.claim_flushed(0, 1, VA);
    b.page(1, VA, TAG);
    b.hw.caught_up(1, b.now);
    b.assert_clean();
}

#[test]
fn c1_large_completions_match_page_completions() {
    let claims: [fn(&mut Bed, Stamp); 2] = [
        |b, s| b.hw.completed_space(1, s, 0, 9),
        |b, s| b.hw.completed(1, 0..1 << 47, s, 0, 9),
    ];
    for claim in claims {
        let (mut b, _) = unmapped();
        let stamp = b.hw.request_begins(0, 8);
        claim(&mut b, stamp);
        assert_eq!(b.rules(), [Rule::C1]);
        // And bind later uses: an entry hidden by a switch is caught at its use.
        let (mut b, _) = unmapped();
        b.load(1, 0, 0, true);
        let stamp = b.hw.request_begins(0, 8);
        claim(&mut b, stamp);
        b.assert_clean();
        b.load(1, 1, TAG, true);
        assert!(b.read(1, VA).is_err());
        assert_eq!(b.rules(), [Rule::C1]);
        let (mut b, _) = unmapped();
        b.local(1, Local::Tag(Tag(TAG)));
        claim(&mut b, Stamp::default());
        let stamp = b.hw.request_begins(0, 8);
        claim(&mut b, stamp);
        b.assert_clean();
    }
}

#[test]
fn c1_kernel_pages_bind_lazy_and_switching_cpus_but_not_offline_ones() {
    for (lazy, online, bad) in [(false, true, true), (true, true, true), (false, false, false)] {
        for global in [0, Entry::GLOBAL] {
            let mut b = Bed::new(config(2));
            let f = b.hw.alloc_data();
            let kernel = b.hw.root(0);
            b.set(kernel, KVA, 1, Entry::page(f).with(global));
            b.kernel_read(1, KVA).unwrap();
            b.hw.set_lazy(1, lazy);
            b.hw.set_online(1, online);
            b.set(kernel, KVA, 1, Entry::NONE);
            b.claim_flushed(0, 0, KVA);
            assert_eq!(b.rules().len(), bad as usize);
            if !online {
                let mut good = Bed { hw: b.hw.clone(), ..b };
                good.hw.set_online(1, true);
                good.local(1, Local::All);
                good.hw.came_online(1, 9);
                good.assert_clean();
                b.hw.set_online(1, true);
                b.local(1, Local::Tag(Tag(TAG)));
                b.hw.came_online(1, 9);
                assert_eq!(
                    b.rules().len(),
                    (global != 0) as usize,
                    "only a global entry survives a tag flush"
                );
            }
        }
    }
}

#[test]
fn c1_collapse_into_a_large_page_withdraws_small_pages() {
    let mut b = Bed::new(config(2));
    let (f, large) = (b.hw.alloc_data(), b.hw.alloc_data());
    b.map(VA, f);
    b.map(VA + PAGE, f);
    b.read(1, VA + PAGE).unwrap();
    b.set_over(VA, rw(large).with(Entry::LARGE));
    b.claim_flushed(0, 1, VA);
    b.assert_clean();
    let stamp = b.hw.request_begins(0, b.now);
    b.hw.completed(1, VA..VA + (2 << 20), stamp, 0, b.now);
    assert_eq!(b.rules(), [Rule::C1]);
    assert_eq!(b.hw.violations()[0].va, VA + PAGE);
}

#[test]
fn c1_a_fill_through_a_link_to_an_unlinked_table_is_caught() {
    let mut b = Bed::new(config(2));
    let f = b.hw.alloc_data();
    b.map(VA, f);
    b.map(VA + PAGE, f);
    b.read(1, VA).unwrap(); // caches the links
    b.set_over(VA, Entry::NONE); // both pages go, still present in the table
    b.hw.local(
        1,
        Local::Page {
            address: VA,
            stride: Stride::Size4K,
            tag: Tag(9),
            leaf_only: false,
        },
        0,
    )
    .unwrap();
    b.read(1, VA + PAGE).expect("allowed: no request has completed");
    let stamp = b.hw.request_begins(0, b.now);
    b.hw.completed(1, VA..VA + (2 << 20), stamp, 0, b.now);
    assert_eq!(b.rules(), [Rule::C1, Rule::C1], "both entries");
    b.read(1, VA + PAGE).expect("refilled from the withdrawn table");
    assert_eq!(b.hw.violation_count(), 3);
    b.hw.speculate(1, VA, b.now);
    assert_eq!(b.hw.violation_count(), 4, "a speculative fill counts too");
}

#[test]
fn c1_moved_table_keeps_its_translations() {
    let (mut b, f) = Bed::with_page(config(2), &[1]);
    let to = 0x1000_0000;
    let (from_table, to_table) = (
        b.hw.table_at(b.root, VA, 2).unwrap(),
        b.hw.ensure_table(b.root, to, 2, 0, 0),
    );
    let leaf_table = b.hw.table_at(b.root, VA, 1).unwrap();
    b.hw.store_entry(from_table, table_index(VA, 2), Entry::NONE, 0, b.now);
    b.hw.store_entry(to_table, table_index(to, 2), Entry::table(leaf_table), 0, b.now);
    assert_eq!(b.read(0, to).unwrap().frame, f);
    assert!(b.read(0, VA).is_err());
    b.assert_clean();
    b.claim_flushed(0, 1, VA);
    assert_eq!(b.rules(), [Rule::C1]);
}

#[test]
fn c4_reassigned_tag_with_remaining_entries() {
    for keep in [false, true] {
        let mut b = Bed::new(config(1));
        b.hw.new_space(2);
        let f = b.hw.alloc_data();
        b.map(VA, f);
        b.read(0, VA).unwrap();
        b.load(0, 2, TAG, keep);
        b.hw.caught_up(0, 0);
        assert_eq!(b.rules().len(), keep as usize);
    }
}

#[test]
fn c4_global_kernel_entries_are_shared() {
    let mut b = Bed::new(config(1));
    b.hw.new_space(2);
    let f = b.hw.alloc_data();
    let kernel = b.hw.root(0);
    b.set(kernel, KVA, 1, Entry::page(f).with(Entry::GLOBAL));
    b.kernel_read(0, KVA).unwrap();
    b.load(0, 2, TAG, true);
    assert!(!b.kernel_read(0, KVA).unwrap().walked);
    b.assert_clean();
}

#[test]
fn ended_space_leaves_no_history() {
    let mut b = Bed::new(config(2));
    for space in 2..200 {
        let root = b.hw.new_space(space);
        b.load(0, space, 2, false);
        b.hw.caught_up(0, b.now);
        let f = b.hw.alloc_data();
        b.set(root, VA, 1, rw(f));
        b.write(0, VA).unwrap();
        b.set(root, VA, 1, Entry::NONE);
        b.load(0, 1, TAG, true);
        b.hw.caught_up(0, b.now);
        b.local(0, Local::Tag(Tag(2)));
        let tables: Vec<u32> = (1..=4).map(|l| b.hw.table_at(root, VA, l).unwrap()).collect();
        for l in 2..=4 {
            b.hw.store_entry(tables[l as usize - 1], table_index(VA, l), Entry::NONE, 0, b.now);
        }
        let stamp = b.hw.request_begins(0, b.now);
        b.hw.completed_space(space, stamp, 0, b.now);
        b.hw.free_data(f, 0, b.now);
        for t in tables {
            b.hw.free_table(t, 0, b.now);
        }
        b.hw.end_space(space);
    }
    b.assert_clean();
    assert!(b.hw.alloc_data() < 40, "frames are reused");
}

#[test]
fn only_the_first_violations_keep_a_history_and_all_are_counted() {
    let mut b = Bed::new(HwConfig {
        stories: 2,
        ..config(2)
    });
    let f = b.hw.alloc_data();
    for i in 0..5 {
        b.map(VA, f);
        b.read(1, VA).unwrap();
        b.unmap(VA);
        b.claim_flushed(0, 1, VA);
        assert_eq!(b.hw.violation_count(), i + 1);
    }
    assert_eq!(b.hw.violations().len(), 2);
    assert_eq!(b.hw.first_violation_after(), Some(1));
}

/// CPU 1 has another tag loaded while a page is write-protected without a flush of CPU 1; after `churn` other
/// withdrawals it returns. The frame stays, so that only C1 can detect it.
fn protected_while_away(churn: u64) -> (Vec<Rule>, bool) {
    let (mut b, f) = Bed::with_page(config(2), &[0]);
    b.write(1, VA).unwrap();
    b.hw.new_space(2);
    b.load(1, 2, 2, true);
    b.hw.caught_up(1, b.now);
    b.set(b.root, VA, 1, ro(f));
    b.page(0, VA, TAG);
    b.claim_flushed(0, 1, VA);
    let g = b.hw.alloc_data();
    for _ in 0..churn {
        b.map(VA + PAGE, g);
        b.unmap(VA + PAGE);
    }
    b.load(1, 1, TAG, true);
    b.hw.caught_up(1, b.now);
    let wrote = b.write(1, VA).is_ok();
    (b.rules(), wrote)
}

#[test]
fn withdrawal_stays_binding_after_its_record_is_evicted() {
    // The ring of records holds 131,072.
    for churn in [0, 131_071, 131_073, 300_000] {
        assert_eq!(protected_while_away(churn), (vec![Rule::C1], false), "after {churn}");
    }
}

/// A whole table moves from `VA` to another place, as by `mremap`, and the flush spares the links to it. CPU 1 then
/// reads through the old address a page that was mapped at the new one, before the move or after it.
fn read_through_a_link_to_a_moved_table(mapped_before: bool) -> (Vec<Rule>, bool) {
    let mut b = Bed::new(config(2));
    let (f, g) = (b.hw.alloc_data(), b.hw.alloc_data());
    let place = VA + (8 << 21);
    b.map(VA, f);
    b.hw.ensure_table(b.root, place, 2, 0, 0);
    if mapped_before {
        b.map(VA + 5 * PAGE, g);
    }
    b.read(1, VA).unwrap();
    let table = b.hw.table_at(b.root, VA, 1).unwrap();
    b.set_over(VA, Entry::NONE);
    b.set_over(place, Entry::table(table));
    let stamp = b.hw.request_begins(0, b.now);
    let what = Broadcast::Pages {
        address: VA,
        stride: Stride::Size4K,
        count: 8,
        tag: Tag(TAG),
        leaf_only: true,
    };
    b.hw.broadcast(0, what, b.now).unwrap();
    b.now += 5000;
    b.hw.sync_done(0);
    b.hw.completed(1, VA..VA + (2 << 20), stamp, 0, b.now);
    if !mapped_before {
        b.map(place + 5 * PAGE, g);
    }
    let read = b.read(1, VA + 5 * PAGE).is_ok();
    (b.rules(), read)
}

#[test]
fn access_at_the_old_place_of_a_moved_table_is_explained() {
    for mapped_before in [true, false] {
        let found = read_through_a_link_to_a_moved_table(mapped_before);
        assert_eq!(found, (vec![Rule::C1], true), "mapped before: {mapped_before}");
    }
}
