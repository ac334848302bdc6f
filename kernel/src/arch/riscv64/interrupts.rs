//! The interrupt mask, WFI, and giving up a turn.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

/// QEMU runs one hart after the other, and does not end a turn at PAUSE.
static TURNS: AtomicBool = AtomicBool::new(false);

/// From now on [`pause`] gives up the emulator's turn.
pub fn take_turns() {
    TURNS.store(true, Ordering::Relaxed);
}

/// Takes interrupts.
#[inline]
pub fn enable() {
    // SAFETY: the handlers are set up.
    unsafe { asm!("csrsi sstatus, 2", options(nostack)) };
}

/// Masks interrupts.
#[inline]
pub fn disable() {
    // SAFETY: masking harms nothing.
    unsafe { asm!("csrci sstatus, 2", options(nostack)) };
}

/// Whether interrupts are taken.
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

/// Sleeps until an interrupt. Interrupts are off, and off again when it returns: one that is pending ends WFI although
/// it is masked, so none is missed between the caller's last look and the sleep.
pub fn sleep() {
    // SAFETY: sleeps, and takes what is pending.
    unsafe { asm!("wfi", "csrsi sstatus, 2", "csrci sstatus, 2", options(nostack)) };
}

/// Nothing more will happen here.
pub fn stop() -> ! {
    loop {
        disable();
        // SAFETY: sleeps.
        unsafe { asm!("csrw sie, zero", "wfi", options(nostack)) };
    }
}

/// A turn of a loop that waits.
#[inline]
pub fn pause() {
    if TURNS.load(Ordering::Relaxed) {
        give_up_turn();
    } else {
        shootdown_cpu::relax();
    }
}

/// WFI ends a turn. A software interrupt of this hart's own ends WFI, in the next turn; its handler finds that nobody
/// has asked for anything.
fn give_up_turn() {
    let saved = shootdown_cpu::interrupts_off();
    // SAFETY: SSIP of this hart.
    unsafe { asm!("csrsi sip, 2", "wfi", options(nostack)) };
    shootdown_cpu::interrupts_restore(saved);
}
