//! The per-CPU data of x86-64, reached through GS.

use super::descriptors::Tables;
use super::emulate::Mail;
use crate::cpu::Cpu;
use core::cell::Cell;
use x86_64::registers::model_specific::Msr;

/// The x86-64 part of a CPU's data: the first words of its [`Cpu`].
#[repr(C)]
pub struct Local {
    /// Its own address: `gs:[0]`.
    this: Cell<*const Cpu>,
    /// Stack for entries from user mode: `gs:[8]`; and the saved user stack: `gs:[16]`.
    kernel_stack: Cell<u64>,
    user_stack: Cell<u64>,
    /// Segments and stacks.
    tables: Tables,
    /// Pending emulated broadcasts.
    pub mail: Mail,
}

impl Local {
    /// For a CPU that does not run yet.
    pub fn new() -> Local {
        Local {
            this: Cell::new(core::ptr::null()),
            kernel_stack: Cell::new(0),
            user_stack: Cell::new(0),
            tables: Tables::new(),
            mail: Mail::new(),
        }
    }

    /// Sets the stack for entries from user mode. On the CPU itself, interrupts off.
    pub fn set_kernel_stack(&self, top: u64) {
        self.kernel_stack.set(top);
        self.tables.set_kernel_stack(top);
    }

    /// From here on broadcasts reach it. Call it before the CPU flushes everything on its way online.
    pub fn attach(&self) {
        self.mail.attach();
    }

    /// From here on no broadcast reaches it, and no CPU waits for it. Call it when the CPU uses no cached translation
    /// any longer.
    pub fn detach(&self) {
        self.mail.detach();
    }
}

/// Makes `cpu` the running one: GS, descriptor tables.
///
/// # Safety
/// Once, on the CPU whose structure it is, before any call of [`cpu()`].
pub unsafe fn adopt(cpu: &'static Cpu) {
    cpu.local.this.set(cpu);
    // SAFETY: GS base of this CPU and, for after a `swapgs`, that of user mode.
    unsafe {
        Msr::new(0xC000_0101).write(core::ptr::from_ref(cpu) as u64);
        Msr::new(0xC000_0102).write(0);
    }
    cpu.local.tables.load();
}

/// The running CPU.
#[inline]
pub fn cpu() -> &'static Cpu {
    let this: *const Cpu;
    // SAFETY: `adopt` has stored the address there. Not `pure`: a thread may continue on another CPU.
    unsafe { core::arch::asm!("mov {}, gs:[0]", out(reg) this, options(nostack, preserves_flags, readonly)) };
    // SAFETY: CPUs are never freed.
    unsafe { &*this }
}

/// Carries out pending emulated broadcasts, in the middle of a wait.
#[inline]
pub fn poll() {
    super::emulate::poll();
}
