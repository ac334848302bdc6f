//! Transitions between user code and the kernel: SYSCALL, its registers, the state of the floating-point unit, and the
//! switch between kernel stacks.

use super::descriptors::{USER_CODE, USER_DATA};
use core::arch::{asm, global_asm};
use x86_64::registers::control::{Cr4, Cr4Flags};
use x86_64::registers::model_specific::Msr;

/// Words that `linux_switch` saves on a stack.
pub const SAVED: usize = 7;
/// The one of them that is the return address.
pub const RETURN: usize = 6;
/// The ELF machine number of programs that run here.
pub const ELF_MACHINE: u16 = elf::abi::EM_X86_64;

/// Model-specific registers.
const STAR: u32 = 0xC000_0081;
const LSTAR: u32 = 0xC000_0082;
const FMASK: u32 = 0xC000_0084;
const FS_BASE: u32 = 0xC000_0100;

/// Flags that are cleared on kernel entry: interrupts, direction, single step, alignment checks, nested task (with
/// which IRET faults: a switched-to task could not return to its user code).
const MASKED: u64 = 1 << 9 | 1 << 10 | 1 << 8 | 1 << 18 | 1 << 14;

/// Selector of kernel code; that of kernel data follows it.
const KERNEL_CODE: u64 = 0x08;

// The frame is that of `trap_common`, so that both entries look alike to readers of it.
global_asm!(
    r#"
    .section .text
    .balign 16
    .global linux_syscall
linux_syscall:
    swapgs
    mov gs:[16], rsp
    mov rsp, gs:[8]
    push {user_data}
    push gs:[16]
    push r11
    push {user_code}
    push rcx
    push 0
    push 256                             # no vector: a system call
    push rax
    push rbx
    push rcx
    push rdx
    push rsi
    push rdi
    push rbp
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    mov rdi, rsp
    call {call}
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rbp
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rbx
    pop rax
    add rsp, 16
    pop rcx
    add rsp, 8
    pop r11
    pop rsp
    swapgs
    sysretq

    # (place of the old stack pointer, new stack pointer): goes on where the new stack was left.
    .global linux_switch
linux_switch:
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    mov [rdi], rsp
    mov rsp, rsi
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
"#,
    user_data = const USER_DATA as u64,
    user_code = const USER_CODE as u64,
    call = sym crate::linux::calls::call,
);

unsafe extern "C" {
    fn linux_syscall();
}

/// Lets user code on this CPU make system calls and use SSE. Once on each CPU.
pub fn set_up() {
    // SAFETY: the entry point follows SYSCALL's conventions; the selectors are those of our table.
    unsafe {
        Msr::new(STAR).write((u64::from(USER_DATA) - 8) << 48 | KERNEL_CODE << 32);
        Msr::new(LSTAR).write(linux_syscall as *const () as u64);
        Msr::new(FMASK).write(MASKED);
        Cr4::update(|flags| flags.insert(Cr4Flags::OSFXSR | Cr4Flags::OSXMMEXCPT_ENABLE));
    }
}

/// Sets the thread pointer of user code (FS).
pub fn set_thread_pointer(base: u64) {
    // SAFETY: the kernel does not use FS; the caller has checked that the address is canonical.
    unsafe { Msr::new(FS_BASE).write(base) };
}

/// The thread pointer of the running task: the one that was set, because user code cannot change it.
pub fn thread_pointer(set: u64) -> u64 {
    set
}

/// State of the floating-point unit and SSE, in FXSAVE's layout.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct Fpu([u8; 512]);

impl Fpu {
    /// The initial state of a program: exceptions masked, full precision.
    pub fn new() -> Fpu {
        let mut state = [0; 512];
        state[..2].copy_from_slice(&0x037F_u16.to_le_bytes());
        state[24..28].copy_from_slice(&0x1F80_u32.to_le_bytes());
        Fpu(state)
    }

    /// Saves this CPU's state.
    pub fn save(&mut self) {
        // SAFETY: 512 bytes, aligned.
        unsafe { asm!("fxsave64 [{}]", in(reg) self.0.as_mut_ptr(), options(nostack, preserves_flags)) };
    }

    /// Loads it into this CPU. The kernel itself uses none of it.
    pub fn load(&self) {
        // SAFETY: 512 bytes, aligned, as saved or as made by `new`.
        unsafe { asm!("fxrstor64 [{}]", in(reg) self.0.as_ptr(), options(nostack, preserves_flags)) };
    }
}
