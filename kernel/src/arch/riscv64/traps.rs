//! Exceptions and interrupts: the entry point, and the handler of each cause.

use super::cpu::Local;
use super::{interrupts, timer, user};
use crate::cpu;
use crate::hooks::Hooks;
use crate::region::Access;
use crate::serial::{self, Status};
use crate::{time, trap};
use core::arch::global_asm;
use core::fmt;
use core::sync::atomic::Ordering;
use shootdown_cpu::Controller;

/// Bits of the interrupt's reason: the shootdown.
pub const SHOOTDOWN: u8 = 0;
/// There is a job for this CPU.
pub const JOB: u8 = 1;

/// Instructions of the entry and exit code of an interrupt of kernel code; its own measurement excludes them.
pub const STUB_INSTRUCTIONS: u64 = 43;

/// Bits of sstatus: interrupts were on; the kernel was interrupted; user pages may be touched; the floating-point unit
/// is on; user code of 64 bits.
const WERE_ON: u64 = 1 << 5;
const FROM_KERNEL: u64 = 1 << 8;
const TOUCHES_USER: u64 = 1 << 18;
const FLOATS: u64 = 3 << 13;
const USER_64: u64 = 2 << 32;

/// Causes.
const IS_INTERRUPT: u64 = 1 << 63;
const SOFTWARE: u64 = IS_INTERRUPT | 1;
const TIMER: u64 = IS_INTERRUPT | 5;
const CALL: u64 = 8;
const FETCH_FAULT: u64 = 12;
const LOAD_FAULT: u64 = 13;
const STORE_FAULT: u64 = 15;

/// The interrupted context.
#[repr(C, align(16))]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Frame {
    /// Registers by their numbers; the first is 0.
    pub x: [u64; 32],
    pub pc: u64,
    pub status: u64,
    pub cause: u64,
    pub value: u64,
}

impl Frame {
    /// Address of the instruction that was interrupted, or that faulted.
    pub fn pc_mut(&mut self) -> &mut u64 {
        &mut self.pc
    }

    /// Whether interrupts were on.
    pub fn interrupts_were_on(&self) -> bool {
        self.status & WERE_ON != 0
    }

    /// Whether user code was interrupted.
    pub fn is_from_user(&self) -> bool {
        self.status & FROM_KERNEL == 0
    }

    /// User code at `entry`, with that stack.
    pub fn user(entry: u64, stack: u64) -> Frame {
        let mut frame = Frame {
            pc: entry,
            status: WERE_ON | TOUCHES_USER | FLOATS | USER_64,
            ..Frame::default()
        };
        frame.x[2] = stack;
        frame
    }

    /// The system call: its number, and its arguments.
    pub fn call(&self) -> (u64, [u64; 6]) {
        let [a, b, c, d, e, f] = [10, 11, 12, 13, 14, 15].map(|register: usize| self.x[register]);
        user::call(self.x[17], [a, b, c, d, e, f])
    }

    /// The return value of the call.
    pub fn set_result(&mut self, value: u64) {
        self.x[10] = value;
    }

    /// The same, with another stack.
    pub fn with_stack(mut self, stack: u64) -> Frame {
        self.x[2] = stack;
        self
    }

    /// The same, with another thread pointer: TP.
    pub fn with_thread_pointer(mut self, base: u64) -> Frame {
        self.x[4] = base;
        self
    }

    /// The signal with which Linux ends a program for this exception.
    pub fn signal(&self) -> i32 {
        match self.cause {
            2 => 4,
            3 => 5,
            0 | 4 | 6 => 7,
            _ => 11,
        }
    }

