use super::{Freed, Proof, RANGES, Ranges, Room};
use crate::design::{Design, Policy, Requests, Tags, Walkers};
use crate::hooks::Event;
use crate::range::{Range, Stride};
use crate::testing::mock_kernel::{DESIGN, EVENTS, InWorld, ON_WAIT, SEEN, Seen, Sys, all_answer, many, on};
use proptest::prelude::*;
use std::boxed::Box;
use std::vec::Vec;

const MIB: u64 = 1 << 20;

fn add_all(ranges: impl IntoIterator<Item = Range>) -> Ranges {
    ranges.into_iter().fold(Ranges::NONE, |mut kept, range| {
        kept.add(range);
        kept
    })
}

fn page(address: u64, stride: Stride) -> Range {
    Range::pages(address, address + stride.bytes(), stride)
}

#[test]
fn gather_merges_neighbours_and_separates_page_sizes() {
    let mixed = add_all([page(0x1000, Stride::Size4K), page(2 * MIB, Stride::Size2M)]);
    assert_eq!(mixed.as_slice().iter().map(Range::strides).sum::<u64>(), 2);
    assert_eq!(mixed.joined(33).as_slice().len(), 2);
    let neighbours = add_all((0..8).map(|index| page(index * 4096, Stride::Size4K)));
    assert_eq!(neighbours.as_slice(), [Range::pages(0, 8 * 4096, Stride::Size4K)]);
}

#[test]
fn gather_joins_scattered_pages_only_if_half_are_unmapped() {
    let near = add_all([0, 2].map(|index| page(index * 4096, Stride::Size4K)));
    assert_eq!(near.joined(33).as_slice(), [Range::pages(0, 3 * 4096, Stride::Size4K)]);
    let far = add_all([0, 20].map(|index| page(index * 4096, Stride::Size4K)));
    assert_eq!(far.clone().joined(33).as_slice().len(), 2);
    let half_wanted = add_all([0, 3].map(|index| page(index * 4096, Stride::Size4K)));
    assert_eq!(half_wanted.joined(33).as_slice().len(), 1);
    let less = add_all([0, 4].map(|index| page(index * 4096, Stride::Size4K)));
    assert_eq!(less.joined(33).as_slice().len(), 2);
    let over_the_ceiling = add_all([0, 2].map(|index| page(index * 4096, Stride::Size4K)));
    assert_eq!(over_the_ceiling.joined(2).as_slice().len(), 2);
}

#[test]
fn table_above_an_unmapped_page_adds_no_range() {
    let mut kept = add_all([page(0x5000, Stride::Size4K)]);
    kept.add_table(page(0, Stride::Size2M));
    assert_eq!(kept.as_slice(), [page(0x5000, Stride::Size4K).with_tables()]);
    kept.add_table(page(8 * MIB, Stride::Size2M));
    assert_eq!(kept.as_slice()[1], page(8 * MIB, Stride::Size2M).with_tables());
}

#[test]
fn table_without_unmapped_pages_adds_a_range() {
    // A page far above the span, just above, just below, and far below.
    for (beside, span) in [(8 * MIB, 0), (2 * MIB, 0), (6 * MIB - 4096, 6 * MIB), (0, 4 * MIB)] {
        let mut kept = add_all([page(beside, Stride::Size4K)]);
        kept.add_table(page(span, Stride::Size2M));
        let tables: Vec<bool> = kept.as_slice().iter().map(Range::tables).collect();
        assert_eq!(tables, [false, true], "a page at {beside:#x}, a table for {span:#x}");
    }
}

#[test]
fn full_gather_merges_the_two_closest_ranges() {
    let pages = |first: u64, count: u64| Range::pages(first * 4096, (first + count) * 4096, Stride::Size4K);
    let last = add_all([pages(0, 1), pages(1000, 1), pages(2000, 1), pages(2003, 1)]);
    assert_eq!(last.as_slice(), [pages(0, 1), pages(1000, 1), pages(2000, 4)]);
    let first = add_all([pages(0, 1), pages(3, 1), pages(2000, 1), pages(3000, 1)]);
    assert_eq!(first.as_slice(), [pages(0, 4), pages(3000, 1), pages(2000, 1)]);
    let middle = add_all([pages(0, 1), pages(1000, 1), pages(1003, 1), pages(3000, 1)]);
    assert_eq!(middle.as_slice(), [pages(0, 1), pages(1000, 4), pages(3000, 1)]);
}

