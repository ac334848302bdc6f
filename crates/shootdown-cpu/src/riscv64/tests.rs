//! Instruction sequences, as required by the privileged specification and the engine's hooks.

use super::*;
use crate::Refused;
use crate::instructions::on_host::{executed, set};
use shootdown::{Broadcast, Facade, Local, Root, Stride, Tag};

const KERNEL: Root = Root(0x8030_0000);
const ROOT: Root = Root(0x8040_0000);
const SV39: u64 = 8 << 60;

/// A hart with this many bits of ASID that runs under `asid`.
fn processor(bits: u32, asid: u64) -> Processor {
    let loaded = SV39 | 0x80300;
    set("csrr {}, satp", loaded | ((1 << bits) - 1) << 44);
    set("error", 0);
    set("value", 1);
    let processor = Processor::discover(KERNEL);
    set("csrr {}, satp", loaded | asid << 44);
    processor
}

fn load(processor: Processor, tag: u16, keep: bool) -> Vec<String> {
    // SAFETY: no root is loaded in a test.
    executed(|| unsafe { processor.load_root(ROOT, Tag(tag), keep) })
}

#[test]
fn asid_probe_keeps_the_loaded_mode_and_fences_everything() {
    let loaded = SV39 | 0x80300;
    set("csrr {}, satp", loaded);
    let steps = executed(|| assert_eq!(Processor::discover(KERNEL).tag_limit(), 1));
    let probe = format!("csrw satp, {:#x}", loaded | 0xFFFF << 44);
    let back = format!("csrw satp, {loaded:#x}");
    assert_eq!(steps[..3], [probe, back, "sfence.vma".into()]);
    assert_eq!(processor(16, 0).tag_limit(), 1 << 16);
    assert_eq!(processor(9, 0).tag_limit(), 512);
    assert_eq!(processor(0, 0).tag_limit(), 1, "none");
}

#[test]
fn asid_bits_can_be_reduced_and_too_few_mean_no_tags() {
    assert_eq!(processor(16, 0).with_asid_bits(8).tag_limit(), 256);
    assert_eq!(processor(7, 0).with_asid_bits(8).tag_limit(), 128);
    for bits in [0, 3] {
        let without = processor(16, 0).with_asid_bits(bits);
        assert_eq!(without.tag_limit(), 1);
        assert_eq!(executed(|| without.invalidate(Local::Tag(Tag(3)))), ["sfence.vma"]);
    }
}

#[test]
fn root_load_fences_the_old_asid_against_walks() {
    let new = "csrw satp, 0x8000500000080400";
    assert_eq!(load(processor(16, 7), 5, true), [new, "sfence.vma zero, 0x7"]);
    assert_eq!(load(processor(16, 0), 5, true), [new], "the kernel's tables stay");
    assert_eq!(load(processor(16, 5), 5, true), [new], "the same space");
    // SAFETY: there is no hart.
    let trusting = unsafe { processor(16, 7).trusting_root_loads() };
    assert_eq!(load(trusting, 5, true), [new]);
}

#[test]
fn root_load_flushes_the_tag_under_the_kernel_root() {
    let (kernel, new) = ("csrw satp, 0x8000000000080300", "csrw satp, 0x8000500000080400");
    assert_eq!(load(processor(16, 0), 5, false), [kernel, "sfence.vma zero, 0x5", new]);
    assert_eq!(load(processor(16, 5), 5, false), [kernel, "sfence.vma zero, 0x5", new]);
    let left = load(processor(16, 7), 5, false);
    assert_eq!(left, [kernel, "sfence.vma zero, 0x5", new, "sfence.vma zero, 0x7"]);
}

#[test]
fn root_load_without_asids_fences_everything() {
    let (kernel, new) = ("csrw satp, 0x8000000000080300", "csrw satp, 0x8000000000080400");
    for keep in [true, false] {
        assert_eq!(
            load(processor(0, 0), 5, keep),
            [kernel, "sfence.vma", new, "sfence.vma"]
        );
    }
    let one = |what| executed(|| processor(0, 0).invalidate(what)).split_off(4);
    assert_eq!(one(page(0x1000, true)), ["sfence.vma 0x1000, zero"]);
    assert_eq!(one(Local::Tag(Tag(3))), ["sfence.vma"]);
}

