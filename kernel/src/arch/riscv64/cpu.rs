//! The pointer to the current hart: TP, in the kernel.

use super::fences;
use crate::cpu::Cpu;
use core::arch::asm;
use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;

/// RISC-V's part of a CPU: the first words of its [`Cpu`].
#[repr(C)]
pub struct Local {
    /// Reasons of its interrupt: a bit for each interrupt number. A hart has one software interrupt. First: an atomic
    /// operation takes an address without an offset.
    pub pending_ipis: AtomicU64,
    /// Stack for entries from user mode, as left on return; the stack of user code.
    kernel_stack: Cell<u64>,
    user_stack: Cell<u64>,
    /// Remote fences that it has begun and ended: odd while one is in progress.
    pub fencing: AtomicU64,
}

impl Local {
    /// Where the entry code finds them, from the start of the CPU's structure.
    pub const KERNEL_STACK: usize = offset_of!(Local, kernel_stack);
    /// See [`KERNEL_STACK`](Self::KERNEL_STACK).
    pub const USER_STACK: usize = offset_of!(Local, user_stack);

    /// For a CPU that does not run yet.
    pub fn new() -> Local {
        Local {
            pending_ipis: AtomicU64::new(0),
            kernel_stack: Cell::new(0),
            user_stack: Cell::new(0),
            fencing: AtomicU64::new(0),
        }
    }

    /// Sets the stack for entries from user mode: a no-op, because it is the one left on return to user code.
    pub fn set_kernel_stack(&self, _top: u64) {}

    /// From here on broadcasts reach it. Call it before the CPU flushes everything on its way online.
    pub fn attach(&self) {
        fences::take_in();
    }

    /// From here on no broadcast reaches it, and no CPU waits for it. Call it when the CPU uses no cached translation
    /// any longer.
    pub fn detach(&self) {
        fences::leave_out();
    }
}

/// Makes `cpu` the running CPU.
///
/// # Safety
/// Once, on the CPU whose structure it is, before any call of [`cpu()`].
pub unsafe fn adopt(cpu: &'static Cpu) {
    // SAFETY: compiled code does not use TP.
    unsafe { asm!("mv tp, {}", in(reg) core::ptr::from_ref(cpu), options(nostack)) };
}

/// The running CPU.
#[inline]
pub fn cpu() -> &'static Cpu {
    let this: *const Cpu;
    // SAFETY: `adopt` has stored the address there. Not `pure`: a thread may continue on another CPU.
    unsafe { asm!("mv {}, tp", out(reg) this, options(nostack, preserves_flags, readonly)) };
    // SAFETY: CPUs are never freed.
    unsafe { &*this }
}

/// No broadcast is emulated.
#[inline]
pub fn poll() {}
