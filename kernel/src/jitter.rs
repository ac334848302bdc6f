//! Timer interrupts at random moments, so that the emulator changes turns at any instruction: each seed gives another
//! interleaving, and the same seed the same one.

use crate::arch::timer;
use crate::cpu::Cpu;
use core::sync::atomic::{AtomicU64, Ordering};

/// Most bus cycles between two; 0 for none.
static MOST: AtomicU64 = AtomicU64::new(0);

/// Sets the longest interval, in bus cycles (nanoseconds, under QEMU).
pub fn set(most: u64) {
    MOST.store(most, Ordering::Relaxed);
}

/// Starts it on this CPU.
pub fn begin(cpu: &Cpu, seed: u64) {
    cpu.jitter.set(seed << 8 | cpu.id as u64 | 1 << 63);
    rearm(cpu);
}

/// Stops it on this CPU.
pub fn end() {
    timer::arm(0);
}

/// The next interval, if any.
pub fn rearm(cpu: &Cpu) -> bool {
    let most = MOST.load(Ordering::Relaxed);
    if most == 0 {
        return false;
    }
    // Marsaglia's xorshift64*.
    let mut state = cpu.jitter.get();
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    cpu.jitter.set(state);
    let random = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
    timer::arm((1 + random % most) as u32);
    true
}
