//! Transitions between user code and the kernel: user code's registers, the state of the floating-point unit, and the
//! switch between kernel stacks. User code enters through `traps.rs`.

use core::arch::{asm, global_asm};

/// Words that `linux_switch` saves on a stack.
pub const SAVED: usize = 12;
/// The one of them that is the return address.
pub const RETURN: usize = 11;
/// The ELF machine number of programs that run here.
pub const ELF_MACHINE: u16 = elf::abi::EM_AARCH64;

// (address for the old stack pointer, new stack pointer): continues where the new stack was left.
global_asm!(
    r#"
    .section .text
    .global linux_switch
linux_switch:
    sub sp, sp, #96
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    add sp, sp, #96
    ret

    .arch_extension fp
    .arch_extension simd
    .global fpu_save
fpu_save:
    stp q0, q1, [x0]
    stp q2, q3, [x0, #32]
    stp q4, q5, [x0, #64]
    stp q6, q7, [x0, #96]
    stp q8, q9, [x0, #128]
    stp q10, q11, [x0, #160]
    stp q12, q13, [x0, #192]
    stp q14, q15, [x0, #224]
    stp q16, q17, [x0, #256]
    stp q18, q19, [x0, #288]
    stp q20, q21, [x0, #320]
    stp q22, q23, [x0, #352]
    stp q24, q25, [x0, #384]
    stp q26, q27, [x0, #416]
    stp q28, q29, [x0, #448]
    stp q30, q31, [x0, #480]
    mrs x1, fpcr
    mrs x2, fpsr
    add x0, x0, #512
    stp x1, x2, [x0]
    ret
    .global fpu_load
fpu_load:
    ldp q0, q1, [x0]
    ldp q2, q3, [x0, #32]
    ldp q4, q5, [x0, #64]
    ldp q6, q7, [x0, #96]
    ldp q8, q9, [x0, #128]
    ldp q10, q11, [x0, #160]
    ldp q12, q13, [x0, #192]
    ldp q14, q15, [x0, #224]
    ldp q16, q17, [x0, #256]
    ldp q18, q19, [x0, #288]
    ldp q20, q21, [x0, #320]
    ldp q22, q23, [x0, #352]
    ldp q24, q25, [x0, #384]
    ldp q26, q27, [x0, #416]
    ldp q28, q29, [x0, #448]
    ldp q30, q31, [x0, #480]
    add x0, x0, #512
    ldp x1, x2, [x0]
    msr fpcr, x1
    msr fpsr, x2
    ret
"#
);

unsafe extern "C" {
    fn fpu_save(state: *mut u128);
    fn fpu_load(state: *const u128);
}

/// Lets user code on this CPU use the floating-point unit. Once on each CPU.
pub fn set_up() {
    // SAFETY: CPACR_EL1.FPEN. The kernel is built without floating point.
    unsafe { asm!("msr cpacr_el1, {}", "isb", in(reg) 3_u64 << 20, options(nostack)) };
}

/// Sets the thread pointer of user code (TPIDR_EL0).
pub fn set_thread_pointer(base: u64) {
    // SAFETY: the kernel does not use it.
    unsafe { asm!("msr tpidr_el0, {}", in(reg) base, options(nostack)) };
}

/// The thread pointer of the running task, which user code may have changed.
pub fn thread_pointer(_set: u64) -> u64 {
    let base;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) base, options(nostack, nomem)) };
    base
}

/// State of the floating-point unit: 32 registers, then FPCR and FPSR.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct Fpu([u128; 33]);

impl Fpu {
    /// The initial state of a program.
    pub fn new() -> Fpu {
        Fpu([0; 33])
    }

    /// Saves this CPU's state.
    pub fn save(&mut self) {
        // SAFETY: the size matches the stores.
        unsafe { fpu_save(self.0.as_mut_ptr()) };
    }

    /// Loads it into this CPU. The kernel itself uses none of it.
    pub fn load(&self) {
        // SAFETY: the size matches the loads.
        unsafe { fpu_load(self.0.as_ptr()) };
    }
}

pub use crate::arch::generic_calls::call;
