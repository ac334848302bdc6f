//! The processor's features, read once.

use shootdown::{Design, Errata, Machine, Root};
use shootdown_cpu::Processor;
use spin::Once;

/// The features that are used.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// ASIDs, range operations, workarounds.
    pub processor: Processor,
}

static FEATURES: Once<Features> = Once::new();

/// The features of the first CPU; the others are assumed to be equal.
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

/// How the engine's broadcasts are carried out, and whether that is emulated: by the processor, not emulated.
pub fn broadcasts(_emulate: bool, _engine_broadcasts: bool) -> (Processor, bool) {
    (get().processor, false)
}

/// `design` on this machine, with its workarounds in addition to the design's.
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

/// How broadcasts are carried out.
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

/// Enables the used features on this CPU.
pub fn enable() {
    // SAFETY: none is needed.
    unsafe { get().processor.enable() };
}