    /// The access without a translation, or with one that forbids it.
    fn faulted(&self) -> Option<Access> {
        let access = |write, execute| Some(Access { write, execute });
        match self.cause {
            FETCH_FAULT => access(false, true),
            LOAD_FAULT => access(false, false),
            STORE_FAULT => access(true, false),
            _ => None,
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exception {} at {:#x}", self.cause, self.pc)
    }
}

// In user code SSCRATCH is the CPU's structure. In the kernel it is 0, and TP is the structure.
global_asm!(
    r#"
    .section .text
    .balign 4
    .global trap_entry
trap_entry:
    csrrw tp, sscratch, tp
    bnez tp, 2f
    csrrw tp, sscratch, zero             # the kernel was interrupted: as it was
    addi sp, sp, -128
    sd a0, (sp)
    csrr a0, scause
    bltz a0, 1f
    ld a0, (sp)
    addi sp, sp, 128 - 288
    sd x1, 8(sp)
    sd x5, 40(sp)
    addi x5, sp, 288
    sd x5, 16(sp)
    sd x4, 32(sp)
    j 3f

    # Saves and loads what a call may change, but A0.
    .macro save_some
    sd ra, 8(sp)
    sd t1, 16(sp)
    sd t2, 24(sp)
    sd t3, 32(sp)
    sd t4, 40(sp)
    sd t5, 48(sp)
    sd t6, 56(sp)
    sd t0, 64(sp)
    sd a1, 72(sp)
    sd a2, 80(sp)
    sd a3, 88(sp)
    sd a4, 96(sp)
    sd a5, 104(sp)
    sd a6, 112(sp)
    sd a7, 120(sp)
    .endm
    .macro load_some
    ld ra, 8(sp)
    ld t1, 16(sp)
    ld t2, 24(sp)
    ld t3, 32(sp)
    ld t4, 40(sp)
    ld t5, 48(sp)
    ld t6, 56(sp)
    ld t0, 64(sp)
    ld a1, 72(sp)
    ld a2, 80(sp)
    ld a3, 88(sp)
    ld a4, 96(sp)
    ld a5, 104(sp)
    ld a6, 112(sp)
    ld a7, 120(sp)
    .endm

    # An interrupt of kernel code. Only what a call may change is saved: its handlers neither take interrupts nor fault,
    # so the registers of the exception stay as they are.
1:  save_some
    call {take}
    load_some
    ld a0, (sp)
    addi sp, sp, 128
    sret

    # User code. SSCRATCH keeps its TP.
2:  sd sp, {user_stack}(tp)
    ld sp, {kernel_stack}(tp)
    addi sp, sp, -128
    sd a0, (sp)
    csrr a0, scause
    bgez a0, 6f
    # An interrupt: as above. After a shootdown nothing is left to do before user code continues.
    save_some
    call {take}
    bnez a0, 5f
    load_some
    ld a0, (sp)
    ld sp, {user_stack}(tp)
    csrrw tp, sscratch, tp
    sret
5:  load_some                            # `dispatch` does what is left
6:  ld a0, (sp)
    addi sp, sp, 128 - 288
    sd x1, 8(sp)
    sd x5, 40(sp)
    ld x5, {user_stack}(tp)
    sd x5, 16(sp)
    csrrw x5, sscratch, zero
    sd x5, 32(sp)
3:  sd x3, 24(sp)
    sd x6, 48(sp)
    sd x7, 56(sp)
    sd x8, 64(sp)
    sd x9, 72(sp)
    sd x10, 80(sp)
    sd x11, 88(sp)
    sd x12, 96(sp)
    sd x13, 104(sp)
    sd x14, 112(sp)
    sd x15, 120(sp)
    sd x16, 128(sp)
    sd x17, 136(sp)
    sd x18, 144(sp)
    sd x19, 152(sp)
    sd x20, 160(sp)
    sd x21, 168(sp)
    sd x22, 176(sp)
    sd x23, 184(sp)
    sd x24, 192(sp)
    sd x25, 200(sp)
    sd x26, 208(sp)
    sd x27, 216(sp)
    sd x28, 224(sp)
    sd x29, 232(sp)
    sd x30, 240(sp)
    sd x31, 248(sp)
    csrr t0, sepc
    csrr t1, sstatus
    csrr t2, scause
    csrr t3, stval
    sd t0, 256(sp)
    sd t1, 264(sp)
    sd t2, 272(sp)
    sd t3, 280(sp)
    mv a0, sp
    call {dispatch}
    .global trap_return
trap_return:
    ld t0, 256(sp)
    ld t1, 264(sp)
    csrw sepc, t0
    csrw sstatus, t1
    andi t1, t1, 1 << 8
    bnez t1, 4f
    addi t0, sp, 288                     # user code: the stack for its next entry, and the way to it
    sd t0, {kernel_stack}(tp)
    csrw sscratch, tp
    ld x4, 32(sp)
4:  ld x1, 8(sp)
    ld x3, 24(sp)
    ld x5, 40(sp)
    ld x6, 48(sp)
    ld x7, 56(sp)
    ld x8, 64(sp)
    ld x9, 72(sp)
    ld x10, 80(sp)
    ld x11, 88(sp)
    ld x12, 96(sp)
    ld x13, 104(sp)
    ld x14, 112(sp)
    ld x15, 120(sp)
    ld x16, 128(sp)
    ld x17, 136(sp)
    ld x18, 144(sp)
    ld x19, 152(sp)
    ld x20, 160(sp)
    ld x21, 168(sp)
    ld x22, 176(sp)
    ld x23, 184(sp)
    ld x24, 192(sp)
    ld x25, 200(sp)
    ld x26, 208(sp)
    ld x27, 216(sp)
    ld x28, 224(sp)
    ld x29, 232(sp)
    ld x30, 240(sp)
    ld x31, 248(sp)
    ld x2, 16(sp)
    sret
"#,
    dispatch = sym dispatch,
    take = sym take,
    kernel_stack = const Local::KERNEL_STACK,
    user_stack = const Local::USER_STACK,
);

/// Takes an interrupt. Returns whether user code may have to wait: 0 after a shootdown.
extern "C" fn take(cause: u64) -> u64 {
    if cause != SOFTWARE {
        return take_other(cause);
    }
    let late = trap::acknowledges_late();
    if !late {
        // Cleared, then checked: a request after the check interrupts again.
        Controller::Sbi.acknowledge();
    }
    // Acquire: pairs with the release in `controller::send`.
    let pending_ipis = cpu::cpu().local.pending_ipis.swap(0, Ordering::AcqRel);
    if late || pending_ipis != 1 << SHOOTDOWN {
        return take_several(pending_ipis, late);
    }
    // A shootdown alone, as usual: no value is kept across it, so no register is saved for one.
    serve();
    0
}

fn serve() {
    Hooks::serve_refused();
    trap::shootdown(|| ());
}

#[inline(never)]
fn take_several(pending_ipis: u64, late: bool) -> u64 {
    if pending_ipis & 1 << SHOOTDOWN != 0 {
        serve();
    }
    if late {
        Controller::Sbi.acknowledge();
    }
    u64::from(pending_ipis & 1 << JOB != 0)
}

// Not inlined: the registers that it needs would be saved by every interrupt.
#[inline(never)]
fn take_other(cause: u64) -> u64 {
    if cause != TIMER {
        return 0;
    }
    let (cpu, entered) = (cpu::cpu(), time::Own::if_kept());
    // It stays pending until it is rearmed or stopped. Not both: QEMU ends a turn at each. After the first on every
    // hart, a hart that waits in the firmware would have a turn of 100 ms.
    if !trap::timer(cpu) {
        timer::arm(0);
    }
    if let Some(entered) = entered {
        trap::handler_over(cpu, &entered);
    }
    1
}

extern "C" fn dispatch(frame: &mut Frame) {
    if frame.cause & IS_INTERRUPT != 0 {
        // Of user code, and already taken.
    } else if frame.cause == CALL {
        // After the instruction.
        frame.pc += 4;
        return crate::linux::calls::call(frame);
    } else {
        let (access, address) = (frame.faulted(), frame.value);
        if !access.is_some_and(|access| trap::page_fault(frame, address, access)) {
            unexpected(frame);
        }
    }
    if frame.is_from_user() {
        // Last: another task may run here meanwhile, and this one continue elsewhere.
        crate::linux::task::before_user();
    }
}

fn unexpected(frame: &Frame) {
    if frame.is_from_user() {
        return crate::linux::process::kill_for(frame, frame.value);
    }
    interrupts::disable();
    serial::print_last(format_args!(
        "{frame} on CPU {}: address {:#x}, stack {:#x}",
        cpu::cpu().id,
        frame.value,
        frame.x[2],
    ));
    serial::exit(Status::Failure)
}
