//! Instruction sequences, as required by the Arm manual and the engine's hooks.

use super::*;
use crate::instructions::on_host::{executed, set};
use shootdown::{Broadcast, Facade, Local, Root, Stride, Tag};

const KERNEL: Root = Root(0x4000_1000);
/// ID_AA64ISAR0_EL1.TLB = 2; ID_AA64MMFR0_EL1.ASIDBits = 2; TCR_EL1.AS.
const RANGES: u64 = 2 << 56;
const WIDE: u64 = 2 << 4;
const AS: u64 = 1 << 36;

fn processor(isar0: u64, mmfr0: u64, tcr: u64) -> Processor {
    set("mrs {}, id_aa64isar0_el1", isar0);
    set("mrs {}, id_aa64mmfr0_el1", mmfr0);
    set("mrs {}, tcr_el1", tcr);
    Processor::discover(KERNEL)
}

#[test]
fn keeping_root_load_waits_for_walks_by_the_old_root() {
    let processor = processor(RANGES, WIDE, AS);
    // SAFETY: no root is loaded in a test.
    let steps = executed(|| unsafe { processor.load_root(Root(0x4000_2000), Tag(0x123), true) });
    assert_eq!(steps, ["msr ttbr0_el1, 0x123000040002000", "isb", "dsb nsh"]);
}

#[test]
fn root_load_flushes_the_tag_under_the_kernel_root() {
    let processor = processor(RANGES, WIDE, AS);
    // SAFETY: no root is loaded in a test.
    let steps = executed(|| unsafe { processor.load_root(Root(0x4000_2000), Tag(5), false) });
    assert_eq!(
        steps,
        [
            "msr ttbr0_el1, 0x40001000",
            "isb",
            "tlbi aside1, 0x5000000000000",
            "dsb nsh",
            "msr ttbr0_el1, 0x5000040002000",
            "isb"
        ]
    );
}

#[test]
fn each_local_invalidation_has_its_instruction_without_barrier() {
    let processor = processor(RANGES, WIDE, AS);
    let one = |what| executed(|| processor.invalidate(what));
    let page = |leaf_only| Local::Page {
        address: 0x7000_0000,
        stride: Stride::Size2M,
        tag: Tag(3),
        leaf_only,
    };
    assert_eq!(one(page(true)), ["tlbi vale1, 0x3000000070000"]);
    assert_eq!(one(page(false)), ["tlbi vae1, 0x3000000070000"]);
    assert_eq!(one(Local::Tag(Tag(3))), ["tlbi aside1, 0x3000000000000"]);
    let kernel = Local::Kernel {
        address: 0xFFFF_8000_0000_0000,
        stride: Stride::Size4K,
    };
    assert_eq!(one(kernel), ["tlbi vaale1, 0xff800000000"]);
    assert_eq!(one(Local::All), ["tlbi vmalle1"]);
    assert_eq!(executed(|| processor.local_sync()), ["dsb nsh", "isb"]);
}

fn pages(count: u32, stride: Stride, leaf_only: bool) -> Broadcast {
    Broadcast::Pages {
        address: 0x4000_0000,
        stride,
        count,
        tag: Tag(1),
        leaf_only,
    }
}

#[test]
fn range_operations_are_used_only_if_supported() {
    let with = processor(RANGES, WIDE, AS);
    let three = executed(|| with.broadcast(pages(3, Stride::Size4K, true)).expect("never refused"));
    // Two granules by range, the odd one by itself.
    assert_eq!(
        three,
        ["sys #0, c8, c2, #5, 0x1400000040000", "tlbi vale1is, 0x1000000040002"]
    );
    let large = executed(|| with.broadcast(pages(2, Stride::Size2M, false)).expect("never refused"));
    // 1024 granules: scale 1, 16 units of 64.
    assert_eq!(large, ["sys #0, c8, c2, #1, 0x1578000040000"]);

    // One page, also a large one, takes no range operation, and keeps the kind of its invalidation.
    for stride in [Stride::Size4K, Stride::Size2M] {
        let one = |leaf_only| executed(|| with.broadcast(pages(1, stride, leaf_only)).expect("never refused"));
        assert_eq!(one(true), ["tlbi vale1is, 0x1000000040000"]);
        assert_eq!(one(false), ["tlbi vae1is, 0x1000000040000"]);
    }

    let without = processor(0, WIDE, AS);
    assert_eq!(without.broadcast_limits().map(|limits| limits.max_pages), Some(1));
    let two = executed(|| {
        without
            .broadcast(pages(2, Stride::Size2M, false))
            .expect("never refused")
    });
    assert_eq!(two, ["tlbi vae1is, 0x1000000040000", "tlbi vae1is, 0x1000000040200"]);
}

