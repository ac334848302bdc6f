//! Quarantines: what the oracle allows of a deferred unmap, and what it forbids.

use crate::bed::*;
use shootdown_sim::hw::Rule;

/// A page that CPU 1 has cached is unmapped, and in quarantine with its frame.
fn quarantined() -> (Bed, u32, u64) {
    let mut b = Bed::new(config(2));
    let frame = b.hw.alloc_data();
    b.map(VA, frame);
    b.read(1, VA).unwrap();
    b.unmap(VA);
    let stamp = b.hw.request_begins(0, b.now);
    let number = b.hw.quarantine(1, VA..VA + PAGE, stamp, &[frame]);
    (b, frame, number)
}

#[test]
fn quarantined_frame_may_be_used_until_quarantine_ends() {
    let (mut b, frame, number) = quarantined();
    assert!(b.hits(1, VA));
    b.page(1, VA, TAG);
    b.hw.quarantine_ends(number, 0, b.now);
    b.hw.free_data(frame, 0, b.now);
    let other = b.hw.alloc_data();
    b.map(VA, other);
    b.read(1, VA).unwrap();
    b.assert_clean();
}

#[test]
fn c1_entry_cached_at_the_end_of_quarantine_is_found() {
    let (mut b, _, number) = quarantined();
    b.hw.quarantine_ends(number, 0, b.now);
    assert_eq!(b.rules(), [Rule::C1]);
}

#[test]
fn c1_mapping_a_quarantined_range_is_a_violation() {
    let (mut b, _, _) = quarantined();
    b.page(1, VA, TAG);
    let other = b.hw.alloc_data();
    b.map(VA + PAGE, other);
    b.assert_clean();
    b.map(VA, other);
    assert_eq!(b.rules(), [Rule::C1]);
}

#[test]
fn c2_freeing_a_quarantined_frame_is_a_violation() {
    let (mut b, frame, _) = quarantined();
    b.page(1, VA, TAG);
    b.hw.free_data(frame, 0, b.now);
    assert_eq!(b.rules(), [Rule::C2]);
}

#[test]
fn c1_quarantine_does_not_relax_a_completed_request() {
    let (mut b, _, _) = quarantined();
    b.claim_flushed(0, 1, VA);
    assert_eq!(b.rules(), [Rule::C1]);
}

#[test]
fn quarantine_is_per_space() {
    let (mut b, _, _) = quarantined();
    let root = b.hw.new_space(2);
    let other = b.hw.alloc_data();
    b.set(root, VA, 1, rw(other));
    b.assert_clean();
}
