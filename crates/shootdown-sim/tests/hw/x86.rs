//! Behaviour of the instructions and the caches.

use crate::bed::*;
use shootdown::Stride;
use shootdown::{Broadcast, Local, Tag};
use shootdown_sim::hw::*;

fn bed() -> Bed {
    Bed::new(config(2))
}

#[test]
fn a_walk_costs_four_steps_then_one_through_the_cached_links() {
    let mut b = bed();
    let f = b.hw.alloc_data();
    b.map(VA, f);
    b.map(VA + PAGE, f);
    let costs = b.hw.config().costs;
    assert_eq!(
        b.read(0, VA),
        Ok(Translation {
            frame: f,
            cost: costs.tlb_hit + 4 * costs.walk_step,
            walked: true
        })
    );
    assert_eq!(
        b.read(0, VA),
        Ok(Translation {
            frame: f,
            cost: costs.tlb_hit,
            walked: false
        })
    );
    assert_eq!(b.read(0, VA + PAGE).unwrap().cost, costs.tlb_hit + costs.walk_step);
}

#[test]
fn fault_kind_distinguishes_absence_from_missing_rights() {
    let mut b = bed();
    assert_eq!(b.read(0, VA).unwrap_err().kind, FaultKind::NotPresent);
    let f = b.hw.alloc_data();
    b.set(b.root, VA, 1, ro(f));
    assert!(b.read(0, VA).is_ok());
    assert_eq!(b.write(0, VA).unwrap_err().kind, FaultKind::Protection);
    b.set(b.root, VA, 1, Entry::page(f));
    b.page(0, VA, TAG);
    assert_eq!(b.read(0, VA).unwrap_err().kind, FaultKind::Protection);
    assert!(b.kernel_read(0, VA).is_ok());
}

#[test]
fn a_write_through_a_stale_read_only_entry_walks_again_and_succeeds() {
    let mut b = bed();
    let f = b.hw.alloc_data();
    b.set(b.root, VA, 1, ro(f));
    b.read(0, VA).unwrap();
    b.map(VA, f);
    assert_eq!(b.write(0, VA).map(|t| t.walked), Ok(true));
    b.assert_clean();
}

#[test]
fn accessed_and_dirty_bits_are_set_by_walks() {
    let mut b = bed();
    let f = b.hw.alloc_data();
    b.map(VA, f);
    let table = b.hw.table_at(b.root, VA, 1).unwrap();
    let bits = |b: &Bed| {
        let e = b.hw.entry(table, table_index(VA, 1));
        (e.has(Entry::ACCESSED), e.has(Entry::DIRTY))
    };
    assert_eq!(bits(&b), (false, false));
    b.read(0, VA).unwrap();
    assert_eq!(bits(&b), (true, false));
    b.write(0, VA).unwrap();
    assert_eq!(bits(&b), (true, true));
    // Cleared without a flush: the cached dirty bit hides later writes.
    b.map(VA, f);
    b.write(0, VA).unwrap();
    assert_eq!(bits(&b), (false, false));
}

#[test]
fn invlpg_reaches_only_its_page_its_cpu_and_its_tag() {
    let mut b = bed();
    let f = b.hw.alloc_data();
    for va in [VA, VA + PAGE] {
        b.map(va, f);
        b.read(0, va).unwrap();
        b.read(1, va).unwrap();
    }
    b.page(0, VA, 2);
    assert!(b.hits(0, VA), "another tag");
    b.page(0, VA, TAG);
    assert!(!b.hits(0, VA));
    assert!(b.hits(0, VA + PAGE), "another page");
    assert!(b.hits(1, VA), "another CPU");
}

#[test]
fn tags_separate_entries_and_keep_them_across_switches() {
    let mut b = bed();
    b.hw.new_space(2);
    let f = b.hw.alloc_data();
    b.map(VA, f);
    b.read(0, VA).unwrap();
    b.load(0, 2, 2, true);
    assert!(b.read(0, VA).is_err());
    b.load(0, 1, TAG, true);
    assert!(b.hits(0, VA));
    b.load(0, 1, TAG, false);
    assert!(!b.hits(0, VA));
    b.local(0, Local::Tag(Tag(2)));
    assert!(b.hits(0, VA));
    b.local(0, Local::Tag(Tag(TAG)));
    assert!(!b.hits(0, VA));
}

#[test]
fn without_tags_every_load_flushes_and_a_tag_faults() {
    let mut b = Bed::new(HwConfig {
        tags: false,
        ..config(1)
    });
    let f = b.hw.alloc_data();
    b.map(VA, f);
    b.read(0, VA).unwrap();
    b.load(0, 1, 0, true);
    assert!(!b.hits(0, VA));
    let gp = Err(HardwareFault::GeneralProtection);
    assert_eq!(b.hw.load_root(0, b.root, 1, true, 1, 0), gp);
    assert_eq!(b.hw.local(0, Local::Tag(Tag(1)), 0), gp);
    let page = Local::Page {
        address: VA,
        stride: Stride::Size4K,
        tag: Tag(1),
        leaf_only: false,
    };
    assert_eq!(b.hw.local(0, page, 0), gp);
}

