//! What the engine needs to know of a processor whose broadcasts are not emulated: Arm and RISC-V.

use crate::arch::features::get;
use crate::options::either;
use shootdown::{Design, Machine};
use shootdown_cpu::Processor;

/// Whether spaces have tags.
pub fn has_tags() -> bool {
    get().processor.tag_limit() > 1
}

/// How the engine's broadcasts are carried out, and whether that is emulated: by the processor or the firmware, never
/// emulated.
pub fn broadcasts(_emulate: bool, _engine_broadcasts: bool) -> (Processor, bool) {
    (get().processor, false)
}

/// `design` on this machine, with its workarounds in addition to the design's.
pub fn on_this_machine(design: Design) -> Design {
    let (machine, tried) = (get().processor.machine(), design.machine.errata);
    design.policy.on(Machine {
        errata: either(machine.errata, tried),
        ..machine
    })
}
