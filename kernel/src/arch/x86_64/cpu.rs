//! What each CPU is reached by: GS.

use super::descriptors::Tables;
use super::emulate::Mail;
use crate::cpu::Cpu;
use core::cell::Cell;
use x86_64::registers::model_specific::Msr;

/// What x86-64 keeps for a CPU: the first words of its [`Cpu`].
#[repr(C)]
pub struct Local {
    /// Where this is: `gs:[0]`.
    this: Cell<*const Cpu>,
    /// Stack for entries from user mode: `gs:[8]`; and what that was: `gs:[16]`.
    kernel_stack: Cell<u64>,
    user_stack: Cell<u64>,
    /// Segments and stacks.
    tables: Tables,
    /// Emulated broadcasts that wait here.
    pub mail: Mail,
}

impl Local {
    /// Of a CPU that does not run yet.
    pub fn new() -> Local {
        Local {
            this: Cell::new(core::ptr::null()),
            kernel_stack: Cell::new(0),
            user_stack: Cell::new(0),
            tables: Tables::new(),
            mail: Mail::new(),
        }
    }

    /// The stack that entries from user mode use from now on. By the CPU whose it is, interrupts off.
    pub fn set_kernel_stack(&self, top: u64) {
        self.kernel_stack.set(top);
        self.tables.set_kernel_stack(top);
    }

    /// From now on broadcasts reach it. Before the CPU flushes everything on its way in.
    pub fn attach(&self) {
        self.mail.attach();
    }

    /// From now on none does, and nobody waits for it. When the CPU uses nothing that is cached any more.
    pub fn detach(&self) {
        self.mail.detach();
    }
}

/// Makes `cpu` the one that runs: GS, descriptor tables.
///
/// # Safety
/// Once, by the CPU whose structure it is, before anything asks for [`cpu()`].
pub unsafe fn adopt(cpu: &'static Cpu) {
    cpu.local.this.set(cpu);
    // SAFETY: GS base of this CPU and, for after a `swapgs`, that of user mode.
    unsafe {
        Msr::new(0xC000_0101).write(core::ptr::from_ref(cpu) as u64);
        Msr::new(0xC000_0102).write(0);
    }
    cpu.local.tables.load();
}

/// The CPU this runs on.
#[inline]
pub fn cpu() -> &'static Cpu {
    let this: *const Cpu;
    // SAFETY: `adopt` has put the address there. Not `pure`: a thread may continue on another CPU.
    unsafe { core::arch::asm!("mov {}, gs:[0]", out(reg) this, options(nostack, preserves_flags, readonly)) };
    // SAFETY: CPUs are never freed.
    unsafe { &*this }
}

/// Takes emulated broadcasts that wait here, in the middle of a wait.
#[inline]
pub fn poll() {
    super::emulate::poll();
}
