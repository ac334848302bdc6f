//! The first instructions of each hart: from OpenSBI's supervisor mode, tables off, to Rust in the upper half.
//!
//! The table made here maps the first 4 GiB of physical memory twice, by pages of 1 GiB: at
//! [`DIRECT_MAP`](crate::memory::DIRECT_MAP), and at the end of the address space, where the kernel is linked. Until
//! all harts are up, the kernel's own GiB is also identity-mapped.

use crate::arch::device_tree::Tree;
use crate::cpu::{Cpu, controller_id};
use crate::memory::{Frame, KERNEL_BASE};
use crate::serial;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown_cpu::sbi;

pub use crate::arch::device_tree::Told;

/// Entry of the root for the GiB at which memory begins.
const IDENTITY: usize = 2;
/// Hart state management, "start".
const START: (u64, u64) = (0x0048_534D, 0);

/// The stack of the hart that is starting.
static STACK: AtomicU64 = AtomicU64::new(0);

global_asm!(
    r#"
    .set PAGE, 0xEF                      # dirty, accessed, global, to be executed, written and read

    .section .data
    .balign 4096
boot_root:
    .skip 2 * 8
    .quad 0x20000000 + PAGE
    .skip 253 * 8
    .quad 0x00000000 + PAGE, 0x10000000 + PAGE, 0x20000000 + PAGE, 0x30000000 + PAGE
    .skip 248 * 8
    .quad 0x00000000 + PAGE, 0x10000000 + PAGE, 0x20000000 + PAGE, 0x30000000 + PAGE

    .section .bss
    .balign 4096
boot_stack: .skip 65536
boot_stack_top:

    .section .text.boot, "ax"
    .global start
start:
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
    csrw satp, t1
    sfence.vma
    jr t0                                # linked above
first_here:
    lla sp, boot_stack_top
    call boot_registers
    call {first}
    unimp
other_here:
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
    crate::first_cpu(&Told::read(tree, hart))
}

extern "C" fn other(_hart: u64, id: usize) -> ! {
    crate::other_cpu(id)
}

/// Physical address of the boot table, which becomes the kernel's own root.
pub fn root() -> u64 {
    &raw const boot_root as u64 - KERNEL_BASE
}

/// Physical address of the table for the kernel's own addresses: the root's upper half.
pub fn kernel_table() -> u64 {
    root()
}

/// The lower half, where the harts started, is empty from here on.
pub fn leave_start() {
    Frame::at(root()).words()[IDENTITY].store(0, Ordering::SeqCst);
}

/// Before harts are started.
pub fn prepare_to_start() {}

/// Starts a hart on that stack, and waits for it with a time limit.
pub fn start(other: &Cpu, stack: u64) {
    STACK.store(stack, Ordering::Release);
    let entry = start_other as *const () as u64 - KERNEL_BASE;
    // SAFETY: the entry point is for a starting hart.
    let started = unsafe {
        let arguments = [controller_id(other.id), entry, other.id as u64, 0, 0];
        sbi::call(START.0, START.1, arguments)
    };
    if let Err(sbi::Error(why)) = started {
        serial::give_up(format_args!(
            "SBI HSM: the firmware answers {why} for the start of CPU {}; start fewer harts",
            other.id
        ));
    }
    crate::smp::wait_us(1_000_000, || other.up.load(Ordering::Acquire));
}
