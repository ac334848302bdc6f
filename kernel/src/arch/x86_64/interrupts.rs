//! The interrupt flag, and HLT.

pub use x86_64::instructions::interrupts::{are_enabled, disable, enable, without_interrupts};

/// Sleeps until an interrupt. Interrupts are off, and off again when it returns.
pub fn sleep() {
    x86_64::instructions::interrupts::enable_and_hlt();
    disable();
}

/// Nothing more will happen here.
pub fn stop() -> ! {
    loop {
        disable();
        x86_64::instructions::hlt();
    }
}

/// A turn of a loop that waits, which lets the emulator's other CPUs have theirs.
#[inline]
pub fn pause() {
    core::hint::spin_loop();
}
