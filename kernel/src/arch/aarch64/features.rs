//! The processor's features, read once.

use core::sync::atomic::{AtomicBool, Ordering};
use shootdown::Root;
use shootdown_cpu::Processor;
use spin::Once;

pub use crate::arch::generic_features::*;

/// The features that are used.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// ASIDs, range operations, workarounds.
    pub processor: Processor,
}

static FEATURES: Once<Features> = Once::new();
/// ASIDs of 8 bits are used although the processor may have 16.
static NARROW: AtomicBool = AtomicBool::new(false);

/// The features of the first CPU; the others are assumed to be equal.
#[inline]
pub fn get() -> &'static Features {
    FEATURES.call_once(|| Features {
        processor: Processor::discover(Root(super::boot::root())),
    })
}

/// The same as [`get`], without its check, which costs a barrier in each invalidation.
///
/// # Safety
/// [`enable`] has run on this CPU.
#[inline]
pub unsafe fn get_enabled() -> &'static Features {
    // SAFETY: `enable` has read them.
    unsafe { FEATURES.get_unchecked() }
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

/// Uses ASIDs of `bits` bits. Before [`enable`].
///
/// # Errors
/// The numbers of bits that there are.
pub fn limit_asids(bits: u32) -> Result<(), &'static str> {
    match bits {
        8 => NARROW.store(true, Ordering::Relaxed),
        16 if get().processor.tag_limit() == 1 << 16 => {}
        16 => return Err("this processor has ASIDs of 8 bits; leave the word out"),
        _ => return Err("AArch64 has ASIDs of 8 or 16 bits"),
    }
    Ok(())
}

/// Enables the used features on this CPU.
pub fn enable() {
    if NARROW.load(Ordering::Relaxed) {
        // SAFETY: TCR_EL1.AS. No entry has an ASID yet.
        unsafe {
            core::arch::asm!(
                "mrs {tcr}, tcr_el1",
                "bic {tcr}, {tcr}, #(1 << 36)",
                "msr tcr_el1, {tcr}",
                "isb",
                "tlbi vmalle1",
                "dsb nsh",
                "isb",
                tcr = out(reg) _,
                options(nostack)
            );
        }
    }
    // SAFETY: none is needed.
    unsafe { get().processor.enable() };
}