#[test]
fn without_asids_a_satp_write_flushes_nothing() {
    let mut b = Bed::new(HwConfig {
        tags: false,
        isa: Isa::Riscv64(Riscv64::default()),
        ..config(1)
    });
    let f = b.hw.alloc_data();
    b.map(VA, f);
    b.read(0, VA).unwrap();
    b.load(0, 1, 0, true);
    assert!(b.hits(0, VA));
    b.load(0, 1, 0, false);
    assert!(!b.hits(0, VA), "the kernel fenced");
}

#[test]
fn too_wide_pcid_faults() {
    let mut b = bed();
    assert_eq!(
        b.hw.local(0, Local::Tag(Tag(4096)), 0),
        Err(HardwareFault::GeneralProtection)
    );
    assert!(b.hw.local(0, Local::Tag(Tag(4095)), 0).is_ok());
}

#[test]
fn global_entries_survive_tag_flushes_and_loads_but_not_their_page_nor_all() {
    let mut b = bed();
    let f = b.hw.alloc_data();
    let kernel = b.hw.root(0);
    b.set(kernel, KVA, 1, Entry::page(f).with(Entry::GLOBAL));
    let hits = |b: &mut Bed| !b.kernel_read(0, KVA).unwrap().walked;
    hits(&mut b);
    b.load(0, 1, 2, false);
    b.local(0, Local::Tag(Tag(2)));
    assert!(hits(&mut b));
    b.local(
        0,
        Local::Kernel {
            address: KVA,
            stride: Stride::Size4K,
        },
    );
    assert!(!hits(&mut b));
    assert!(hits(&mut b));
    b.local(0, Local::All);
    assert!(!hits(&mut b));
    // INVPCID with an address spares global entries, INVLPG does not.
    assert!(hits(&mut b));
    b.page(0, KVA, 3);
    assert!(hits(&mut b));
    b.page(0, KVA, 2);
    assert!(!hits(&mut b));
}

#[test]
fn kernel_invalidation_reaches_non_global_entries_of_the_loaded_tag_only() {
    let mut b = bed();
    let f = b.hw.alloc_data();
    let kernel = b.hw.root(0);
    b.set(kernel, KVA, 1, Entry::page(f));
    for tag in [1, 2] {
        b.load(0, 1, tag, true);
        b.kernel_read(0, KVA).unwrap();
    }
    b.local(
        0,
        Local::Kernel {
            address: KVA,
            stride: Stride::Size4K,
        },
    );
    for tag in [1, 2] {
        b.load(0, 1, tag, true);
        // Tag 2 was loaded.
        assert_eq!(b.kernel_read(0, KVA).unwrap().walked, tag == 2, "tag {tag}");
    }
}

#[test]
fn large_page_is_invalidated_by_any_address_inside() {
    let mut b = bed();
    let f = b.hw.alloc_data();
    b.set(b.root, VA, 2, rw(f).with(Entry::LARGE));
    b.read(0, VA).unwrap();
    assert!(b.hits(0, VA + 77 * PAGE));
    b.page(0, VA + 99 * PAGE, TAG);
    assert!(!b.hits(0, VA));
    // Small pages from before a promotion survive an invalidation of the base (regression 41).
    let low = 0x40_0000;
    for i in 0..2 {
        b.map(low + i * PAGE, f);
        b.read(0, low + i * PAGE).unwrap();
    }
    b.local(
        0,
        Local::Page {
            address: low,
            stride: Stride::Size2M,
            tag: Tag(TAG),
            leaf_only: false,
        },
    );
    assert!(b.hits(0, low + PAGE));
}

/// Steps of a fresh walk of `near` after the page of `away` (512 GiB apart) was invalidated.
fn steps_after(tce: bool, keeps: bool, leaf_only: bool, invalidated: u64, probed: u64) -> u32 {
    let mut b = Bed::new(HwConfig {
        tce,
        leaf_only_keeps_psc: keeps,
        ..config(1)
    });
    let f = b.hw.alloc_data();
    for va in [VA, VA + PAGE, 0x40_0000, 0x40_1000] {
        b.map(va, f);
    }
    b.read(0, VA).unwrap();
    b.read(0, 0x40_0000).unwrap();
    b.local(
        0,
        Local::Page {
            address: invalidated,
            stride: Stride::Size4K,
            tag: Tag(TAG),
            leaf_only,
        },
    );
    let costs = b.hw.config().costs;
    (b.read(0, probed + PAGE).unwrap().cost - costs.tlb_hit) / costs.walk_step
}

#[test]
fn page_invalidation_drops_all_links_without_tce() {
    assert_eq!(steps_after(false, false, false, VA, 0x40_0000), 4);
    assert_eq!(steps_after(true, false, false, VA, 0x40_0000), 1);
    assert_eq!(steps_after(true, false, false, VA, VA), 4);
    assert_eq!(steps_after(false, false, true, VA, VA), 4, "x86 has no leaf-only form");
    assert_eq!(steps_after(false, true, true, VA, VA), 1, "Arm has");
}

