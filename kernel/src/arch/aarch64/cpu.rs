//! The pointer to the current CPU: TPIDR_EL1.

use crate::cpu::Cpu;
use core::arch::asm;

/// AArch64's part of a CPU: empty. The stack for entries from user mode is SP_EL1 as left on return.
pub struct Local;

impl Local {
    /// For a CPU that does not run yet.
    pub fn new() -> Local {
        Local
    }

    /// Sets the stack for entries from user mode: a no-op, because it is the one left on return to user code.
    pub fn set_kernel_stack(&self, _top: u64) {}

    /// Broadcasts must reach it: they always do.
    pub fn attach(&self) {}

    /// Broadcasts need not reach it: they still do, without harm.
    pub fn detach(&self) {}
}

/// Makes `cpu` the running CPU.
///
/// # Safety
/// Once, on the CPU whose structure it is, before any call of [`cpu()`].
pub unsafe fn adopt(cpu: &'static Cpu) {
    // SAFETY: the register is reserved for this.
    unsafe { asm!("msr tpidr_el1, {}", in(reg) core::ptr::from_ref(cpu), options(nostack)) };
}

/// The running CPU.
#[inline]
pub fn cpu() -> &'static Cpu {
    let this: *const Cpu;
    // SAFETY: `adopt` has stored the address there. Not `pure`: a thread may continue on another CPU.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) this, options(nostack, preserves_flags, readonly)) };
    // SAFETY: CPUs are never freed.
    unsafe { &*this }
}

/// No broadcast is emulated.
#[inline]
pub fn poll() {}
