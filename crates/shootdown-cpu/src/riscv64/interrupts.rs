//! The interrupt mask of this hart.

use super::instructions::{mask_interrupts, pause, read_sstatus, set_sstatus};

/// sstatus.SIE.
const ENABLED: u64 = 1 << 1;

/// Masks interrupts; returns what [`interrupts_restore`] needs.
#[inline]
pub fn interrupts_off() -> u64 {
    mask_interrupts() & ENABLED
}

/// Restores the mask that [`interrupts_off`] returned.
#[inline]
pub fn interrupts_restore(saved: u64) {
    if saved != 0 {
        set_sstatus(saved);
    }
}

/// Whether interrupts are masked.
#[inline]
pub fn interrupts_are_off() -> bool {
    read_sstatus() & ENABLED == 0
}

/// One iteration of a wait loop (PAUSE).
#[inline]
pub fn relax() {
    pause();
}