fn page(address: u64, leaf_only: bool) -> Local {
    Local::Page {
        address,
        stride: Stride::Size4K,
        tag: Tag(3),
        leaf_only,
    }
}

#[test]
fn each_local_invalidation_has_its_fence_and_freed_tables_flush_the_tag() {
    let plain = processor(16, 0);
    let one = |what| executed(|| plain.invalidate(what));
    assert_eq!(one(page(0x1000, true)), ["sfence.vma 0x1000, 0x3"]);
    assert_eq!(one(page(0x1000, false)), ["sfence.vma zero, 0x3"]);
    assert_eq!(one(Local::Tag(Tag(3))), ["sfence.vma zero, 0x3"]);
    let kernel = Local::Kernel {
        address: 0x2000,
        stride: Stride::Size4K,
    };
    assert_eq!(one(kernel), ["sfence.vma 0x2000, zero"]);
    assert_eq!(one(Local::All), ["sfence.vma"]);
    assert!(executed(|| plain.local_sync()).is_empty());
}

#[test]
fn svinval_orders_each_invalidation_and_syncs_once() {
    let processor = processor(16, 0).with_svinval();
    let steps = executed(|| {
        processor.invalidate(page(0x1000, true));
        processor.invalidate(Local::All);
        processor.local_sync();
    });
    let expected = [
        ".4byte 0x18000073",
        ".insn r 0x73, 0, 0x0B, x0, 0x1000, 0x3",
        ".4byte 0x18000073",
        ".insn r 0x73, 0, 0x0B, x0, x0, x0",
        ".4byte 0x18100073",
    ];
    assert_eq!(steps, expected);
}

#[test]
fn page_is_fenced_with_svinval_only_where_every_hart_has_it() {
    let (plain, svinval) = (processor(16, 0), processor(16, 0).with_svinval());
    let first = |processor: Processor| executed(|| processor.invalidate(page(0x1000, true))).swap_remove(0);
    let (fence, inval) = ("sfence.vma 0x1000, 0x3", ".4byte 0x18000073");
    assert_eq!(first(plain.common_with(svinval)), fence);
    assert_eq!(first(svinval.common_with(plain)), fence);
    assert_eq!(first(svinval.common_with(svinval)), inval);
    assert_eq!(first(svinval.with_asid_bits(8)), inval);
    assert_eq!(first(plain.with_asid_bits(8)), fence);
    assert_eq!(
        first(plain.common_with(processor(0, 0))),
        "sfence.vma 0x1000, zero",
        "one hart has no ASIDs"
    );
}

#[test]
#[should_panic(expected = "tags lie below `tag_limit`")]
fn page_under_a_tag_beyond_the_limit_is_refused() {
    let beyond = Local::Page {
        address: 0x1000,
        stride: Stride::Size4K,
        tag: Tag(256),
        leaf_only: true,
    };
    processor(16, 0).with_asid_bits(8).invalidate(beyond);
}

#[test]
fn numeric_instruction_words_match_the_encoder() {
    use shootdown_arch::riscv64::Fence;
    use shootdown_arch::riscv64::fence::{Register, SFENCE_INVAL_IR, SFENCE_W_INVAL};
    assert_eq!((SFENCE_W_INVAL, SFENCE_INVAL_IR), (0x1800_0073, 0x1810_0073));
    let a0 = Register::new(10).expect("a0");
    // R-type: opcode 0x73, function 0, function 0x0B.
    assert_eq!(Fence::All.sinval_vma(a0, a0), 0x0B << 25 | 0x73);
}

