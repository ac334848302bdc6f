//! The first instructions of each hart: from OpenSBI's supervisor mode, tables off, to Rust in the upper half.
//!
//! The table made here maps the first 4 GiB of physical memory twice, by pages of 1 GiB: at
//! [`DIRECT_MAP`](crate::memory::DIRECT_MAP), and at the end of the address space, where the kernel is linked. Nothing
//! is identity-mapped: the load of satp faults, and the trap vector is where the kernel continues.

use super::format::Entry;
use crate::arch::device_tree::Tree;
use crate::cpu::{Cpu, controller_id};
use crate::memory::{Frame, KERNEL_BASE};
use crate::serial;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use shootdown_cpu::sbi;

pub use crate::arch::device_tree::BootInfo;

/// Hart state management: "start" and "stop".
const START: (u64, u64) = (0x0048_534D, 0);
const STOP: (u64, u64) = (0x0048_534D, 1);

/// The stack of the hart that is starting, and its CPU number.
static STACK: AtomicU64 = AtomicU64::new(0);
static ID: AtomicUsize = AtomicUsize::new(0);

global_asm!(
    r#"
    .set PAGE, 0xEF                      # dirty, accessed, global, to be executed, written and read

    .section .data
    .balign 4096
boot_root:
    .skip 256 * 8
    .quad 0x00000000 + PAGE, 0x10000000 + PAGE, 0x20000000 + PAGE, 0x30000000 + PAGE
    .skip 248 * 8
    .quad 0x00000000 + PAGE, 0x10000000 + PAGE, 0x20000000 + PAGE, 0x30000000 + PAGE

entered: .word 0

    .section .bss
    .balign 4096
boot_root_48: .skip 4096                 # root for Sv48: its last entry is a link to the other
boot_stack: .skip 65536
boot_stack_top:

    .section .text.boot, "ax"
    .global start
start:
    lla t0, entered                      # only the first hart may pass: see `other`
    li t1, 1
    amoswap.w t1, t1, (t0)
    bnez t1, start_other
    lla t0, first_here_word
    j 1f
    .global start_other
start_other:
    lla t0, other_here_word
1:  ld t0, (t0)
    lla t1, boot_root
    srli t1, t1, 12
    li t2, 8 << 60                       # Sv39
    or t1, t1, t2
    csrw stvec, t0
    sfence.vma
    csrw satp, t1                        # the next instruction is not mapped: to stvec, linked above
    jr t0
    .balign 4
first_here:
    sfence.vma
    lla sp, boot_stack_top
    call boot_registers
    call {first}
    unimp
    .balign 4
other_here:
    sfence.vma
    lla t0, {stack}
    ld sp, (t0)
    call boot_registers
    call {other}
    unimp
boot_registers:
    csrw sscratch, zero
    lla t0, trap_entry
    csrw stvec, t0
    li t0, 1 << 18                       # SUM: user pages may be touched
    csrs sstatus, t0
    li t0, 0x22                          # software and timer interrupts
    csrw sie, t0
    ret
    .balign 8
first_here_word: .quad first_here
other_here_word: .quad other_here
"#,
    first = sym first,
    other = sym other,
    stack = sym STACK,
);

unsafe extern "C" {
    static boot_root: u8;
    static boot_root_48: u8;
    fn start_other();
}

/// The first hart, as OpenSBI chooses, enters here, on the boot stack.
extern "C" fn first(hart: u64, tree: u64) -> ! {
    serial::set_up();
    let Some(tree) = Tree::at(tree) else {
        serial::give_up(format_args!(
            "no device tree at {tree:#x}, where the firmware says it is (A1); start it with OpenSBI"
        ))
    };
    crate::first_cpu(&BootInfo::read(tree, hart))
}

/// A hart that was started. OpenSBI 1.1 marks it as started before it stores where it starts, and an earlier interrupt
/// ends its sleep: then it enters where the first hart did, with the arguments of that one.
extern "C" fn other() -> ! {
    crate::other_cpu(ID.load(Ordering::Acquire))
}

