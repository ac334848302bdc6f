//! Marks for a counter of instructions outside the machine (`xtask/plugin`): no-operations with a number in them.

use core::arch::asm;

/// The counted part begins.
pub fn window_begins() {
    // SAFETY: has no effect.
    unsafe { asm!("movz xzr, #0x5342", options(nostack, preserves_flags)) };
}

/// The counted part ends.
pub fn window_ends() {
    // SAFETY: has no effect.
    unsafe { asm!("movz xzr, #0x5345", options(nostack, preserves_flags)) };
}
