//! What the processor has, read once.

use shootdown::{Design, Errata, Machine, Root};
use shootdown_cpu::Processor;
use spin::Once;

/// What is used of it.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// ASIDs, range operations, workarounds.
    pub processor: Processor,
}

static FEATURES: Once<Features> = Once::new();

/// The features of the first CPU, which is taken to be like the others.
#[inline]
pub fn get() -> &'static Features {
    FEATURES.call_once(|| Features {
        processor: Processor::discover(Root(super::boot::root())),
    })
}

/// Whether spaces have tags.
pub fn has_tags() -> bool {
    get().processor.tag_limit() > 1
}

/// Who carries out the broadcasts of the engine, and whether it is emulated: the processor, and it is not.
pub fn broadcasts(_emulate: bool, _engine_broadcasts: bool) -> (Processor, bool) {
    (get().processor, false)
}

/// `design` on this machine, whose workarounds are added to those that the design tries.
pub fn on_this_machine(design: Design) -> Design {
    let (machine, tried) = (get().processor.machine(), design.machine.errata);
    design.policy.on(Machine {
        errata: Errata {
            never_broadcast: machine.errata.never_broadcast || tried.never_broadcast,
            interrupt_too: machine.errata.interrupt_too || tried.interrupt_too,
            repeat: machine.errata.repeat || tried.repeat,
        },
        ..machine
    })
}

/// What carries broadcasts out.
pub fn broadcast_in_words(_processor: &Processor, _emulated: bool) -> &'static str {
    "hardware"
}

/// The same for a table's last line.
pub fn in_words(_broadcast: &str) -> &'static str {
    "TLBI of the processor"
}

/// The tags, for a table's last line.
pub fn tags_in_words() -> &'static str {
    if get().processor.tag_limit() > 256 {
        "ASIDs of 16 bits"
    } else {
        "ASIDs of 8 bits"
    }
}

/// Switches on, on this CPU, what is used.
pub fn enable() {
    // SAFETY: none is needed.
    unsafe { get().processor.enable() };
}
