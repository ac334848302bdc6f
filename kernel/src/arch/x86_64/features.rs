//! The processor's features, read once.

use crate::time;
use core::arch::x86_64::__cpuid_count;
use shootdown::{Design, Root};
use shootdown_arch::x86_64::cpuid::{self, Signature, Vendor};
use shootdown_cpu::Processor;
use spin::Once;

/// The features that are used.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// Tags, broadcast, translation cache extension.
    pub processor: Processor,
    /// Interrupt controllers through model-specific registers.
    pub x2apic: bool,
    /// It lacks INVLPGB and TLBSYNC: they are invalid opcodes, which can be emulated.
    pub lacks_broadcast: bool,
    /// It runs under a hypervisor.
    pub hypervisor: bool,
    /// It is emulated by QEMU.
    pub emulator: bool,
}

static FEATURES: Once<Features> = Once::new();

/// The features of the first CPU; the others are assumed to be equal.
pub fn get() -> &'static Features {
    FEATURES.call_once(read)
}

fn read() -> Features {
    let leaf = |number: u32| __cpuid_count(number, 0);
    let sizes = (leaf(0x8000_0000).eax >= 0x8000_0008).then(|| leaf(0x8000_0008));
    let names = leaf(0);
    let basic = leaf(1);
    let vendor = Vendor::from_cpuid(names.ebx, names.ecx, names.edx);
    let signature = Signature::from_cpuid(basic.eax);
    let broadcast = sizes.and_then(|sizes| cpuid::broadcast_limits(vendor, signature, sizes.ebx, sizes.edx));
    let hypervisor = basic.ecx >> 31 == 1;
    let below = leaf(0x4000_0000);
    Features {
        processor: Processor::discover(Root(super::boot::root())),
        x2apic: basic.ecx >> 21 & 1 == 1,
        lacks_broadcast: broadcast.is_none(),
        hypervisor,
        // QEMU reports TCGTCGTCGTCG, in three registers.
        emulator: hypervisor
            && [below.ebx, below.ecx, below.edx] == [*b"TCGT", *b"CGTC", *b"GTCG"].map(u32::from_le_bytes),
    }
}

/// Whether spaces have tags.
pub fn has_tags() -> bool {
    get().processor.has_tags()
}

/// How the engine's broadcasts are carried out: by the processor or by emulation, with the limits of either, and
/// whether it is emulated. `engine_broadcasts` says whether the engine issues any.
pub fn broadcasts(emulate: bool, engine_broadcasts: bool) -> (Processor, bool) {
    let features = get();
    let emulated = emulate && features.lacks_broadcast;
    if emulated && engine_broadcasts {
        time::take_up(time::MAIL);
    }
    let limits = features.processor.invlpgb_limits();
    let limits = limits.or(emulated.then(super::emulate::limits));
    (features.processor.with_broadcast(limits), emulated)
}

/// `design` on this machine. PCIDs are 12 bits wide on every processor that has them; without PCIDs the hooks ignore
/// tags.
pub fn on_this_machine(design: Design) -> Design {
    design
}

/// How broadcasts are carried out.
pub fn broadcast_in_words(processor: &Processor, emulated: bool) -> &'static str {
    match (processor.invlpgb_limits(), emulated) {
        (None, _) => "none",
        (Some(_), true) => "emulated",
        (Some(_), false) => "hardware",
    }
}

/// The same for a table's last line.
pub fn in_words(broadcast: &str) -> &'static str {
    match broadcast {
        "emulated" => "EMULATED, by interrupts",
        "hardware" => "INVLPGB and TLBSYNC of the processor",
        _ => "none",
    }
}

/// The tags, for a table's last line.
pub fn tags_in_words() -> &'static str {
    if get().processor.has_tags() {
        "PCID and INVPCID"
    } else {
        "none"
    }
}

/// PCIDs always have 12 bits.
///
/// # Errors
/// Always.
pub fn limit_asids(_bits: u32) -> Result<(), &'static str> {
    Err("x86-64 has PCIDs, of 12 bits; leave the word out")
}

/// Enables the used features on this CPU. With root 0's tag loaded.
pub fn enable() {
    // SAFETY: in 64-bit mode, under tag 0. User code gains nothing from the counter.
    unsafe { get().processor.enable() };
}
