//! Forbidden outcomes are unreachable, allowed ones reachable: the shapes for RISC-V.

use crate::bed::*;
use shootdown::{Broadcast, BroadcastLimits, Local, Stride, Tag};
use shootdown_sim::hw::*;

const SEEDS: u64 = 400;

pub fn riscv(svinval: bool, seed: u64) -> HwConfig {
    HwConfig {
        broadcast: Some(BroadcastLimits {
            max_pages: 64,
            max_large_pages: 64,
        }),
        tag_bits: 9,
        isa: Isa::Riscv64(Riscv64 {
            svinval,
            ..Riscv64::default()
        }),
        seed,
        ..config(3)
    }
}

fn page(tag: u16, leaf_only: bool) -> Local {
    Local::Page {
        address: VA,
        stride: Stride::Size4K,
        tag: Tag(tag),
        leaf_only,
    }
}

/// As on AArch64: hart 0 unmaps, hart 1 reads; `fills` between the store's issue and its visibility.
fn stale(svinval: bool, fills: bool, flush: impl Fn(&mut Bed)) -> usize {
    let run = |seed: u64| {
        let mut b = Bed::new(riscv(svinval, seed));
        let f = b.hw.alloc_data();
        b.map(VA, f);
        b.hw.sfence_w_inval(0);
        if !fills {
            b.read(1, VA).expect("mapped");
        }
        let table = b.hw.table_at(b.root, VA, 1).expect("mapped");
        let issued = b.hw.store_issued(0, b.now);
        if fills {
            b.read(0, VA).expect("still mapped");
            b.read(1, VA).expect("still mapped");
        }
        b.now += 10;
        b.hw.set_entry(table, table_index(VA, 1), Entry::NONE, issued, b.now);
        flush(&mut b);
        b.now += (seed * 7) % 900;
        b.read(if fills { 0 } else { 1 }, VA).is_ok()
    };
    (0..SEEDS).filter(|&seed| run(seed)).count()
}

#[track_caller]
fn sometimes(count: usize) {
    assert!(0 < count && count < SEEDS as usize, "{count} of {SEEDS}");
}

#[test]
fn fence_affects_only_its_own_hart() {
    let other = stale(false, false, |b| {
        b.hw.sfence(0, page(TAG, true), b.now).expect("a valid operand");
    });
    assert_eq!(other, SEEDS as usize);
    for what in [page(TAG, true), Local::Tag(Tag(TAG)), Local::All] {
        let own = stale(false, false, |b| {
            b.hw.sfence(1, what, b.now).expect("a valid operand");
        });
        assert_eq!(own, 0, "{what:?}");
    }
    let wrong = stale(false, false, |b| {
        b.hw.sfence(1, page(TAG + 1, true), b.now).expect("a valid operand");
    });
    assert_eq!(wrong, SEEDS as usize, "with the wrong tag");
}

#[test]
fn remote_fence_reaches_every_hart() {
    let pages = |leaf_only| Broadcast::Pages {
        address: VA,
        stride: Stride::Size4K,
        count: 1,
        tag: Tag(TAG),
        leaf_only,
    };
    for what in [pages(true), pages(false), Broadcast::Tag(Tag(TAG)), Broadcast::All] {
        let n = stale(false, false, |b| b.hw.sbi_remote_fence(what).expect("a valid operand"));
        assert_eq!(n, 0, "{what:?}");
    }
}

#[test]
fn svinval_completes_only_after_sfence_inval_ir() {
    let whole = stale(true, false, |b| {
        b.hw.sfence_w_inval(1);
        b.hw.sinval(1, page(TAG, true), b.now).expect("it has Svinval");
        b.hw.sfence_inval_ir(1);
    });
    assert_eq!(whole, 0);
    sometimes(stale(true, false, |b| {
        b.hw.sfence_w_inval(1);
        b.hw.sinval(1, page(TAG, true), b.now).expect("it has Svinval");
    }));
}