#[test]
fn invalidation_under_an_unloaded_pcid_drops_only_the_path() {
    for tce in [false, true] {
        for (probed, steps) in [(VA, 4), (0x40_0000, 1)] {
            let mut b = Bed::new(HwConfig { tce, ..config(1) });
            let f = b.hw.alloc_data();
            for va in [VA, VA + PAGE, 0x40_0000, 0x40_1000] {
                b.map(va, f);
            }
            b.read(0, VA).unwrap();
            b.read(0, 0x40_0000).unwrap();
            b.load(0, 0, 0, true);
            b.page(0, VA, TAG);
            b.load(0, 1, TAG, true);
            b.hw.caught_up(0, b.now);
            let costs = b.hw.config().costs;
            let walk = b.read(0, probed + PAGE).unwrap().cost - costs.tlb_hit;
            assert_eq!(walk / costs.walk_step, steps, "tce {tce}");
        }
    }
}

#[test]
fn tlb_has_the_configured_ways() {
    let mut b = Bed::new(HwConfig {
        tlb_entries: 64,
        tlb_ways: 4,
        ..config(1)
    });
    let f = b.hw.alloc_data();
    let sets = 16;
    for i in 0..5 {
        b.map(VA + i * sets * PAGE, f);
    }
    for i in 0..4 {
        b.read(0, VA + i * sets * PAGE).unwrap();
    }
    assert!((0..4).all(|i| b.hits(0, VA + i * sets * PAGE)));
    b.read(0, VA + 4 * sets * PAGE).unwrap();
    let kept = |i: &u64| Bed { hw: b.hw.clone(), ..b }.hits(0, VA + i * sets * PAGE);
    assert_eq!((0..5).filter(kept).count(), 4);
}

#[test]
fn speculation_fills_without_an_access_and_never_faults() {
    let mut b = bed();
    let f = b.hw.alloc_data();
    b.hw.speculate(0, VA, 0);
    b.map(VA, f);
    assert!(
        !b.hw
            .entry(b.hw.table_at(b.root, VA, 1).unwrap(), table_index(VA, 1))
            .has(Entry::ACCESSED)
    );
    b.hw.set_lazy(0, true);
    b.hw.speculate(0, VA, 0);
    b.hw.set_lazy(0, false);
    assert!(b.hits(0, VA), "a lazy CPU speculates through the root it has loaded");
    // And speculatively, on request.
    let mut b = Bed::new(HwConfig {
        speculation: 0.5,
        ..config(1)
    });
    b.map(VA, f);
    b.map(VA + PAGE, f);
    for _ in 0..100 {
        b.read(0, VA).unwrap();
    }
    assert!(b.hits(0, VA + PAGE));
}

#[test]
fn broadcast_operands_out_of_bounds_fault() {
    let mut b = bed();
    let pages = |count, stride| Broadcast::Pages {
        address: VA,
        stride,
        count,
        tag: Tag(TAG),
        leaf_only: false,
    };
    let gp = Err(HardwareFault::GeneralProtection);
    assert_eq!(b.hw.broadcast(0, pages(0, Stride::Size4K), 0), gp);
    assert_eq!(b.hw.broadcast(0, pages(9, Stride::Size4K), 0), gp);
    assert_eq!(b.hw.broadcast(0, pages(5, Stride::Size2M), 0), gp);
    assert_eq!(b.hw.broadcast(0, Broadcast::Tag(Tag(4096)), 0), gp);
    assert_eq!(b.hw.broadcasts_outstanding(), 0);
    assert!(b.hw.broadcast(0, pages(8, Stride::Size4K), 0).is_ok());
    let mut none = Bed::new(HwConfig {
        broadcast: None,
        ..config(1)
    });
    assert_eq!(
        none.hw.broadcast(0, pages(1, Stride::Size4K), 0),
        Err(HardwareFault::Undefined)
    );
}

#[test]
fn frames_are_reused_last_in_first_out() {
    let mut b = bed();
    let (f, g) = (b.hw.alloc_data(), b.hw.alloc_data());
    b.hw.free_data(f, 0, 0);
    b.hw.free_data(g, 0, 0);
    assert_eq!(b.hw.alloc_table(1, 1), g);
    assert_eq!(b.hw.alloc_data(), f);
    assert_eq!((b.hw.frame_kind(g), b.hw.frame_life(g)), (FrameKind::Table(1), 1));
}

#[test]
fn perfect_invalidation_reaches_every_cpu_and_link() {
    let mut b = bed();
    let f = b.hw.alloc_data();
    b.map(VA, f);
    for cpu in 0..2 {
        b.read(cpu, VA).unwrap();
    }
    b.unmap(VA);
    let stamp = b.hw.request_begins(0, b.now);
    b.hw.perfect_invalidate(0, 1, VA..VA + PAGE);
    b.hw.completed(1, VA..VA + PAGE, stamp, 0, b.now);
    b.hw.free_data(f, 0, b.now);
    for cpu in 0..2 {
        assert!(b.read(cpu, VA).is_err());
    }
    b.assert_clean();
}
