//! The interrupt mask, WFI, and yielding a turn.

use super::cpu::cpu;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

pub use crate::arch::generic_interrupts::{are_enabled, without_interrupts};

/// Whether QEMU runs the harts in turn; PAUSE does not end a turn.
static TURNS: AtomicBool = AtomicBool::new(false);

/// From here on [`pause`] yields the emulator's turn.
pub fn take_turns() {
    TURNS.store(true, Ordering::Relaxed);
}

/// Whether [`pause`] yields the emulator's turn.
pub fn takes_turns() -> bool {
    TURNS.load(Ordering::Relaxed)
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
    // SAFETY: masking is always allowed.
    unsafe { asm!("csrci sstatus, 2", options(nostack)) };
}

/// Sleeps until an interrupt. Interrupts are off on entry and on return. A pending interrupt ends WFI although it is
/// masked, so none is missed between the caller's last check and the sleep.
pub fn sleep() {
    // SAFETY: sleeps, and takes pending interrupts.
    unsafe { asm!("wfi", "csrsi sstatus, 2", "csrci sstatus, 2", options(nostack)) };
}

/// Stops this CPU for good.
pub fn stop() -> ! {
    loop {
        disable();
        // SAFETY: sleeps.
        unsafe { asm!("csrw sie, zero", "wfi", options(nostack)) };
    }
}

/// One iteration of a wait loop.
#[inline]
pub fn pause() {
    if takes_turns() {
        give_up_turn();
    } else {
        shootdown_cpu::relax();
    }
}

/// WFI ends a turn. A software interrupt from this hart itself ends WFI, in the next turn, and is cleared before it is
/// taken.
fn give_up_turn() {
    let saved = shootdown_cpu::interrupts_off();
    // SAFETY: SSIP of this hart.
    unsafe { asm!("csrsi sip, 2", "wfi", "csrci sip, 2", options(nostack)) };
    // Acquire: pairs with the release in `controller::send`. A request whose interrupt was just cleared has stored its
    // reason before; one that comes later interrupts by itself.
    if cpu().local.pending_ipis.load(Ordering::Acquire) != 0 {
        // SAFETY: as above.
        unsafe { asm!("csrsi sip, 2", options(nostack)) };
    }
    shootdown_cpu::interrupts_restore(saved);
}
