//! Exceptions and interrupts: the entry points, and what each vector leads to.

use super::cpu::{self, add};
use super::{apic, probe, time};
use crate::region::Access;
use crate::serial::{self, Status};
use core::arch::global_asm;
use x86_64::registers::control::Cr2;

/// The shootdown interrupt.
pub const SHOOTDOWN: u8 = 0xF0;
/// The emulation of a broadcast has mail for this CPU.
pub const MAIL: u8 = 0xF1;
/// There is a job for this CPU.
pub const JOB: u8 = 0xF2;
/// The timer of this CPU.
pub const TIMER: u8 = 0xF3;
/// Raised when an interrupt went away before it was taken.
pub const SPURIOUS: u8 = 0xFF;

const INTERRUPTS_ON: u64 = 1 << 9;

/// What was interrupted.
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
    /// Whether interrupts were on.
    pub fn interrupts_were_on(&self) -> bool {
        self.flags & INTERRUPTS_ON != 0
    }

    /// Whether user code was interrupted.
    pub fn is_from_user(&self) -> bool {
        self.cs & 3 != 0
    }
}

// 256 entry points of 16 bytes: an error code where the processor pushes none, the vector, and on to the common part.
// The shootdown interrupt has a part of its own.
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
    trap = sym trap,
    shootdown = sym shootdown,
    shootdown_vector = const SHOOTDOWN,
    options(att_syntax)
);

/// The shootdown interrupt, which has an entry of its own: it gives the program nothing to do.
extern "C" fn shootdown() {
    let cpu = cpu::cpu();
    let entered = time::Own::if_kept();
    add(&cpu.counts.taken, 1);
    // SAFETY: an interrupt gate, so interrupts are off, and this CPU goes on only when it returns. The local APIC takes
    // a pending interrupt into service when it delivers it: one that is sent meanwhile comes again.
    unsafe { crate::engine().on_ipi() };
    apic::end_of_interrupt();
    if let Some(entered) = entered {
        let spent = handler_over(cpu, &entered);
        add(&cpu.counts.taken_ticks, spent);
    }
}

/// A handler of an interrupt that began then is over: takes its time off the account of what it interrupted.
fn handler_over(cpu: &cpu::Cpu, entered: &time::Own) -> u64 {
    let spent = entered.elapsed(cpu);
    // After `elapsed`, which takes off what nested handlers have added here.
    cpu.in_handlers.set(cpu.in_handlers.get() + spent);
    crate::measure::handler_took(cpu, entered);
    spent
}

extern "C" fn trap(frame: &mut Frame) {
    let cpu = cpu::cpu();
    let entered = time::Own::if_kept();
    match frame.vector as u8 {
        MAIL => {
            add(&cpu.counts.emulation, 1);
            crate::emulate::take_mail(cpu);
            apic::end_of_interrupt();
        }
        TIMER => {
            apic::end_of_interrupt();
            // Walks mask interrupts: this CPU is in none.
            crate::engine().quiescent();
            crate::jitter::rearm(cpu);
            crate::linux::task::tick(cpu);
        }
        JOB => apic::end_of_interrupt(),
        SPURIOUS => {}
        14 => page_fault(frame),
        6 if !frame.is_from_user() && crate::emulate::invalid_opcode(frame) => {}
        _ => unexpected(frame),
    }
    if frame.vector >= 32
        && let Some(entered) = entered
    {
        handler_over(cpu, &entered);
    }
    // An emulated broadcast gives the program nothing to do.
    if frame.is_from_user() && frame.vector != u64::from(MAIL) {
        // Last: another task may run here meanwhile, and this one go on elsewhere.
        crate::linux::task::before_user();
    }
}

fn page_fault(frame: &mut Frame) {
    let address = Cr2::read_raw();
    let access = Access {
        write: frame.error & 2 != 0,
        execute: frame.error & 16 != 0,
    };
    let cpu = cpu::cpu();
    add(&cpu.counts.faults, 1);
    if let Some(space) = cpu.space.get()
        && address < crate::memory::USER_END
        && !cpu.faults_fail.get()
    {
        if frame.is_from_user() {
            crate::linux::inside::begin();
        }
        // From here on locks may be taken, so others must be answered; and the thread may sleep, and go on elsewhere.
        let masked = frame.interrupts_were_on();
        if masked {
            x86_64::instructions::interrupts::enable();
        }
        let served = space.fault(address, access);
        if masked {
            x86_64::instructions::interrupts::disable();
        }
        if served {
            return;
        }
    }
    if !probe::recover(frame) {
        unexpected(frame);
    }
}

fn unexpected(frame: &Frame) {
    if frame.is_from_user() {
        return crate::linux::process::kill_for(frame, Cr2::read_raw());
    }
    x86_64::instructions::interrupts::disable();
    serial::print_last(format_args!(
        "exception {} (error {:#x}) at {:#x} on CPU {}: address {:#x}, root {:#x}, stack {:#x}",
        frame.vector,
        frame.error,
        frame.rip,
        cpu::cpu().id,
        Cr2::read_raw(),
        x86_64::registers::control::Cr3::read_raw().0.start_address(),
        frame.rsp,
    ));
    serial::exit(Status::Failure)
}
