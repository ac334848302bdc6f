//! The way between user code and the kernel: the state of the floating-point unit, and the switch from one kernel stack
//! to another. User code comes in by `traps.rs`.

use super::traps::Frame;
use core::arch::{asm, global_asm};

pub use crate::arch::generic_calls::call_number;

/// Programs that run here, by the number in their ELF header.
pub const ELF_MACHINE: u16 = elf::abi::EM_RISCV;

// (place of the old stack pointer, new stack pointer): goes on where the new stack was left.
global_asm!(
    r#"
    .section .text
    .global linux_switch
linux_switch:
    addi sp, sp, -112
    sd ra, (sp)
    sd s0, 8(sp)
    sd s1, 16(sp)
    sd s2, 24(sp)
    sd s3, 32(sp)
    sd s4, 40(sp)
    sd s5, 48(sp)
    sd s6, 56(sp)
    sd s7, 64(sp)
    sd s8, 72(sp)
    sd s9, 80(sp)
    sd s10, 88(sp)
    sd s11, 96(sp)
    sd sp, (a0)
    mv sp, a1
    ld ra, (sp)
    ld s0, 8(sp)
    ld s1, 16(sp)
    ld s2, 24(sp)
    ld s3, 32(sp)
    ld s4, 40(sp)
    ld s5, 48(sp)
    ld s6, 56(sp)
    ld s7, 64(sp)
    ld s8, 72(sp)
    ld s9, 80(sp)
    ld s10, 88(sp)
    ld s11, 96(sp)
    addi sp, sp, 112
    ret

    .option push
    .option arch, +f, +d
    .global fpu_save
fpu_save:
    .set number, 0
    .irp register, f0,f1,f2,f3,f4,f5,f6,f7,f8,f9,f10,f11,f12,f13,f14,f15,f16,f17,f18,f19,f20,f21,f22,f23,f24,f25,f26,f27,f28,f29,f30,f31
    fsd \register, (a0)
    addi a0, a0, 8
    .endr
    frcsr a1
    sd a1, (a0)
    ret
    .global fpu_load
fpu_load:
    .irp register, f0,f1,f2,f3,f4,f5,f6,f7,f8,f9,f10,f11,f12,f13,f14,f15,f16,f17,f18,f19,f20,f21,f22,f23,f24,f25,f26,f27,f28,f29,f30,f31
    fld \register, (a0)
    addi a0, a0, 8
    .endr
    ld a1, (a0)
    fscsr a1
    ret
    .option pop
"#
);

unsafe extern "C" {
    fn linux_switch(old: *mut u64, new: u64);
    fn trap_return();
    fn fpu_save(state: *mut u64);
    fn fpu_load(state: *const u64);
}

/// Lets the kernel save and load user code's floating-point registers. Once on each CPU.
pub fn set_up() {
    // SAFETY: sstatus.FS. The kernel is built without floating point.
    unsafe { asm!("csrs sstatus, {}", in(reg) 3_u64 << 13, options(nostack)) };
}

/// Where user code finds its thread: in TP, which is a register like others, and in the frame.
pub fn set_thread_pointer(_base: u64) {}

/// State of the floating-point unit: 32 registers, then FCSR.
#[derive(Clone)]
pub struct Fpu([u64; 33]);

impl Fpu {
    /// As a program finds it.
    pub fn new() -> Fpu {
        Fpu([0; 33])
    }

    /// Takes down what this CPU has.
    pub fn save(&mut self) {
        // SAFETY: as many words as are written.
        unsafe { fpu_save(self.0.as_mut_ptr()) };
    }

    /// Gives it to this CPU. The kernel itself uses none of it.
    pub fn load(&self) {
        // SAFETY: as many words as are read.
        unsafe { fpu_load(self.0.as_ptr()) };
    }
}

/// Goes on with the stack `new`, leaving this one in `old`.
///
/// # Safety
/// `new` was left by this function or made by [`first_stack`], and nobody else goes on with it. Interrupts are off.
pub unsafe fn switch(old: *mut u64, new: u64) {
    // SAFETY: the caller's promise.
    unsafe { linux_switch(old, new) };
}

/// Prepares the kernel stack that ends at `top` so that a switch to it enters user code with `frame`.
pub fn first_stack(top: u64, frame: Frame) -> u64 {
    let place = top - size_of::<Frame>() as u64;
    let words = place - 14 * 8;
    let mut registers = [0_u64; 14];
    // RA: where to go on.
    registers[0] = trap_return as *const () as u64;
    // SAFETY: a stack that nobody uses, larger than this by far, and aligned.
    unsafe {
        (place as *mut Frame).write(frame);
        (words as *mut [u64; 14]).write(registers);
    }
    words
}
