//! Range planning.

use crate::input::Input;
use shootdown::{Range, Stride};

/// Pieces and pages that are looked at one by one; longer ranges are looked at from the front.
const MOST: usize = 4096;

pub(crate) fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let stride = input.of(&[Stride::Size4K, Stride::Size2M, Stride::Size1G]);
    let (tables, most, ceiling) = (input.byte() & 1 == 1, input.word(), input.word());
    let (start, second) = (input.long(), input.long());
    // Lengths of all sizes, not only huge ones.
    let end = match input.byte() % 3 {
        0 => second,
        1 => start.saturating_add(second >> 30),
        _ => start.saturating_add(second >> 48),
    };
    let range = Range::pages(start, end, stride);
    let range = if tables { range.with_tables() } else { range };
    let size = range.stride().bytes();

    // The end of the address space has no address of its own.
    let to_the_end = range.end() == u64::MAX;
    if end != 0 && end < start {
        assert!(range.start() == 0 && to_the_end, "an inverted range covers everything");
    } else {
        assert!(range.start() <= start && start - range.start() < stride.bytes());
    }
    assert!(end != 0 || to_the_end, "an end of 0 is the end of the address space");
    assert!(
        range.end() >= end && (to_the_end || range.end() > start),
        "an empty range covers the page at its start"
    );
    assert_eq!(range.start() % size, 0);
    assert!(range.strides() >= 1);
    assert_eq!(range.tables(), tables);
    assert!(to_the_end || range.end() % size == 0);

    assert_eq!(range.is_walkable(ceiling), range.strides() <= u64::from(ceiling));
    for (number, address) in (0..).zip(range.addresses().take(MOST)) {
        assert_eq!(address, range.start() + number * size);
    }
    assert!(range.addresses().take(MOST).count() as u64 == range.strides().min(MOST as u64));

    let (mut next, mut left) = (range.start(), range.strides());
    for (address, count) in range.chunks(most).take(MOST) {
        assert_eq!(address, next, "no gap, no overlap");
        assert!(count >= 1 && count <= most.max(1) && u64::from(count) <= left);
        left -= u64::from(count);
        next = next.wrapping_add(u64::from(count) * size);
    }
    let pieces = range.strides().div_ceil(u64::from(most.max(1)));
    assert!(left == 0 || pieces > MOST as u64, "nothing is left out");

    let page = Range::page(start);
    assert_eq!((page.strides(), page.start()), (1, start & !0xFFF));
}
