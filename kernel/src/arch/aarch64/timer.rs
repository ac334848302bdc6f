//! The virtual generic timer: a counter that all CPUs share, and a one-shot timer on each. Ticks are nanoseconds if the
//! frequency allows it, as QEMU's does (62.5 MHz).

use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};

/// The private interrupt of the virtual timer (PPI 11).
pub const INTERRUPT: u32 = 27;

/// Nanoseconds of a cycle; 0 if that is not an integer: then ticks are cycles.
static CYCLE: AtomicU32 = AtomicU32::new(0);

fn frequency() -> u64 {
    let frequency;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nostack, nomem)) };
    frequency
}

/// The counter.
#[inline]
pub fn ticks() -> u64 {
    let cycles: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) cycles, options(nostack, nomem)) };
    cycles * u64::from(CYCLE.load(Ordering::Relaxed).max(1))
}

/// Raises the timer interrupt here once, after this many ticks; 0 stops it.
#[inline]
pub fn arm(ticks: u32) {
    let cycles = (ticks / CYCLE.load(Ordering::Relaxed).max(1)).max(1);
    // SAFETY: the timer of this CPU.
    unsafe {
        if ticks == 0 {
            asm!("msr cntv_ctl_el0, xzr", "isb", options(nostack));
        } else {
            asm!("msr cntv_tval_el0, {}", "msr cntv_ctl_el0, {}", "isb", in(reg) u64::from(cycles), in(reg) 1_u64,
                options(nostack));
        }
    }
}

/// Whether a pause is expensive: YIELD ends a turn only if QEMU runs the CPUs in turn.
pub fn is_pause_costly() -> bool {
    false
}

/// Ticks per second.
pub fn hertz(_counted: bool) -> u64 {
    let frequency = frequency();
    if 1_000_000_000 % frequency != 0 {
        return frequency;
    }
    CYCLE.store((1_000_000_000 / frequency) as u32, Ordering::Relaxed);
    1_000_000_000
}

/// The time after which a task that runs is interrupted: the usual one.
pub fn tick(usual: u32) -> u32 {
    usual
}

/// The interval between interrupts at random moments: as asked, because the timer is a register.
pub fn interval(ticks: u64) -> u64 {
    ticks
}
