//! The interrupt mask of this CPU.

use super::instructions::{mask_interrupts, read_daif, write_daif, yield_};

/// DAIF.I.
const MASKED: u64 = 1 << 7;

/// Masks interrupts; returns what [`interrupts_restore`] needs.
#[inline]
pub fn interrupts_off() -> u64 {
    let saved = read_daif();
    mask_interrupts();
    saved
}

/// Restores the mask that [`interrupts_off`] returned.
#[inline]
pub fn interrupts_restore(saved: u64) {
    write_daif(saved);
}

/// Whether interrupts are masked.
#[inline]
pub fn interrupts_are_off() -> bool {
    read_daif() & MASKED != 0
}

/// One iteration of a wait loop (YIELD).
#[inline]
pub fn relax() {
    yield_();
}
