//! The interrupt mask by `shootdown-cpu`, on Arm and RISC-V.

/// Whether interrupts are on.
#[inline]
pub fn are_enabled() -> bool {
    !shootdown_cpu::interrupts_are_off()
}

/// Runs `body` with interrupts masked.
#[inline]
pub fn without_interrupts<T>(body: impl FnOnce() -> T) -> T {
    let saved = shootdown_cpu::interrupts_off();
    let result = body();
    shootdown_cpu::interrupts_restore(saved);
    result
}
