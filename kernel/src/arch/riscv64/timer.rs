//! The counter that all harts share, and a one-shot timer on each, set by a register (Sstc) or by the firmware. Ticks
//! are nanoseconds if the frequency allows it, as QEMU's does (10 MHz).

use super::{features, interrupts};
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};
use shootdown_cpu::sbi;

/// The extension that sets the timer.
const TIME: u64 = 0x5449_4D45;

/// Nanoseconds of a cycle; 0 if that is not an integer: then ticks are cycles.
static CYCLE: AtomicU32 = AtomicU32::new(0);

#[inline]
fn cycles() -> u64 {
    let cycles: u64;
    // SAFETY: reads a register.
    unsafe { asm!("rdtime {}", out(reg) cycles, options(nostack, nomem)) };
    cycles
}

/// The counter.
#[inline]
pub fn ticks() -> u64 {
    cycles() * u64::from(CYCLE.load(Ordering::Relaxed).max(1))
}

/// Raises the timer interrupt here once, after this many ticks; 0 stops it.
pub fn arm(ticks: u32) {
    let after = u64::from(ticks / CYCLE.load(Ordering::Relaxed).max(1)).max(1);
    let at = if ticks == 0 { u64::MAX } else { cycles() + after };
    if features::has_timer_register() {
        // By number: the assembler knows the name only with the extension.
        // SAFETY: stimecmp, the timer of this hart.
        return unsafe { asm!("csrw 0x14D, {}", in(reg) at, options(nostack)) };
    }
    // SAFETY: the timer of this hart.
    let set = unsafe { sbi::call(TIME, 0, [at, 0, 0, 0, 0]) };
    if let Err(sbi::Error(why)) = set {
        crate::serial::give_up(format_args!(
            "SBI TIME: the firmware answers {why}; use OpenSBI 1.0 or newer, or harts with Sstc"
        ));
    }
}

/// Whether a pause is expensive: not if harts run in parallel.
pub fn is_pause_costly() -> bool {
    false
}

/// Ticks per second. Where QEMU counts instructions, harts take turns.
pub fn hertz(counted: bool) -> u64 {
    if counted {
        interrupts::take_turns();
    }
    let frequency = features::timer_hertz();
    if 1_000_000_000 % frequency != 0 {
        return frequency;
    }
    CYCLE.store((1_000_000_000 / frequency) as u32, Ordering::Relaxed);
    1_000_000_000
}

/// The time after which a task that runs is interrupted. Shorter where harts take turns: PAUSE does not end the turn of
/// user code that waits, a timer does.
pub fn tick(usual: u32) -> u32 {
    if interrupts::takes_turns() { usual / 80 } else { usual }
}

/// The interval between interrupts at random moments: longer if the firmware sets the timer. An interrupt takes some
/// 500 instructions then, and with torture's shortest interval (700) harts that take turns would do little else. 16 is
/// a judgement: the handler then takes a twentieth of the time.
pub fn interval(ticks: u64) -> u64 {
    if features::has_timer_register() {
        ticks
    } else {
        ticks * 16
    }
}
