//! Exceptions and interrupts: the entry points, and the handler of each.

use super::{console, controller, interrupts, timer, user};
use crate::cpu;
use crate::region::Access;
use crate::serial::{self, Status};
use crate::{time, trap};
use core::arch::global_asm;
use core::fmt;
use shootdown_cpu::Controller;

/// Software-generated interrupts: the shootdown's, and that of a job.
pub const SHOOTDOWN: u8 = 1;
/// There is a job for this CPU.
pub const JOB: u8 = 2;
/// Numbers from here on mean no interrupt.
const NONE: u32 = 1020;

/// Instructions of the entry and exit code of an interrupt of kernel code; its own measurement excludes them.
pub const STUB_INSTRUCTIONS: u64 = 25;

/// Masked interrupts, in SPSR.
const MASKED: u64 = 1 << 7;
/// The exception level, in SPSR.
const LEVEL: u64 = 0xF;

/// The interrupted context.
#[repr(C, align(16))]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Frame {
    pub x: [u64; 31],
    /// For user code.
    pub sp: u64,
    pub pc: u64,
    pub spsr: u64,
    pub syndrome: u64,
    pub address: u64,
}

/// The cause of the kernel entry.
const SYNCHRONOUS: u64 = 0;
/// An interrupt of user code, which was taken and is no shootdown.
const TAKEN: u64 = 1;
const UNEXPECTED: u64 = 2;

impl Frame {
    /// Address of the instruction that was interrupted, or that faulted.
    pub fn pc_mut(&mut self) -> &mut u64 {
        &mut self.pc
    }

    /// Whether interrupts were on.
    pub fn interrupts_were_on(&self) -> bool {
        self.spsr & MASKED == 0
    }

    /// Whether user code was interrupted.
    pub fn is_from_user(&self) -> bool {
        self.spsr & LEVEL == 0
    }

    /// User code at `entry`, with that stack.
    pub fn user(entry: u64, stack: u64) -> Frame {
        Frame {
            sp: stack,
            pc: entry,
            ..Frame::default()
        }
    }

    /// The system call: its number, and its arguments.
    pub fn call(&self) -> (u64, [u64; 6]) {
        let [a, b, c, d, e, f, ..] = self.x;
        user::call(self.x[8], [a, b, c, d, e, f])
    }

    /// The return value of the call.
    pub fn set_result(&mut self, value: u64) {
        self.x[0] = value;
    }

    /// The same, with another stack.
    pub fn with_stack(self, stack: u64) -> Frame {
        Frame { sp: stack, ..self }
    }

    /// The same, with another thread pointer: no change, because that is a register of its own.
    pub fn with_thread_pointer(self, _base: u64) -> Frame {
        self
    }

    /// The signal with which Linux ends a program for this exception.
    pub fn signal(&self) -> i32 {
        match self.class() {
            // Undefined, and a system register that user code may not access.
            0 | 0x18 => 4,
            0x3C => 5,
            0x22 | 0x26 => 7,
            _ => 11,
        }
    }

    fn class(&self) -> u64 {
        self.syndrome >> 26 & 0x3F
    }

    /// The access without a translation, or with one that forbids it.
    fn faulted(&self) -> Option<Access> {
        let execute = matches!(self.class(), 0x20 | 0x21);
        let is_abort = execute || matches!(self.class(), 0x24 | 0x25);
        // Translation, access flag, permission; at any level.
        let is_of_table = matches!(self.syndrome >> 2 & 0xF, 1..=3);
        (is_abort && is_of_table).then_some(Access {
            write: !execute && self.syndrome & 1 << 6 != 0,
            execute,
        })
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "exception class {:#x} (syndrome {:#x}) at {:#x}",
            self.class(),
            self.syndrome,
            self.pc
        )
    }
}