fn any_range() -> impl Strategy<Value = Range> {
    let stride = prop_oneof![Just(Stride::Size4K), Just(Stride::Size2M), Just(Stride::Size1G)];
    (0_u64..1 << 12, 1_u64..40, stride, any::<bool>()).prop_map(|(first, count, stride, tables)| {
        let start = first * stride.bytes();
        let range = Range::pages(start, start + count * stride.bytes(), stride);
        if tables { range.with_tables() } else { range }
    })
}

proptest! {
    #[test]
    fn gather_covers_every_added_range_in_a_small_enough_stride(ranges in prop::collection::vec(any_range(), 1..12)) {
        for joined in [false, true] {
            let kept = add_all(ranges.iter().copied());
            let kept = if joined { kept.joined(33) } else { kept };
            prop_assert!(kept.as_slice().len() <= RANGES);
            for range in &ranges {
                let covered = kept.as_slice().iter().any(|kept| {
                    kept.start() <= range.start()
                        && range.end() <= kept.end()
                        && kept.stride() <= range.stride()
                        && (kept.tables() || !range.tables())
                });
                prop_assert!(covered, "{range:?} is in none of {:?}", kept.as_slice());
            }
        }
    }
}

/// Two CPUs that run one space; CPU 1 answers as soon as CPU 0 waits.
fn two(design: impl Into<Design>) -> (&'static Sys, InWorld) {
    let (engine, space) = many(design, 2);
    ON_WAIT.set(Some(Box::new(move |_| all_answer(engine))));
    SEEN.take();
    (engine, space)
}

fn invalidations() -> usize {
    SEEN.with_borrow(|seen| seen.iter().filter(|seen| **seen == Seen::Here).count())
}

fn interrupts() -> usize {
    SEEN.with_borrow(|seen| seen.iter().filter(|seen| matches!(seen, Seen::Sent(_))).count())
}

const LOG: Policy = Policy {
    requests: Requests::Log,
    tags: Tags::PerCpu,
    ..DESIGN
};

/// A 4 KiB page and a 2 MiB page, gathered by CPU 0.
fn unmap_mixed(engine: &Sys, space: InWorld) -> Vec<u64> {
    let (mut free, mut buffer) = (Vec::new(), [0_u64; 8]);
    let mut gather = engine.gather(space, &mut buffer, |freed: Freed<'_, u64>| {
        assert!(matches!(freed.proof, Proof::Pages(_)));
        assert_ne!(invalidations(), 0, "released before the flush");
        free.extend_from_slice(freed.pages);
    });
    assert_eq!(gather.page(0x1000, Stride::Size4K, 7), Room::Left);
    assert_eq!(gather.page(2 * MIB, Stride::Size2M, 8), Room::Left);
    assert_eq!(invalidations(), 0, "nothing is flushed before there is a reason");
    gather.finish();
    free
}

#[test]
fn two_page_sizes_cost_two_invalidations_per_cpu() {
    // The log carries both in one request; a descriptor carries one range.
    for (design, requests) in [(LOG, 1), (DESIGN, 2)] {
        let (engine, space) = two(design);
        EVENTS.take();
        assert_eq!(on(0, || unmap_mixed(engine, space)), [7, 8]);
        assert_eq!((invalidations(), interrupts()), (4, requests), "{:?}", design.requests);
        let whole = EVENTS.take().into_iter().any(|event| event == Event::CaughtUpWhole);
        assert!(!whole, "a whole tag was flushed: {:?}", design.requests);
        ON_WAIT.set(None);
    }
}

#[test]
fn pages_of_a_batch_are_not_logged_unlike_those_of_a_gather() {
    let (engine, space) = two(LOG);
    EVENTS.take();
    on(0, || {
        let mut batch = engine.batch();
        batch.add(space, page(0x1000, Stride::Size4K));
        let _done = batch.finish();
    });
    let whole = EVENTS.take().into_iter().any(|event| event == Event::CaughtUpWhole);
    assert!(whole, "a page was read from the log");
    ON_WAIT.set(None);
}

