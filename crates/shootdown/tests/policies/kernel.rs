//! Flushes of kernel ranges.

use crate::world;
use shootdown::{Broadcast, Policy, Range, Stride};

#[test]
fn a_kernel_range_whose_stride_no_instruction_has_is_broadcast_as_everything() {
    let (world, engine) = world(Policy::BROADCAST, 2);
    for stride in [Stride::Size4K, Stride::Size2M, Stride::Size1G] {
        let _done = engine.flush_kernel(Range::pages(1 << 46, (1 << 46) + stride.bytes(), stride));
        let expected = match stride {
            Stride::Size1G => Broadcast::All,
            _ => Broadcast::Kernel {
                address: 1 << 46,
                stride,
                count: 1,
            },
        };
        assert_eq!(world.last_broadcast.take(), Some(expected));
    }
}