#[test]
fn svinval_needs_sfence_w_inval_after_table_writes() {
    sometimes(stale(true, true, |b| {
        b.hw.sinval(0, page(TAG, true), b.now).expect("it has Svinval");
        b.hw.sfence_inval_ir(0);
    }));
    let ordered = stale(true, true, |b| {
        b.hw.sfence_w_inval(0);
        b.hw.sinval(0, page(TAG, true), b.now).expect("it has Svinval");
        b.hw.sfence_inval_ir(0);
    });
    assert_eq!(ordered, 0);
}

#[test]
fn svinval_is_undefined_without_the_extension() {
    let mut b = Bed::new(riscv(false, 1));
    assert_eq!(b.hw.sinval(0, Local::All, 0), Err(HardwareFault::Undefined));
}

#[test]
fn only_a_fence_without_address_drops_links() {
    for (what, steps) in [(page(TAG, true), 1), (page(TAG, false), 1), (Local::Tag(Tag(TAG)), 4)] {
        let mut b = Bed::new(riscv(false, 1));
        let f = b.hw.alloc_data();
        b.map(VA, f);
        b.read(1, VA).expect("mapped");
        b.hw.sfence(1, what, b.now).expect("a valid operand");
        let costs = b.hw.config().costs;
        let walk = costs.tlb_hit + steps * costs.walk_step;
        assert_eq!(b.read(1, VA).expect("mapped").cost, walk, "{what:?}");
    }
}

#[test]
fn table_freed_after_an_address_fence_is_walked() {
    for (what, broken) in [(page(TAG, false), true), (Local::Tag(Tag(TAG)), false)] {
        let mut b = Bed::new(riscv(false, 1));
        let f = b.hw.alloc_data();
        b.map(VA, f);
        b.read(1, VA).expect("mapped");
        b.unmap(VA);
        let table = b.hw.table_at(b.root, VA, 1).expect("linked");
        b.set(b.root, VA, 2, Entry::NONE);
        b.hw.sfence(1, what, b.now).expect("a valid operand");
        b.hw.free_table(table, 0, b.now);
        assert_eq!(b.rules().contains(&Rule::C3), broken, "{what:?}");
    }
}

#[test]
fn fences_with_asid_skip_global_entries() {
    let global = |what: Local| {
        let mut b = Bed::new(riscv(false, 1));
        let f = b.hw.alloc_data();
        let root = b.hw.root(0);
        b.set(root, KVA, 1, Entry::page(f).with(Entry::GLOBAL));
        b.kernel_read(1, KVA).expect("mapped");
        b.hw.sfence(1, what, b.now).expect("a valid operand");
        !b.kernel_read(1, KVA).expect("mapped").walked
    };
    let stride = Stride::Size4K;
    let tagged = Local::Page {
        address: KVA,
        stride,
        tag: Tag(TAG),
        leaf_only: true,
    };
    assert!(global(tagged) && global(Local::Tag(Tag(TAG))));
    assert!(!global(Local::Kernel { address: KVA, stride }) && !global(Local::All));
}

#[test]
fn newly_valid_mapping_may_fault_until_fenced() {
    let mut faulted = 0;
    for seed in 0..SEEDS {
        let mut b = Bed::new(riscv(false, seed));
        let f = b.hw.alloc_data();
        assert!(b.read(1, VA).is_err());
        b.map(VA, f);
        faulted += usize::from(b.read(1, VA).is_err());
        b.hw.sfence(1, page(TAG, true), b.now).expect("a valid operand");
        assert!(b.read(1, VA).is_ok(), "seed {seed}");
        b.assert_clean();
    }
    sometimes(faulted);
}

#[test]
fn satp_write_flushes_nothing() {
    let mut b = Bed::new(riscv(false, 1));
    b.hw.new_space(2);
    let f = b.hw.alloc_data();
    b.map(VA, f);
    b.read(0, VA).expect("mapped");
    b.load(0, 2, TAG, true);
    assert!(b.read(0, VA).is_err(), "the oracle removes what belongs to another tag");
    assert!(b.rules().contains(&Rule::C4), "regression 18: {:?}", b.rules());

    let mut b = Bed::new(riscv(false, 1));
    b.hw.new_space(2);
    let f = b.hw.alloc_data();
    b.map(VA, f);
    b.read(0, VA).expect("mapped");
    b.hw.sfence(0, Local::Tag(Tag(TAG)), b.now).expect("a valid operand");
    b.load(0, 2, TAG, true);
    let _ = b.read(0, VA);
    b.assert_clean();
}

