use crate::Policy;
use crate::range::{Range, Stride};
use crate::testing::mock_kernel::{AIMED, STEPS, three};

/// The hardware takes eight pages at once.
#[test]
fn long_any_tag_range_is_split_into_broadcasts() {
    let (engine, _) = three(Policy {
        stuck_ns: 0,
        ..Policy::ADAPTIVE
    });
    AIMED.set(true);
    STEPS.take();
    engine.broadcast_any_tag(&[Range::pages(0x1000, 0x1000 + 20 * 4096, Stride::Size4K)], 1);
    AIMED.set(false);
    assert_eq!(STEPS.take(), ["broadcast"; 3]);
}
