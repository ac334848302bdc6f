//! Break before make: the old entry is gone from every CPU before the new one is made.

use super::*;

#[test]
fn break_before_make_is_a_rule() {
    let fresh = || {
        let mut b = Bed::new(arm(ArmErrata::default()));
        let (f, g) = (b.hw.alloc_data(), b.hw.alloc_data());
        b.map(VA, f);
        (b, f, g)
    };
    let (mut b, _, g) = fresh();
    b.map(VA, g);
    assert_eq!(b.rules(), [Rule::BreakBeforeMake], "valid to valid");

    let (mut b, _, g) = fresh();
    b.unmap(VA);
    b.map(VA, g);
    assert_eq!(b.rules(), [Rule::BreakBeforeMake], "without a flush between");

    let (mut b, _, g) = fresh();
    b.unmap(VA);
    publish(&mut b);
    let stamp = b.hw.request_begins(0, b.now);
    broadcast(&mut b, leaf_everywhere(TAG));
    synchronise(&mut b, 0, Scope::InnerShareable);
    b.hw.completed(1, VA..VA + PAGE, stamp, 0, b.now);
    b.map(VA, g);
    b.assert_clean();

    let (mut b, f, _) = fresh();
    b.set(b.root, VA, 1, ro(f));
    b.set(b.root, VA, 1, rw(f));
    b.assert_clean();

    // Two CPUs: one withdraws, the other maps something else before that is flushed.
    let (mut b, _, g) = fresh();
    b.unmap(VA);
    let table = b.hw.table_at(b.root, VA, 1).expect("linked");
    b.hw.store_entry(table, table_index(VA, 1), rw(g), 1, b.now);
    assert_eq!(b.rules(), [Rule::BreakBeforeMake], "by another CPU");

    // From global to not global, the frame the same.
    let (mut b, f, _) = fresh();
    b.set(b.root, VA, 1, rw(f).with(Entry::GLOBAL));
    assert_eq!(b.rules(), [Rule::BreakBeforeMake], "global");
    let (mut b, f, _) = fresh();
    b.unmap(VA);
    b.set(b.root, VA, 1, rw(f).with(Entry::GLOBAL));
    assert_eq!(b.rules(), [Rule::BreakBeforeMake], "global, without a flush between");

    // A large page in place of a table, at once.
    let (mut b, _, _) = fresh();
    let large = b.hw.alloc_data();
    b.set(b.root, VA & !0x1F_FFFF, 2, rw(large).with(Entry::LARGE));
    assert!(b.rules().contains(&Rule::BreakBeforeMake));
}

#[test]
fn skipped_break_before_make_allows_both_translations() {
    let mut b = Bed::new(arm(ArmErrata::default()));
    let (f, g) = (b.hw.alloc_data(), b.hw.alloc_data());
    b.map(VA, f);
    b.read(0, VA).expect("mapped");
    b.map(VA, g);
    let seen = [0, 1].map(|cpu| b.read(cpu, VA).expect("mapped").frame);
    assert_eq!(seen, [f, g]);
}
