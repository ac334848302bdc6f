//! The interrupt mask, and WFI.

use core::arch::asm;

pub use crate::arch::generic_interrupts::{are_enabled, without_interrupts};
pub use shootdown_cpu::relax as pause;

/// Takes interrupts.
#[inline]
pub fn enable() {
    // SAFETY: the handlers are set up.
    unsafe { asm!("msr daifclr, #2", options(nostack, preserves_flags)) };
}

/// Masks interrupts.
#[inline]
pub fn disable() {
    // SAFETY: masking is always allowed.
    unsafe { asm!("msr daifset, #2", options(nostack, preserves_flags)) };
}

/// Sleeps until an interrupt. Interrupts are off on entry and on return. A pending interrupt ends WFI although it is
/// masked, so none is missed between the caller's last check and the sleep.
pub fn sleep() {
    // SAFETY: sleeps, and takes pending interrupts.
    unsafe {
        asm!(
            "dsb sy",
            "wfi",
            "msr daifclr, #2",
            "isb",
            "msr daifset, #2",
            options(nostack)
        )
    };
}

/// Stops this CPU for good.
pub fn stop() -> ! {
    loop {
        disable();
        // SAFETY: sleeps.
        unsafe { asm!("wfi", options(nostack)) };
    }
}