/// Hart 1 leaves the space, and its root is freed. `between` is what hart 1 does after the load.
fn root_freed_after_a_switch(svinval: bool, between: impl Fn(&mut Bed)) -> Vec<Rule> {
    root_freed_on(riscv(svinval, 1), between)
}

fn root_freed_on(config: HwConfig, between: impl Fn(&mut Bed)) -> Vec<Rule> {
    let (mut b, _) = Bed::with_page(config, &[1]);
    b.hw.new_space(2);
    for cpu in [0, 2, 1] {
        b.load(cpu, 2, 2, true);
        match cpu {
            1 => between(&mut b),
            _ => assert!(b.hw.sfence(cpu, Local::All, b.now).is_ok()),
        }
    }
    b.hw.free_table(b.root, 0, b.now);
    b.rules()
}

#[test]
fn walk_under_the_old_asid_ends_at_its_fence() {
    let fence = |what: Local| {
        move |b: &mut Bed| {
            b.hw.sfence(1, what, b.now).expect("a valid operand");
        }
    };
    for what in [Local::Tag(Tag(TAG)), Local::All] {
        let ended = root_freed_after_a_switch(false, fence(what));
        assert!(ended.is_empty(), "{what:?}: {ended:?}");
        let ended = root_freed_after_a_switch(true, |b| {
            b.hw.sfence_w_inval(1);
            b.hw.sinval(1, what, b.now).expect("it has Svinval");
            b.hw.sfence_inval_ir(1);
        });
        assert!(ended.is_empty(), "{what:?}: {ended:?}");
    }
    assert!(root_freed_after_a_switch(false, |_| {}).contains(&Rule::C3));
    for what in [Local::Tag(Tag(2)), page(TAG, false)] {
        assert!(
            root_freed_after_a_switch(false, fence(what)).contains(&Rule::C3),
            "{what:?}"
        );
    }
    let by_firmware = root_freed_after_a_switch(false, |b| {
        b.hw.sbi_remote_fence(Broadcast::Tag(Tag(TAG)))
            .expect("a valid operand");
    });
    assert!(by_firmware.is_empty(), "{by_firmware:?}");
}

#[test]
fn no_fence_is_needed_if_satp_writes_end_walks() {
    let config = HwConfig {
        isa: Isa::Riscv64(Riscv64 {
            root_load_ends_walks: true,
            ..Riscv64::default()
        }),
        ..riscv(false, 1)
    };
    let freed = root_freed_on(config, |_| {});
    assert!(freed.is_empty(), "{freed:?}");
}

/// A hart without ASIDs switches from space 1, of which it has cached a page, to space 2 and reads there. Returns the
/// oracle's report.
fn after_an_untagged_load(load: impl Fn(&mut Bed)) -> Vec<Rule> {
    let config = HwConfig {
        tags: false,
        ..riscv(false, 1)
    };
    let (mut b, _) = Bed::with_page(config, &[0]);
    b.hw.new_space(2);
    load(&mut b);
    b.hw.caught_up(0, b.now);
    let _ = b.read(0, VA);
    b.rules()
}

/// A load of CR3 without PCIDs drops every entry that is not global. A port that expects the same of satp leaks one
/// space's pages to the next.
#[test]
fn without_asids_a_plain_satp_write_leaks_between_spaces() {
    let copied = after_an_untagged_load(|b| b.load(0, 2, 0, true));
    assert!(copied.contains(&Rule::C4), "{copied:?}");
    let fenced = after_an_untagged_load(|b| {
        b.load(0, 2, 0, true);
        b.hw.sfence(0, Local::All, b.now).expect("a valid operand");
    });
    assert!(fenced.is_empty(), "{fenced:?}");
}