global_asm!(
    r#"
    .macro entry to
    .balign 0x80
    b \to
    .endm

    .section .text
    .balign 2048
    .global trap_vectors
trap_vectors:
    entry 9f                             // the kernel with another stack: never
    entry 9f
    entry 9f
    entry 9f
    entry 1f                             // the kernel
    entry 3f
    entry 9f
    entry 9f
    entry 1f                             // user code of 64 bits
    entry 2f
    entry 9f
    entry 9f
    entry 9f                             // user code of 32 bits: none
    entry 9f
    entry 9f
    entry 9f

    .macro save_all kind
    sub sp, sp, #288
    stp x0, x1, [sp]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x19, [sp, #144]
    stp x20, x21, [sp, #160]
    stp x22, x23, [sp, #176]
    stp x24, x25, [sp, #192]
    stp x26, x27, [sp, #208]
    stp x28, x29, [sp, #224]
    mrs x0, sp_el0
    stp x30, x0, [sp, #240]
    mrs x0, elr_el1
    mrs x1, spsr_el1
    stp x0, x1, [sp, #256]
    mrs x0, esr_el1
    mrs x1, far_el1
    stp x0, x1, [sp, #272]
    mov x0, sp
    mov x1, #\kind
    bl {dispatch}
    b trap_return
    .endm

1:  save_all {synchronous}
9:  save_all {unexpected}

    .global trap_return
trap_return:
    ldp x0, x1, [sp, #256]
    msr elr_el1, x0
    msr spsr_el1, x1
    ldp x30, x0, [sp, #240]
    msr sp_el0, x0
    ldp x28, x29, [sp, #224]
    ldp x26, x27, [sp, #208]
    ldp x24, x25, [sp, #192]
    ldp x22, x23, [sp, #176]
    ldp x20, x21, [sp, #160]
    ldp x18, x19, [sp, #144]
    ldp x16, x17, [sp, #128]
    ldp x14, x15, [sp, #112]
    ldp x12, x13, [sp, #96]
    ldp x10, x11, [sp, #80]
    ldp x8, x9, [sp, #64]
    ldp x6, x7, [sp, #48]
    ldp x4, x5, [sp, #32]
    ldp x2, x3, [sp, #16]
    ldp x0, x1, [sp]
    add sp, sp, #288
    eret

    .macro save_some
    stp x29, x30, [sp, #-176]!
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    stp x8, x9, [sp, #80]
    stp x10, x11, [sp, #96]
    stp x12, x13, [sp, #112]
    stp x14, x15, [sp, #128]
    stp x16, x17, [sp, #144]
    str x18, [sp, #160]
    .endm

    .macro load_some
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldp x8, x9, [sp, #80]
    ldp x10, x11, [sp, #96]
    ldp x12, x13, [sp, #112]
    ldp x14, x15, [sp, #128]
    ldp x16, x17, [sp, #144]
    ldr x18, [sp, #160]
    ldp x29, x30, [sp], #176
    .endm

    // An interrupt of kernel code. Only caller-saved registers are saved: its handlers neither take interrupts nor
    // fault, so the exception registers do not change.
3:  save_some
    bl {take}
    load_some
    eret

    // An interrupt of user code. The same; after a shootdown nothing is left to do before user code continues.
2:  save_some
    bl {take}
    cbnz x0, 4f
    load_some
    eret
4:  load_some
    save_all {taken}
"#,
    dispatch = sym dispatch,
    take = sym take,
    synchronous = const SYNCHRONOUS,
    taken = const TAKEN,
    unexpected = const UNEXPECTED,
);

/// Takes the pending interrupt, if any. Returns whether user code may have to wait: 0 after a shootdown.
extern "C" fn take() -> u64 {
    if trap::acknowledges_late() && controller::pending() == u32::from(SHOOTDOWN) {
        trap::shootdown(|| ());
        Controller.end(Controller.acknowledge());
        return 0;
    }
    let interrupt = Controller.acknowledge();
    if interrupt == u32::from(SHOOTDOWN) {
        trap::shootdown(|| Controller.end(interrupt));
        return 0;
    }
    if interrupt >= NONE {
        return 0;
    }
    let cpu = cpu::cpu();
    let entered = time::Own::if_kept();
    if interrupt == timer::INTERRUPT {
        // It stays pending until it is rearmed or stopped. Not both, because QEMU may end a turn at each.
        if !trap::timer(cpu) {
            timer::arm(0);
        }
    }
    Controller.end(interrupt);
    if let Some(entered) = entered {
        trap::handler_over(cpu, &entered);
    }
    1
}

extern "C" fn dispatch(frame: &mut Frame, why: u64) {
    match why {
        // Another task may run here meanwhile, and this one continue elsewhere.
        TAKEN => crate::linux::task::before_user(),
        SYNCHRONOUS if frame.class() == 0x15 && frame.is_from_user() => crate::linux::calls::call(frame),
        SYNCHRONOUS => {
            let (access, address) = (frame.faulted(), frame.address);
            if !access.is_some_and(|access| trap::page_fault(frame, address, access)) {
                unexpected(frame);
            }
            if frame.is_from_user() {
                crate::linux::task::before_user();
            }
        }
        _ => unexpected(frame),
    }
}

fn unexpected(frame: &Frame) {
    if frame.is_from_user() {
        return crate::linux::process::kill_for(frame, frame.address);
    }
    interrupts::disable();
    if !console::ends() {
        serial::print_last(format_args!(
            "{frame} on CPU {}: address {:#x}, stack {:#x}",
            cpu::cpu().id,
            frame.address,
            core::ptr::from_ref(frame) as u64,
        ));
    }
    serial::exit(Status::Failure)
}
