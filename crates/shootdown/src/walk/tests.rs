use crate::Policy;
use crate::design::Walkers;
use crate::testing::interleave;
use crate::testing::mock_kernel::{DESIGN, on, three};

/// A machine check on top of an NMI, when both handlers walk.
#[test]
fn nested_nmi_walk_does_not_hide_the_interrupted_walk() {
    let (engine, space) = three(Policy {
        walkers: Walkers::Precise,
        ..DESIGN
    });
    for after_joining in [false, true] {
        let inner = move || drop(engine.walk_from_nmi(space));
        match after_joining {
            false => interleave::after(0, inner),
            true => interleave::after_next_write(inner),
        }
        let walk = on(1, || engine.walk_from_nmi(space));
        assert!(engine.nmi_walkers.contains(1), "after joining: {after_joining}");
        on(1, || drop(walk));
        assert!(!engine.nmi_walkers.contains(1));
    }
}
