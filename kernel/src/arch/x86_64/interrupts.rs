//! The interrupt flag, and HLT.

pub use x86_64::instructions::interrupts::{are_enabled, disable, enable, without_interrupts};

/// Sleeps until an interrupt. Interrupts are off, and off again when it returns.
pub fn sleep() {
    x86_64::instructions::interrupts::enable_and_hlt();
    disable();
}

/// Stops this CPU for good.
pub fn stop() -> ! {
    loop {
        disable();
        x86_64::instructions::hlt();
    }
}

/// One iteration of a wait loop, which lets the emulator's other CPUs run.
#[inline]
pub fn pause() {
    core::hint::spin_loop();
}
