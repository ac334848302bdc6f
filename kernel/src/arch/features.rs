//! What the processor has, read once.

use core::arch::x86_64::__cpuid_count;
use shootdown_arch::x86_64::cpuid::{self, Signature, Vendor};
use shootdown_arch::x86_64::invlpgb::InvlpgbLimits;
use spin::Once;
use x86_64::registers::control::{Cr4, Cr4Flags, Efer, EferFlags};

/// What is used of it.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// Tags that the processor knows. Only together with INVPCID.
    pub tags: bool,
    /// Interrupt controllers by model-specific registers.
    pub x2apic: bool,
    /// INVLPGB and TLBSYNC, and how many pages they take. Only together with tags: a tag that is not 0 is refused (#GP)
    /// while the processor uses none, and nothing is known of one that broadcasts without.
    pub broadcast: Option<InvlpgbLimits>,
    /// It lacks these instructions: they are invalid opcodes, which can be emulated.
    pub lacks_broadcast: bool,
    /// Translation cache extension.
    pub narrow_links: bool,
    /// A hypervisor is below.
    pub hypervisor: bool,
    /// It is QEMU's own emulation of a processor.
    pub emulator: bool,
}

static FEATURES: Once<Features> = Once::new();

/// The features of the first CPU, which is taken to be like the others.
pub fn get() -> &'static Features {
    FEATURES.call_once(read)
}

fn read() -> Features {
    let leaf = |number: u32| __cpuid_count(number, 0);
    let most = leaf(0x8000_0000).eax;
    let extended = |number: u32| (number <= most).then(|| leaf(number));
    let names = leaf(0);
    let basic = leaf(1);
    let vendor = Vendor::from_cpuid(names.ebx, names.ecx, names.edx);
    let signature = Signature::from_cpuid(basic.eax);
    let hypervisor = basic.ecx >> 31 == 1;
    let structured = if names.eax >= 7 { leaf(7).ebx } else { 0 };
    let sizes = extended(0x8000_0008);
    let broadcast = sizes.and_then(|sizes| cpuid::broadcast_limits(vendor, signature, sizes.ebx, sizes.edx));
    let below = leaf(0x4000_0000);
    // The microcode's revision is not read: 0 errs towards not using tags.
    let tags = cpuid::has_pcid(basic.ecx)
        && cpuid::has_invpcid(structured)
        && cpuid::must_not_tag(vendor, signature, 0, hypervisor).is_none();
    Features {
        tags,
        x2apic: basic.ecx >> 21 & 1 == 1,
        broadcast: broadcast.filter(|_| tags),
        lacks_broadcast: broadcast.is_none(),
        narrow_links: extended(0x8000_0001).is_some_and(|leaf| cpuid::has_translation_cache_extension(leaf.ecx)),
        hypervisor,
        // It calls itself TCGTCGTCGTCG, in three registers.
        emulator: hypervisor
            && [below.ebx, below.ecx, below.edx] == [*b"TCGT", *b"CGTC", *b"GTCG"].map(u32::from_le_bytes),
    }
}

/// Switches on, on this CPU, what is used. With root 0's tag loaded.
pub fn enable() {
    let features = get();
    // SAFETY: global pages, and tags where the processor has them: the loaded root is under tag 0, as is required. No
    // user code can read the counter's bits that matter.
    unsafe {
        Cr4::update(|flags| {
            flags.insert(Cr4Flags::PAGE_GLOBAL);
            flags.set(Cr4Flags::PCID, features.tags);
        });
    }
    if features.narrow_links {
        // SAFETY: the engine names an address within the span of every freed table page, as this asks for.
        unsafe { Efer::update(|flags| flags.insert(EferFlags::TRANSLATION_CACHE_EXTENSION)) };
    }
}