#[test]
fn refused_remote_fence_is_reported_as_error() {
    let processor = processor(16, 0);
    let pages = |leaf_only| Broadcast::Pages {
        address: 0x1000,
        stride: Stride::Size4K,
        count: 3,
        tag: Tag(5),
        leaf_only,
    };
    let call = |what| executed(|| processor.broadcast(what).expect("not refused")).concat();
    let all = "ffffffffffffffff";
    assert_eq!(
        call(pages(true)),
        format!("ecall 0x52464e43 2 [0, {all}, 1000, 3000, 5]")
    );
    assert_eq!(
        call(pages(false)),
        format!("ecall 0x52464e43 2 [0, {all}, 0, {all}, 5]")
    );
    let kernel = |leaf_only| Broadcast::Kernel {
        address: 0x1000,
        stride: Stride::Size4K,
        count: 3,
        leaf_only,
    };
    assert_eq!(
        call(kernel(true)),
        format!("ecall 0x52464e43 1 [0, {all}, 1000, 3000, 0]"),
        "leaves alone have an address"
    );
    assert_eq!(call(kernel(false)), call(Broadcast::All));
    assert_eq!(
        call(Broadcast::All),
        format!("ecall 0x52464e43 1 [0, {all}, 0, {all}, 0]")
    );
    set("error", -3_i64 as u64);
    assert_eq!(processor.broadcast(Broadcast::All), Err(Refused(-3)));
    set("error", 0);
    set("value", 0);
    set("csrr {}, satp", SV39);
    assert_eq!(
        Processor::discover(KERNEL).broadcast_limits(),
        None,
        "no such extension"
    );
}

#[test]
fn a_fence_of_some_harts_names_no_other_and_stops_at_a_refusal() {
    let processor = processor(16, 5);
    let fence = || processor.broadcast_to(Broadcast::Tag(Tag(5)), [0, 2, 70]);
    let all = "ffffffffffffffff";
    let fenced = executed(|| assert_eq!(fence(), Ok(())));
    let call = |harts| format!("ecall 0x52464e43 2 [{harts}, 0, {all}, 5]");
    assert_eq!(fenced, [call("5, 0"), call("1, 46")]);
    set("error", -3_i64 as u64);
    let refused = executed(|| assert_eq!(fence(), Err(Refused(-3))));
    assert_eq!(refused, [call("5, 0")]);
    set("error", 0);
}

#[test]
fn ipi_follows_a_fence_and_is_cleared() {
    set("error", 0);
    let sent = executed(|| Controller::Sbi.send([1, 3, 70], 0));
    assert_eq!(
        sent,
        [
            "fence iorw, iorw",
            "ecall 0x735049 0 [5, 1, 0, 0, 0]",
            "ecall 0x735049 0 [1, 46, 0, 0, 0]"
        ]
    );
    let mut words = [0_u32; 4];
    let clint = Controller::Clint(words.as_mut_ptr());
    assert_eq!(executed(|| clint.send([0, 2], 0)), ["fence iorw, iorw"]);
    assert_eq!(words, [1, 0, 1, 0]);
    assert_eq!(executed(|| clint.acknowledge()), ["csrci sip, 2"]);
}

#[test]
fn ipi_barriers_also_order_devices() {
    let barriers = executed(|| {
        BareMetal::full_barrier();
        BareMetal::publish_tables();
        BareMetal::before_ipi();
        BareMetal::after_ipi();
        BareMetal::before_root_load();
    });
    let (memory, devices) = ("fence rw, rw", "fence iorw, iorw");
    assert_eq!(barriers, [memory, memory, devices, devices, memory]);
}

#[test]
fn interrupt_state_is_saved_and_restored() {
    set("csrrci {}, sstatus, 2", 0x8000_0000_0000_0002);
    assert_eq!(executed(|| interrupts_restore(interrupts_off())), ["csrs sstatus, 0x2"]);
    set("csrrci {}, sstatus, 2", 0x8000_0000_0000_0000);
    assert!(executed(|| interrupts_restore(interrupts_off())).is_empty());
    set("csrr {}, sstatus", 2);
    assert!(!interrupts_are_off());
}