#[test]
fn full_gather_flushes_before_the_next_frame() {
    let (engine, space) = two(LOG);
    on(0, || {
        let (mut free, mut buffer) = (Vec::new(), [0_u64; 2]);
        let mut gather = engine.gather(space, &mut buffer, |freed: Freed<'_, u64>| {
            free.push(freed.pages.to_vec())
        });
        assert_eq!(gather.page(0x1000, Stride::Size4K, 1), Room::Left);
        assert_eq!(gather.page(0x2000, Stride::Size4K, 2), Room::Full);
        assert_eq!(interrupts(), 0);
        assert_eq!(gather.page(0x3000, Stride::Size4K, 3), Room::Left);
        assert_eq!(interrupts(), 1);
        drop(gather);
        assert_eq!(free, [vec![1, 2], vec![3]]);
        assert_eq!(interrupts(), 2, "what is left is flushed when the gather is dropped");
    });
    ON_WAIT.set(None);
}

#[test]
fn gather_counts_tables_like_pages() {
    let (engine, space) = two(LOG);
    on(0, || {
        let (mut free, mut buffer) = (Vec::new(), [0_u64; 1]);
        let mut gather = engine.gather(space, &mut buffer, |freed: Freed<'_, u64>| {
            free.push((freed.pages.to_vec(), freed.tables.to_vec()));
        });
        assert_eq!(gather.page(0x1000, Stride::Size4K, 1), Room::Full);
        assert_eq!(gather.table(page(0, Stride::Size2M), 100), Room::Full);
        gather.finish();
        assert_eq!(free, [(vec![1], vec![]), (vec![], vec![100])]);
    });
    ON_WAIT.set(None);
}

#[test]
fn changed_entries_are_flushed_without_freeing() {
    let (engine, space) = two(LOG);
    on(0, || {
        let mut buffer = [0_u64; 2];
        let mut gather = engine.gather(space, &mut buffer, |freed: Freed<'_, u64>| panic!("{freed:?}"));
        gather.changed(Range::page(0x1000));
        gather.flush();
        assert_eq!(interrupts(), 1);
        gather.flush();
        assert_eq!(interrupts(), 1, "nothing is left to flush");
    });
    ON_WAIT.set(None);
}

#[test]
fn gathered_table_is_freed_only_after_walks_end() {
    for requests in [Requests::Log, DESIGN.requests] {
        let design = Policy {
            walkers: Walkers::Precise,
            requests,
            ..LOG
        };
        let (engine, space) = two(design);
        let walk = on(1, || engine.walk(space));
        // CPU 1 ends its walk at the fifth poll, and answers only then.
        let mut walk = Some(walk);
        ON_WAIT.set(Some(Box::new(move |round| {
            if round >= 5 {
                on(1, || walk.take());
                all_answer(engine);
            }
        })));
        let (mut tables, mut buffer) = (Vec::new(), [0_u64; 8]);
        on(0, || {
            let mut gather = engine.gather(space, &mut buffer, |freed: Freed<'_, u64>| {
                assert!(matches!(freed.proof, Proof::Tables(_)));
                tables.push((freed.pages.to_vec(), freed.tables.to_vec()));
            });
            let _room = gather.page(0x1000, Stride::Size4K, 1);
            let _room = gather.table(page(0, Stride::Size2M), 100);
            let _room = gather.table(page(64 * MIB, Stride::Size2M), 101);
            gather.finish();
        });
        assert_eq!(tables, [(vec![1], vec![101, 100])], "{requests:?}");
        let looks = SEEN.with_borrow(|seen| seen.iter().filter(|seen| **seen == Seen::Waited).count());
        assert!(looks >= 5, "freed while CPU 1 walked: {requests:?}");
        ON_WAIT.set(None);
    }
}

#[test]
#[should_panic(expected = "a gather needs room for one frame at least")]
fn empty_gather_buffer_is_refused() {
    let (engine, space) = two(LOG);
    let _gather = engine.gather(space, &mut [], |_: Freed<'_, u64>| {});
}

#[test]
fn gather_leaves_no_pending_flush() {
    let (engine, space) = two(LOG);
    on(0, || unmap_mixed(engine, space));
    let before = interrupts();
    on(0, || engine.flush_pending(space));
    assert_eq!(interrupts(), before);
    ON_WAIT.set(None);
}
