//! Instruction sequences, as required by the AMD and Intel manuals and the engine's hooks.

use super::*;
use crate::instructions::on_host::{executed, set};
use shootdown::{Broadcast, Local, Root, Stride, Tag};
use shootdown_arch::x86_64::InvlpgbLimits;

const ROOT: Root = Root(0x20_0000);

/// A family 19h processor with or without PCID and INVPCID that reports INVLPGB with up to 8 pages.
fn processor(tags: bool) -> Processor {
    set("0.eax", 13);
    set("80000000.eax", 0x8000_0021);
    set("1.eax", 0x00A0_0F11);
    set("1.ecx", u64::from(tags) << 17);
    set("7.ebx", u64::from(tags) << 10);
    set("80000008.ebx", 1 << 3);
    set("80000008.edx", 7);
    set("80000001.ecx", 1 << 17);
    Processor::discover(ROOT)
}

fn page(tag: u16) -> Local {
    Local::Page {
        address: 0x7000_0000_1000,
        stride: Stride::Size4K,
        tag: Tag(tag),
        leaf_only: true,
    }
}

#[test]
fn invlpg_is_used_only_for_the_loaded_pcid() {
    let processor = processor(true);
    set("mov {}, cr3", ROOT.0 | 3);
    let one = |what| executed(|| processor.invalidate(what));
    assert_eq!(one(page(3)), ["invlpg [0x700000001000]"]);
    assert_eq!(one(page(4)), ["invpcid 0x0, 0x700000001004"]);
    assert_eq!(one(Local::Tag(Tag(3))), ["invpcid 0x1, 0x3"]);
    assert_eq!(one(Local::All), ["invpcid 0x2, 0x0"]);
    let kernel = Local::Kernel {
        address: 0xFFFF_8000_0000_0000,
        stride: Stride::Size2M,
    };
    assert_eq!(one(kernel), ["invlpg [0xffff800000000000]"]);
    assert!(executed(|| processor.local_sync()).is_empty());
}

#[test]
fn local_flushes_without_pcid_use_cr3_and_cr4() {
    let processor = processor(false);
    set("mov {}, cr3", ROOT.0);
    set("mov {}, cr4", 1 << 7 | 1 << 5);
    assert!(!processor.machine().has_tags());
    let one = |what| executed(|| processor.invalidate(what));
    assert_eq!(one(page(4)), ["invlpg [0x700000001000]"]);
    assert_eq!(one(Local::Tag(Tag(4))), ["mov cr3, 0x200000"]);
    assert_eq!(one(Local::All), ["mov cr4, 0x20", "mov cr4, 0xa0"]);
    set("mov {}, cr4", 1 << 5);
    assert_eq!(
        one(Local::All),
        ["mov cr3, 0x200000"],
        "no global pages, and none switched on"
    );
    // In a kernel that knows the loaded tag.
    let under = |tag, what| executed(|| processor.invalidate_under(Some(Tag(tag)), what));
    assert_eq!(under(4, page(4)), ["invlpg [0x700000001000]"]);
    assert!(under(3, page(4)).is_empty() && under(3, Local::Tag(Tag(4))).is_empty());
}

#[test]
fn root_load_keeps_entries_only_with_pcid_and_on_request() {
    let load = |processor: Processor, keep| {
        // SAFETY: no root is loaded in a test.
        executed(|| unsafe { processor.load_root(ROOT, Tag(5), keep) })
    };
    assert_eq!(load(processor(true), true), ["mov cr3, 0x8000000000200005"]);
    assert_eq!(load(processor(true), false), ["mov cr3, 0x200005"]);
    assert_eq!(load(processor(false), true), ["mov cr3, 0x200000"]);
}

#[test]
fn enable_sets_only_the_features_in_use() {
    set("mov {}, cr4", 1 << 5);
    set("rdmsr", 0xD01);
    let enable = |processor: Processor| {
        // SAFETY: no processor is changed in a test.
        executed(|| unsafe { processor.enable() })
    };
    let narrow = "wrmsr 0xc0000080, 0x8d01";
    assert_eq!(enable(processor(true)), ["mov cr4, 0x200a0", narrow]);
    assert_eq!(enable(processor(false)), ["mov cr4, 0xa0", narrow]);
}

#[test]
fn invlpgb_needs_pcid_and_flushes_all_for_unaligned_ranges() {
    assert_eq!(processor(false).broadcast_limits(), None);
    let with = processor(true);
    assert_eq!(with.broadcast_limits().map(|limits| limits.max_pages), Some(8));
    let pages = |address, count| Broadcast::Pages {
        address,
        stride: Stride::Size4K,
        count,
        tag: Tag(5),
        leaf_only: true,
    };
    let one = |what| executed(|| with.broadcast(what).expect("never refused"));
    // Address, PCID and ASID valid, leaf only; two extra pages; the PCID.
    assert_eq!(one(pages(0x1000, 3)), ["invlpgb 0x1017, 0x5000000000002"]);
    let everything = ["invlpgb 0xc, 0x0"];
    assert_eq!(one(Broadcast::All), everything);
    assert_eq!(one(pages(0x0000_8000_0000_0000, 1)), everything, "not canonical");
    assert_eq!(executed(|| with.broadcast_sync()), [".byte 0x0F, 0x01, 0xFF"]);
    let emulated = processor(false).with_broadcast(Some(InvlpgbLimits::UNREAD));
    assert_eq!(emulated.broadcast_limits().map(|limits| limits.max_pages), Some(1));
    assert_eq!(
        with.common_with(emulated).broadcast_limits(),
        emulated.broadcast_limits()
    );
}

#[test]
fn x2apic_write_follows_mfence_and_lfence() {
    let sent = executed(|| Controller::X2Apic.send([1, 0x100], 0xF0));
    let fences = "mfence; lfence";
    let expected = [fences, "wrmsr 0x830, 0x1000040f0", fences, "wrmsr 0x830, 0x100000040f0"];
    assert_eq!(sent, expected);
    assert_eq!(executed(|| Controller::X2Apic.acknowledge()), ["wrmsr 0x80b, 0x0"]);
    set("rdmsr", 0x105);
    assert_eq!(Controller::X2Apic.this_cpu(), 0x105);
}

#[test]
fn xapic_is_written_high_word_first_with_interrupts_off() {
    let mut registers = [0_u32; 1024];
    registers[0x20 / 4] = 7 << 24;
    let controller = Controller::XApic(registers.as_mut_ptr());
    set("pushfq; pop {}; cli", 0x202);
    assert_eq!(executed(|| controller.send([3], 0xF0)), ["sti"]);
    assert_eq!(controller.this_cpu(), 7);
    controller.acknowledge();
    assert_eq!((registers[0x310 / 4], registers[0x300 / 4]), (3 << 24, 0x40F0));
    set("pushfq; pop {}; cli", 2);
    assert!(executed(|| interrupts_restore(interrupts_off())).is_empty());
    set("pushfq; pop {}", 0x202);
    assert!(!interrupts_are_off());
}
