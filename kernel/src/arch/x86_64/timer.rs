//! The time stamp counter, and the one-shot timer of each CPU's interrupt controller.

use super::{controller, features};
use x86_64::instructions::port::Port;

/// The counter.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 has it, and CR4.TSD is clear.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Raises the timer interrupt here once, after this many bus cycles (nanoseconds, under QEMU); 0 stops it.
#[inline]
pub fn arm(count: u32) {
    controller::arm_timer(count);
}

/// Whether PAUSE is expensive: QEMU leaves its loop, and takes the lock under which interrupts are sent.
pub fn is_pause_costly() -> bool {
    features::get().emulator
}

/// Ticks per second. If QEMU counts instructions they are its nanoseconds.
pub fn hertz(counted: bool) -> u64 {
    if counted {
        return 1_000_000_000;
    }
    stated_hertz().unwrap_or_else(measure_hertz)
}

/// The processor's report of its counter (CPUID 15h: the crystal's frequency, and the counter's ratio to it). Machines
/// with this report may have no timer chip.
fn stated_hertz() -> Option<u64> {
    use core::arch::x86_64::__cpuid;
    if __cpuid(0).eax < 0x15 {
        return None;
    }
    let leaf = __cpuid(0x15);
    let hertz = u64::from(leaf.ecx) * u64::from(leaf.ebx) / u64::from(leaf.eax.max(1));
    (hertz > 1_000_000).then_some(hertz)
}

/// Counts ticks during 10 ms of channel 2 of the timer chip, which runs at 1,193,182 Hz.
fn measure_hertz() -> u64 {
    const COUNT: u16 = 11_932;
    let (mut gate, mut command, mut channel) = (Port::<u8>::new(0x61), Port::<u8>::new(0x43), Port::<u8>::new(0x42));
    // SAFETY: the timer chip's channel 2 and its gate, which no other code uses; the speaker stays off.
    unsafe {
        let old = gate.read() & !0b11;
        gate.write(old);
        command.write(0b1011_0000);
        channel.write(COUNT as u8);
        channel.write((COUNT >> 8) as u8);
        gate.write(old | 1);
        let begun = ticks();
        while gate.read() & 0x20 == 0 {
            core::hint::spin_loop();
        }
        let spent = ticks() - begun;
        gate.write(old);
        (spent * 1_193_182 / u64::from(COUNT)).max(1_000_000)
    }
}

/// The time after which a task that runs is interrupted: the usual one.
pub fn tick(usual: u32) -> u32 {
    usual
}

/// The interval between interrupts at random moments: as asked, because the timer is a register.
pub fn interval(ticks: u64) -> u64 {
    ticks
}
