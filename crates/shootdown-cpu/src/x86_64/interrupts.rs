//! The interrupt flag of this CPU.

use super::instructions::{flags, flags_and_cli, pause, sti};

/// RFLAGS.IF.
const ENABLED: u64 = 1 << 9;

/// Masks interrupts; returns what [`interrupts_restore`] needs.
#[inline]
pub fn interrupts_off() -> u64 {
    flags_and_cli() & ENABLED
}

/// Restores the flag that [`interrupts_off`] returned.
#[inline]
pub fn interrupts_restore(saved: u64) {
    if saved != 0 {
        sti();
    }
}

/// Whether interrupts are masked.
#[inline]
pub fn interrupts_are_off() -> bool {
    flags() & ENABLED == 0
}

/// One iteration of a wait loop (PAUSE).
#[inline]
pub fn relax() {
    pause();
}