#[test]
fn broadcast_without_exact_form_uses_a_wider_one() {
    let processor = processor(RANGES, WIDE, AS);
    let one = |what| executed(|| processor.broadcast(what).expect("never refused"));
    assert_eq!(one(Broadcast::NonGlobal), ["tlbi vmalle1is"]);
    assert_eq!(one(Broadcast::All), ["tlbi vmalle1is"]);
    assert_eq!(one(Broadcast::Tag(Tag(9))), ["tlbi aside1is, 0x9000000000000"]);
    let kernel = Broadcast::Kernel {
        address: 0x4000_0000,
        stride: Stride::Size4K,
        count: 1,
        leaf_only: false,
    };
    assert_eq!(one(kernel), ["tlbi vaae1is, 0x40000"]);
    let leaves = Broadcast::Kernel {
        address: 0x4000_0000,
        stride: Stride::Size4K,
        count: 1,
        leaf_only: true,
    };
    assert_eq!(one(leaves), ["tlbi vaale1is, 0x40000"]);
    assert_eq!(
        one(pages(4097, Stride::Size2M, true)),
        ["tlbi vmalle1is"],
        "beyond 2^21 granules"
    );
    assert_eq!(executed(|| processor.broadcast_sync()), ["dsb ish", "isb"]);
}

#[test]
fn asid_limit_is_16_bits_only_with_tcr_as() {
    let limits = [(WIDE, AS), (WIDE, 0), (0, AS)].map(|(mmfr0, tcr)| processor(0, mmfr0, tcr).tag_limit());
    assert_eq!(limits, [1 << 16, 256, 256]);
    let mixed = processor(RANGES, WIDE, AS).common_with(processor(0, 0, 0));
    assert_eq!((mixed.tag_limit(), mixed), (256, processor(0, 0, 0)));
}

#[test]
fn hooks_order_walks_and_sgis_with_dsb() {
    let barriers = executed(|| {
        BareMetal::publish_tables();
        BareMetal::publish_tables_before_full();
        BareMetal::before_ipi();
        BareMetal::after_ipi();
        BareMetal::before_root_load();
    });
    assert_eq!(barriers, ["dsb ishst", "dsb ishst", "dsb ishst", "dsb sy", "dsb ish"]);
}

#[test]
fn sgi_reaches_neighbouring_cpus_in_one_write() {
    let steps = executed(|| Controller.send([0, 1, 0x100], 4));
    assert_eq!(
        steps,
        ["msr S3_0_C12_C11_5, 0x4000003", "msr S3_0_C12_C11_5, 0x4010001", "isb"]
    );
}

#[test]
fn interrupt_state_is_saved_and_restored() {
    set("mrs {}, daif", 0x40);
    let steps = executed(|| interrupts_restore(interrupts_off()));
    assert_eq!(steps, ["msr daifset, #2", "msr daif, 0x40"]);
    assert!(!interrupts_are_off());
    set("mrs {}, daif", 0x80);
    assert!(interrupts_are_off());
}

#[test]
#[should_panic = "TCR_EL1.A1 is set"]
fn asid_in_ttbr1_is_refused() {
    processor(RANGES, WIDE, AS | 1 << 22);
}

#[test]
fn cortex_a715_needs_break_before_losing_execute_permission() {
    for (midr, breaks) in [(0x410F_D4D0, true), (0x410F_D030, false)] {
        set("mrs {}, midr_el1", midr);
        assert_eq!(processor(RANGES, WIDE, AS).must_break_to_lose_execution(), breaks);
    }
}
