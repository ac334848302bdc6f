//! What each CPU is reached by: TPIDR_EL1.

use crate::cpu::Cpu;
use core::arch::asm;

/// What AArch64 keeps for a CPU: nothing. The stack for entries from user mode is SP_EL1 as it is left.
pub struct Local;

impl Local {
    /// Of a CPU that does not run yet.
    pub fn new() -> Local {
        Local
    }

    /// The stack that entries from user mode use from now on: the one that is left for user code.
    pub fn set_kernel_stack(&self, _top: u64) {}

    /// From now on broadcasts reach it: always.
    pub fn attach(&self) {}

    /// From now on none does: they do, and do no harm.
    pub fn detach(&self) {}
}

/// Makes `cpu` the one that runs.
///
/// # Safety
/// Once, by the CPU whose structure it is, before anything asks for [`cpu()`].
pub unsafe fn adopt(cpu: &'static Cpu) {
    // SAFETY: the register is for this.
    unsafe { asm!("msr tpidr_el1, {}", in(reg) core::ptr::from_ref(cpu), options(nostack)) };
}

/// The CPU this runs on.
#[inline]
pub fn cpu() -> &'static Cpu {
    let this: *const Cpu;
    // SAFETY: `adopt` has put the address there. Not `pure`: a thread may continue on another CPU.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) this, options(nostack, preserves_flags, readonly)) };
    // SAFETY: CPUs are never freed.
    unsafe { &*this }
}

/// No broadcast is emulated.
#[inline]
pub fn poll() {}
