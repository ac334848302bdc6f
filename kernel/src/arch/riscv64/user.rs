//! Transitions between user code and the kernel: the state of the floating-point unit, and the switch between kernel
//! stacks. User code enters through `traps.rs`.

use core::arch::{asm, global_asm};

pub use crate::arch::generic_calls::call;

/// Words that `linux_switch` saves on a stack.
pub const SAVED: usize = 14;
/// The one of them that is the return address.
pub const RETURN: usize = 0;
/// The ELF machine number of programs that run here.
pub const ELF_MACHINE: u16 = elf::abi::EM_RISCV;

// (address for the old stack pointer, new stack pointer): continues where the new stack was left.
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
    .irp register, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    fsd f\register, (a0)
    addi a0, a0, 8
    .endr
    frcsr a1
    sd a1, (a0)
    ret
    .global fpu_load
fpu_load:
    .irp register, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    fld f\register, (a0)
    addi a0, a0, 8
    .endr
    ld a1, (a0)
    fscsr a1
    ret
    .option pop
"#
);

unsafe extern "C" {
    fn fpu_save(state: *mut u64);
    fn fpu_load(state: *const u64);
}

/// Lets the kernel save and load user code's floating-point registers. Once on each CPU.
pub fn set_up() {
    // SAFETY: sstatus.FS. The kernel is built without floating point.
    unsafe { asm!("csrs sstatus, {}", in(reg) 3_u64 << 13, options(nostack)) };
}

/// Sets the thread pointer of user code: a no-op, because TP is in the frame like other registers.
pub fn set_thread_pointer(_base: u64) {}

/// The thread pointer of the running task: the one that was set, because TP is in the frame.
pub fn thread_pointer(set: u64) -> u64 {
    set
}

/// State of the floating-point unit: 32 registers, then FCSR.
#[derive(Clone)]
pub struct Fpu([u64; 33]);

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