/// Levels of tables in the mode in use.
static LEVELS: AtomicU32 = AtomicU32::new(3);

/// See [`LEVELS`].
#[inline]
pub fn levels() -> u32 {
    LEVELS.load(Ordering::Relaxed)
}

/// Physical address of the kernel's own root: the boot table in Sv39, a table above it in Sv48.
pub fn root() -> u64 {
    let root = if levels() == 4 {
        &raw const boot_root_48
    } else {
        &raw const boot_root
    };
    root as u64 - KERNEL_BASE
}

/// Selects the paging mode, `sv39` or `sv48`. On the first hart, before the features are read.
///
/// # Errors
/// The hart does not have it.
pub fn set_paging(mode: &str) -> Result<(), &'static str> {
    match mode {
        "sv39" => return Ok(()),
        "sv48" => {}
        _ => return Err("no such mode: there are sv39 and sv48"),
    }
    let link = Entry::table(Frame::at(root()));
    LEVELS.store(4, Ordering::Relaxed);
    Frame::at(root()).words()[511].store(link.0, Ordering::Release);
    if load_root() {
        Ok(())
    } else {
        Err("this hart has no Sv48; leave the word out")
    }
}

/// Loads the kernel's root in the mode in use, which maps the kernel at the same addresses as the other. Returns
/// whether the hart has that mode.
pub fn load_root() -> bool {
    // Sv39 is 8, Sv48 is 9.
    let satp = u64::from(levels() + 5) << 60 | root() >> 12;
    let now: u64;
    // SAFETY: see above. A mode that the hart does not have changes nothing.
    unsafe {
        core::arch::asm!("csrw satp, {}", "sfence.vma", "csrr {}, satp", in(reg) satp, lateout(reg) now,
            options(nostack));
    }
    now == satp
}

/// Physical address of the table for the kernel's own addresses: the upper half of the root.
pub fn kernel_table() -> u64 {
    root()
}

/// Removes mappings of the startup code: there are none.
pub fn leave_start() {}

/// Before harts are started.
pub fn prepare_to_start() {}

/// A hart can be switched off and started again: by the firmware.
pub const CAN_STOP: bool = true;

/// Switches this hart off.
pub fn stop() -> ! {
    // SAFETY: the hart needs nothing any longer.
    let refused = unsafe { sbi::call(STOP.0, STOP.1, [0; 5]) };
    serial::give_up(format_args!("SBI HSM: the firmware does not stop a hart: {refused:?}"))
}

/// Starts a hart that was switched off, on that stack. False while it is not off yet.
pub fn start_again(other: &Cpu, stack: u64) -> bool {
    match ask(other, stack) {
        Ok(_) => true,
        // Already available; and OpenSBI's error while it stops: an invalid parameter.
        Err(sbi::Error(-6 | -3)) => false,
        Err(why) => refused(other, why),
    }
}

/// Starts a hart on that stack, and waits for it with a time limit.
pub fn start(other: &Cpu, stack: u64) {
    if let Err(why) = ask(other, stack) {
        refused(other, why);
    }
    crate::smp::wait_us(1_000_000, || other.up.load(Ordering::Acquire));
}

fn refused(other: &Cpu, sbi::Error(why): sbi::Error) -> ! {
    serial::give_up(format_args!(
        "SBI HSM: the firmware answers {why} for the start of CPU {}; start fewer harts",
        other.id
    ))
}

fn ask(other: &Cpu, stack: u64) -> Result<u64, sbi::Error> {
    STACK.store(stack, Ordering::Release);
    ID.store(other.id, Ordering::Release);
    let entry = start_other as *const () as u64 - KERNEL_BASE;
    let arguments = [controller_id(other.id), entry, 0, 0, 0];
    // SAFETY: the entry point is for a starting hart.
    unsafe { sbi::call(START.0, START.1, arguments) }
}
