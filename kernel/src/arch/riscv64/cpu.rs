//! What each hart is reached by: TP, in the kernel.

use crate::cpu::Cpu;
use core::arch::asm;
use core::cell::Cell;
use core::sync::atomic::AtomicU64;

/// What RISC-V keeps for a CPU: the first words of its [`Cpu`].
#[repr(C)]
pub struct Local {
    /// Stack for entries from user mode, as it was left for user code: at 0; and that of user code: at 8.
    kernel_stack: Cell<u64>,
    user_stack: Cell<u64>,
    /// What it is interrupted for: a bit for each number of an interrupt. A hart has one software interrupt.
    pub asked: AtomicU64,
}

impl Local {
    /// Of a CPU that does not run yet.
    pub fn new() -> Local {
        Local {
            kernel_stack: Cell::new(0),
            user_stack: Cell::new(0),
            asked: AtomicU64::new(0),
        }
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
    // SAFETY: compiled code leaves TP alone.
    unsafe { asm!("mv tp, {}", in(reg) core::ptr::from_ref(cpu), options(nostack)) };
}

/// The CPU this runs on.
#[inline]
pub fn cpu() -> &'static Cpu {
    let this: *const Cpu;
    // SAFETY: `adopt` has put the address there. Not `pure`: a thread may continue on another CPU.
    unsafe { asm!("mv {}, tp", out(reg) this, options(nostack, preserves_flags, readonly)) };
    // SAFETY: CPUs are never freed.
    unsafe { &*this }
}

/// No broadcast is emulated.
#[inline]
pub fn poll() {}
