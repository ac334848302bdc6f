//! Range planning: for every range, no byte is left out and no piece is empty.

use proptest::prelude::*;
use shootdown::{Range, Stride};

fn strides() -> impl Strategy<Value = Stride> {
    prop_oneof![Just(Stride::Size4K), Just(Stride::Size2M), Just(Stride::Size1G)]
}

proptest! {
    #[test]
    fn range_covers_every_requested_byte(start in any::<u64>(), length in 0_u64..1 << 40, stride in strides()) {
        let end = start.saturating_add(length);
        let range = Range::pages(start, end, stride);
        prop_assert!(range.start() <= start && range.end() >= end);
        prop_assert!(range.strides() >= 1, "an empty range still covers the page at its start");
        prop_assert_eq!(range.start() % stride.bytes(), 0);
        // No more than rounding: at most one stride on either side.
        prop_assert!(start - range.start() < stride.bytes());
        prop_assert!(range.end() - end <= stride.bytes());
    }

    #[test]
    fn chunks_cover_exactly_the_strides(
        start in 0_u64..1 << 47, pages in 1_u64..5000, stride in strides(), most in 0_u32..600
    ) {
        let range = Range::pages(start, start + pages * stride.bytes(), stride);
        let mut next = range.start();
        let mut total = 0;
        for (address, count) in range.chunks(most) {
            prop_assert_eq!(address, next, "no gap and no overlap");
            prop_assert!(count >= 1 && count <= most.max(1), "a limit of 0 counts as 1 (regression 4)");
            next += u64::from(count) * stride.bytes();
            total += u64::from(count);
        }
        prop_assert_eq!(total, range.strides());
        prop_assert_eq!(next, range.end());
    }

    #[test]
    fn addresses_are_the_starts_of_the_strides(start in 0_u64..1 << 47, pages in 1_u64..200, stride in strides()) {
        let range = Range::pages(start, start + pages * stride.bytes(), stride);
        let addresses: Vec<_> = range.addresses().collect();
        prop_assert_eq!(addresses.len() as u64, range.strides());
        prop_assert!(addresses.iter().all(|address| address % stride.bytes() == 0));
        prop_assert_eq!(addresses.first().copied(), Some(range.start()));
        prop_assert_eq!(addresses.last().map(|last| last + stride.bytes()), Some(range.end()));
    }

    /// C3 with TCE: an invalidation purges only the paging-structure-cache entries for its own address.
    #[test]
    fn range_with_tables_names_an_address_under_every_table(
        start in 0_u64..1 << 47, length in 1_u64..1 << 33, stride in strides(), most in 1_u32..16
    ) {
        let length = if stride == Stride::Size4K { length >> 7 } else { length };
        let range = Range::pages(start, start + length, stride).with_tables();
        prop_assert!(range.start() <= start && range.end() >= start + length);
        let mut named: Vec<u64> = range.addresses().collect();
        let broadcast: Vec<u64> = range
            .chunks(most)
            .flat_map(|(first, count)| (0..u64::from(count)).map(move |i| (first, i)))
            .map(|(first, i)| first + i * range.stride().bytes())
            .collect();
        prop_assert_eq!(&named, &broadcast);
        named.sort_unstable();
        // Tables of level 1, 2 and 3 span 2 MiB, 1 GiB and 512 GiB.
        for shift in [21, 30, 39] {
            for span in start >> shift..=(start + length - 1) >> shift {
                let next = named.partition_point(|&address| address < span << shift);
                prop_assert!(named.get(next).is_some_and(|&address| address >> shift == span), "span {span:#x} of \
                    2^{shift}");
            }
        }
    }
}

#[test]
fn whole_space_is_never_flushed_by_page() {
    assert!(!Range::WHOLE.is_walkable(u32::MAX));
    assert!(Range::WHOLE.tables());
}

#[test]
fn flush_ceiling_is_inclusive() {
    let range = Range::pages(0, 33 * 4096, Stride::Size4K);
    assert!(range.is_walkable(33) && !range.is_walkable(32));
}

/// Ranges of fewer than 512 strides are stored in one word, longer ones in two.
#[test]
fn range_near_the_most_strides_of_one_word_keeps_both_ends() {
    for stride in [Stride::Size4K, Stride::Size2M, Stride::Size1G] {
        for (first, count) in (0..2).flat_map(|first| (510..=514).map(move |count| (first, count))) {
            let (start, end) = (first * stride.bytes(), (first + count) * stride.bytes());
            let range = Range::pages(start, end, stride);
            assert_eq!((range.start(), range.end(), range.strides()), (start, end, count));
        }
    }
}

#[test]
fn one_page_is_the_range_around_its_address() {
    let last = !0xFFF_u64;
    for start in [0, 0x1000, 0x7FFF_FFFF_F000, 1 << 47, last - 0x1000, last] {
        for address in [start, start + 1, start + 0xFFF] {
            let around = Range::pages(start, start.wrapping_add(0x1000), Stride::Size4K);
            assert_eq!(Range::page(address), around, "{address:#x}");
        }
    }
}

#[test]
fn empty_range_covers_the_page_at_its_start() {
    for stride in [Stride::Size4K, Stride::Size2M, Stride::Size1G] {
        for start in [stride.bytes(), 5 * stride.bytes()] {
            assert_eq!(
                Range::pages(start, start, stride),
                Range::pages(start, start + 1, stride)
            );
            assert_eq!(Range::pages(start, start, stride).strides(), 1);
        }
    }
}

#[test]
fn range_at_the_end_of_the_address_space_does_not_wrap() {
    for stride in [Stride::Size4K, Stride::Size2M, Stride::Size1G] {
        let last = u64::MAX - stride.bytes() + 1;
        for range in [
            Range::pages(last, u64::MAX, stride),
            Range::pages(u64::MAX, u64::MAX, stride),
        ] {
            assert_eq!((range.start(), range.end(), range.strides()), (last, u64::MAX, 1));
            assert_eq!(range.addresses().collect::<Vec<_>>(), [last]);
        }
        let two = Range::pages(last - 1, u64::MAX, stride);
        assert_eq!((two.end(), two.strides()), (u64::MAX, 2));
    }
}

/// C6: where one end of a range is in doubt, everything is flushed.
#[test]
fn wrapping_or_inverted_range_flushes_everything() {
    let top = u64::MAX - (4 << 20) + 1;
    let wrapped = Range::pages(top, top.wrapping_add(4 << 20), Stride::Size4K);
    assert_eq!((wrapped.start(), wrapped.end()), (top, u64::MAX));
    assert_eq!(wrapped.strides(), 1024);
    let inverted = Range::pages(0x5000, 0x3000, Stride::Size4K);
    assert_eq!((inverted.start(), inverted.end()), (0, u64::MAX));
    let empty = Range::pages(0x5000, 0x5000, Stride::Size2M);
    assert_eq!((empty.start(), empty.strides()), (0, 1));
    let all = Range::pages(0, 0, Stride::Size4K);
    assert_eq!((all.start(), all.end()), (0, u64::MAX), "2^64 bytes from 0 on end at 0");
    assert_eq!(Range::page(u64::MAX).strides(), 1, "the last page");
}
