//! Flushes of kernel ranges.

use crate::world;
use shootdown::{Broadcast, Policy, Range, Stride};

#[test]
fn kernel_range_of_unsupported_stride_is_broadcast_as_all() {
    let (world, engine) = world(Policy::BROADCAST, 2);
    for stride in [Stride::Size4K, Stride::Size2M, Stride::Size1G] {
        let _done = engine.flush_kernel(Range::pages(1 << 46, (1 << 46) + stride.bytes(), stride));
        let expected = match stride {
            Stride::Size1G => Broadcast::All,
            _ => Broadcast::Kernel {
                address: 1 << 46,
                stride,
                count: 1,
                leaf_only: true,
            },
        };
        assert_eq!(world.last_broadcast.take(), Some(expected));
    }
}

#[test]
fn kernel_broadcast_is_leaf_only_unless_tables_are_freed() {
    let (world, engine) = world(Policy::BROADCAST, 2);
    let range = Range::page(1 << 46);
    for (range, leaves) in [(range, true), (range.with_tables(), false)] {
        let _done = engine.flush_kernel(range);
        let Some(Broadcast::Kernel { leaf_only, .. }) = world.last_broadcast.take() else {
            panic!("{range:?} is broadcast as kernel pages");
        };
        assert_eq!(leaf_only, leaves, "{range:?}");
    }
}
