//! Range planning: whatever is asked, no byte is left out and no piece is empty.

use proptest::prelude::*;
use shootdown::{Range, Stride};

fn strides() -> impl Strategy<Value = Stride> {
    prop_oneof![Just(Stride::Size4K), Just(Stride::Size2M), Just(Stride::Size1G)]
}

proptest! {
    #[test]
    fn every_byte_asked_for_is_covered(start in any::<u64>(), length in 0_u64..1 << 40, stride in strides()) {
        let end = start.saturating_add(length);
        let range = Range::pages(start, end, stride);
        prop_assert!(range.start() <= start && range.end() >= end);
        prop_assert!(range.strides() >= 1, "an empty range still covers the page at its start");
        prop_assert_eq!(range.start() % stride.bytes(), 0);
        // Not more than rounding: at most one stride on either side.
        prop_assert!(start - range.start() < stride.bytes());
        prop_assert!(range.end() - end <= stride.bytes());
    }

    #[test]
    fn chunks_cover_exactly_the_strides_of_the_range(
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
    fn addresses_are_the_first_bytes_of_the_strides(start in 0_u64..1 << 47, pages in 1_u64..200, stride in strides()) {
        let range = Range::pages(start, start + pages * stride.bytes(), stride);
        let addresses: Vec<_> = range.addresses().collect();
        prop_assert_eq!(addresses.len() as u64, range.strides());
        prop_assert!(addresses.iter().all(|address| address % stride.bytes() == 0));
        prop_assert_eq!(addresses.first().copied(), Some(range.start()));
        prop_assert_eq!(addresses.last().map(|last| last + stride.bytes()), Some(range.end()));
    }
}

#[test]
fn an_inverted_range_covers_the_page_at_its_start() {
    let range = Range::pages(0x5000, 0x1000, Stride::Size4K);
    assert_eq!((range.start(), range.end(), range.strides()), (0x5000, 0x6000, 1));
}

#[test]
fn the_whole_space_is_never_walked() {
    assert!(!Range::WHOLE.is_walkable(u32::MAX));
    assert!(Range::WHOLE.tables());
}

#[test]
fn the_ceiling_is_inclusive() {
    let range = Range::pages(0, 33 * 4096, Stride::Size4K);
    assert!(range.is_walkable(33) && !range.is_walkable(32));
}
