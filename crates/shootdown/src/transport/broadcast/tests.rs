use crate::Policy;
use crate::range::{Range, Stride};
use crate::testing::mock_kernel::{AIMED, STEPS, three};

/// The hardware takes eight pages at once.
#[test]
fn a_long_range_under_every_tag_goes_in_as_many_broadcasts_as_it_takes() {
    let (engine, _) = three(Policy {
        stuck_ns: 0,
        ..Policy::ADAPTIVE
    });
    AIMED.set(true);
    STEPS.take();
    engine.broadcast_any_tag(&Range::pages(0x1000, 0x1000 + 20 * 4096, Stride::Size4K));
    AIMED.set(false);
    assert_eq!(STEPS.take(), ["broadcast"; 3]);
}
