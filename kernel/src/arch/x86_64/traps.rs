//! Exceptions and interrupts: the entry points, and the handler of each vector.

use super::descriptors::{USER_CODE, USER_DATA};
use super::{controller, emulate, interrupts};
use crate::cpu::{self, add};
use crate::region::Access;
use crate::serial::{self, Status};
use crate::{time, trap};
use core::arch::global_asm;
use core::fmt;
use x86_64::registers::control::Cr2;

/// The shootdown interrupt.
pub const SHOOTDOWN: u8 = 0xF0;
/// The broadcast emulation has mail for this CPU.
pub const MAIL: u8 = 0xF1;
/// There is a job for this CPU.
pub const JOB: u8 = 0xF2;
/// The timer of this CPU.
pub const TIMER: u8 = 0xF3;
/// Raised when an interrupt disappeared before it was taken.
pub const SPURIOUS: u8 = 0xFF;

const INTERRUPTS_ON: u64 = 1 << 9;
/// For user code: interrupts on, and the bit that is always set.
const USER_FLAGS: u64 = 0x202;

/// Instructions of the entry and exit code of the shootdown interrupt when it interrupts kernel code, as under the
/// kernel's own workloads; its own measurement excludes them.
pub const STUB_INSTRUCTIONS: u64 = 26;

/// The interrupted context.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Frame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub flags: u64,
    pub rsp: u64,
    pub ss: u64,
}

impl Frame {
    /// Address of the instruction that was interrupted, or that faulted.
    pub fn pc_mut(&mut self) -> &mut u64 {
        &mut self.rip
    }

    /// Whether interrupts were on.
    pub fn interrupts_were_on(&self) -> bool {
        self.flags & INTERRUPTS_ON != 0
    }

    /// Whether user code was interrupted.
    pub fn is_from_user(&self) -> bool {
        self.cs & 3 != 0
    }

    /// User code at `entry`, with that stack.
    pub fn user(entry: u64, stack: u64) -> Frame {
        Frame {
            rip: entry,
            cs: u64::from(USER_CODE),
            flags: USER_FLAGS,
            rsp: stack,
            ss: u64::from(USER_DATA),
            ..Frame::default()
        }
    }

    /// The system call: its number, and its arguments.
    pub fn call(&self) -> (u64, [u64; 6]) {
        (self.rax, [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9])
    }

    /// The return value of the call.
    pub fn set_result(&mut self, value: u64) {
        self.rax = value;
    }

    /// The same, with another stack.
    pub fn with_stack(self, stack: u64) -> Frame {
        Frame { rsp: stack, ..self }
    }

    /// The same, with another thread pointer: no change, because that is a register of its own.
    pub fn with_thread_pointer(self, _base: u64) -> Frame {
        self
    }

    /// The signal with which Linux ends a program for this exception.
    pub fn signal(&self) -> i32 {
        match self.vector {
            0 | 16 | 19 => 8,
            6 => 4,
            1 | 3 => 5,
            _ => 11,
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "exception {} (error {:#x}) at {:#x}",
            self.vector, self.error, self.rip
        )
    }
}

// 256 entry points of 16 bytes: an error code where the processor pushes none, the vector, and a jump to the common
// part. The shootdown interrupt has its own entry.
global_asm!(
    r#"
    .section .text
    .balign 16
    .global trap_entries
trap_entries:
    .set vector, 0
    .rept 256
    .balign 16
    .if vector == {shootdown_vector}
    jmp shootdown_common
    .else
    .if vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30
    .else
    pushq $0
    .endif
    pushq $vector
    jmp trap_common
    .endif
    .set vector, vector + 1
    .endr
    .org trap_entries + 256 * 16 // refused if an entry does not fit

trap_common:
    testb $3, 24(%rsp)
    jz 1f
    swapgs
1:  pushq %rax
    pushq %rbx
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %rbp
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    cld
    movq %rsp, %rdi
    call {trap}
    .global trap_return
trap_return:
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rbp
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rbx
    popq %rax
    addq $16, %rsp
    testb $3, 8(%rsp)
    jz 1f
    swapgs
1:  iretq

// An NMI: a watchdog's, or firmware's. It may come between a swapgs and the way out, so nothing is touched.
    .global nmi_entry
nmi_entry:
    iretq

// Only what a call may change is kept: nothing asks what was interrupted.
shootdown_common:
    testb $3, 8(%rsp)
    jz 1f
    swapgs
1:  pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    cld
    call {shootdown}
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rax
    testb $3, 8(%rsp)
    jz 1f
    swapgs
1:  iretq
"#,
    trap = sym dispatch,
    shootdown = sym shootdown,
    shootdown_vector = const SHOOTDOWN,
    options(att_syntax)
);

/// The shootdown interrupt, with a separate entry, because it requires no work on return to the program.
extern "C" fn shootdown() {
    trap::shootdown(controller::end_of_interrupt);
}

extern "C" fn dispatch(frame: &mut Frame) {
    let cpu = cpu::cpu();
    let entered = time::Own::if_kept();
    match frame.vector as u8 {
        MAIL => {
            add(&cpu.counts.emulation, 1);
            emulate::take_mail(cpu);
            controller::end_of_interrupt();
        }
        TIMER => {
            controller::end_of_interrupt();
            trap::timer(cpu);
        }
        JOB => controller::end_of_interrupt(),
        SPURIOUS => {}
        14 => page_fault(frame),
        6 if !frame.is_from_user() && emulate::invalid_opcode(frame) => {}
        _ => unexpected(frame),
    }
    if frame.vector >= 32
        && let Some(entered) = entered
    {
        trap::handler_over(cpu, &entered);
    }
    // An emulated broadcast requires no work on return to the program.
    if frame.is_from_user() && frame.vector != u64::from(MAIL) {
        // Last: another task may run here meanwhile, and this one continue elsewhere.
        crate::linux::task::before_user();
    }
}

fn page_fault(frame: &mut Frame) {
    let access = Access {
        write: frame.error & 2 != 0,
        execute: frame.error & 16 != 0,
    };
    if !trap::page_fault(frame, Cr2::read_raw(), access) {
        unexpected(frame);
    }
}

fn unexpected(frame: &Frame) {
    if frame.is_from_user() {
        return crate::linux::process::kill_for(frame, Cr2::read_raw());
    }
    interrupts::disable();
    serial::print_last(format_args!(
        "{frame} on CPU {}: address {:#x}, root {:#x}, stack {:#x}",
        cpu::cpu().id,
        Cr2::read_raw(),
        x86_64::registers::control::Cr3::read_raw().0.start_address(),
        frame.rsp,
    ));
    serial::exit(Status::Failure)
}
