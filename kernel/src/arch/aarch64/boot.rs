//! The first instructions of each CPU: from the loader's EL1 or EL2, MMU off, to Rust in the upper half.
//!
//! The tables made here map the first 4 GiB of physical memory three times: at its own address, by TTBR0 (until a CPU
//! is up), at [`DIRECT_MAP`](crate::memory::DIRECT_MAP), and its first 2 GiB at the end of the address space, where the
//! kernel is linked. The first GiB is devices.

use super::psci;
use crate::arch::device_tree::Tree;
use crate::cpu::{Cpu, controller_id};
use crate::memory::KERNEL_BASE;
use crate::serial;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown_cpu::Controller;

pub use crate::arch::device_tree::BootInfo;

/// Address of QEMU's device tree for an ELF kernel: the beginning of memory.
const TREE: u64 = 0x4000_0000;

/// The stack of the CPU that is starting.
static STACK: AtomicU64 = AtomicU64::new(0);

global_asm!(
    r#"
    .set BASE, 0xFFFFFFFF80000000
    .set DEVICE, 0x60000000000405        // a block, accessed, attribute 1, never executed
    .set MEMORY, 0x40000000000701        // a block, accessed, inner-shareable, attribute 0, not by user code

    .section .data
    .balign 4096
boot_high:                               // level 0 for TTBR1
    .skip 256 * 8
    .quad boot_direct - BASE + 3
    .skip 254 * 8
    .quad boot_image - BASE + 3
boot_low:                                // level 0 for TTBR0 at first
    .quad boot_direct - BASE + 3
    .skip 511 * 8
boot_direct:                             // level 1
    .quad 0x00000000 + DEVICE
    .quad 0x40000000 + MEMORY
    .quad 0x80000000 + MEMORY
    .quad 0xC0000000 + MEMORY
    .skip 508 * 8
boot_image:                              // level 1
    .skip 510 * 8
    .quad 0x00000000 + DEVICE
    .quad 0x40000000 + MEMORY

    .section .bss
    .balign 4096
boot_empty: .skip 4096                   // the kernel's root: no user address
boot_stack: .skip 65536
boot_stack_top:

    .section .text
    .global start
start:
    ldr x19, =first_here
    ldr x21, =boot_stack_top
    mov x20, x0                          // the device tree, if the loader passes it
    b 1f
    .global start_other
start_other:
    ldr x19, =other_here
    mov x20, x0                          // the number of the CPU
1:  mrs x0, CurrentEL
    cmp x0, #8
    b.ne 2f
    // At EL2: EL1 is 64 bits wide, has the counters and the interrupt controller, and no offset of virtual time.
    mov x0, #(1 << 31)
    msr hcr_el2, x0
    mov x0, #3
    msr cnthctl_el2, x0
    msr cntvoff_el2, xzr
    mrs x0, S3_4_C12_C9_5                // ICC_SRE_EL2
    mov x1, #9
    orr x0, x0, x1
    msr S3_4_C12_C9_5, x0
    mov x0, #0x33FF                      // CPTR_EL2: nothing is trapped
    msr cptr_el2, x0
    mov x0, #0x3C5                       // EL1, its own stack, everything masked
    msr spsr_el2, x0
    adr x0, 2f
    msr elr_el2, x0
    eret
2:  ldr x0, =0x04FF                      // MAIR: 0 is write-back memory; 1 is devices
    msr mair_el1, x0
    // TCR: 48 bits and 4 KiB on both sides, write-back inner-shareable walks. HA and HD off, A1 0.
    ldr x0, =0xB5103510
    mrs x1, id_aa64mmfr0_el1
    and x2, x1, #0xF                     // PARange, up to 48 bits
    cmp x2, #5
    b.ls 3f
    mov x2, #5
3:  orr x0, x0, x2, lsl #32              // IPS
    ubfx x1, x1, #5, #1
    orr x0, x0, x1, lsl #36              // AS: 16-bit ASIDs if supported
    msr tcr_el1, x0
    ldr x0, =boot_low - BASE
    msr ttbr0_el1, x0
    ldr x0, =boot_high - BASE
    msr ttbr1_el1, x0
    ldr x0, =trap_vectors
    msr vbar_el1, x0
    dsb ish
    isb                                  // the settings before anything that depends on them
    tlbi vmalle1
    dsb nsh
    isb
    mrs x0, sctlr_el1
    ldr x1, =0x80D005                    // M, C, I; user code may use DC ZVA and read CTR; SPAN: traps leave PAN alone
    orr x0, x0, x1
    msr sctlr_el1, x0
    isb
    br x19                               // linked above
first_here:
    mov sp, x21
    mov x29, xzr
    mov x30, xzr
    mov x0, x20
    bl {first}
    brk #0
other_here:
    ldr x0, ={stack}
    ldr x0, [x0]
    mov sp, x0
    mov x29, xzr
    mov x30, xzr
    mov x0, x20
    bl {other}
    brk #0
"#,
    first = sym first,
    other = sym other,
    stack = sym STACK,
);

unsafe extern "C" {
    static boot_empty: u8;
    static boot_high: u8;
    fn start_other();
}

/// The first CPU enters here, on the boot stack, with the identity mapping still loaded.
extern "C" fn first(tree: u64) -> ! {
    serial::set_up();
    let tree = Tree::at(tree).filter(|_| tree != 0).or_else(|| Tree::at(TREE));
    let Some(tree) = tree else {
        serial::give_up(format_args!(
            "no device tree, neither where the loader says (X0) nor at {TREE:#x}; start it with QEMU -M virt -kernel"
        ))
    };
    psci::set_up(tree);
    leave_identity();
    crate::first_cpu(&BootInfo::read(tree, Controller.this_cpu()))
}

extern "C" fn other(id: usize) -> ! {
    leave_identity();
    crate::other_cpu(id)
}

/// Unloads the identity mapping of this CPU, which runs in the upper half.
fn leave_identity() {
    // SAFETY: this CPU uses no lower address; no other tag is in use here yet.
    unsafe {
        core::arch::asm!(
            "msr ttbr0_el1, {}",
            "isb",
            "tlbi vmalle1",
            "dsb nsh",
            "isb",
            in(reg) root(),
            options(nostack)
        );
    }
}

fn physical(symbol: *const u8) -> u64 {
    symbol as u64 - KERNEL_BASE
}

/// Physical address of the kernel's root, which maps no user address.
pub fn root() -> u64 {
    physical(&raw const boot_empty)
}

/// Physical address of the table for the kernel's own addresses.
pub fn kernel_table() -> u64 {
    physical(&raw const boot_high)
}

/// Removes mappings of the startup code: none, because each CPU has unloaded them.
pub fn leave_start() {}

/// Before CPUs are started.
pub fn prepare_to_start() {}

/// Selects the paging mode by its name: there is one only.
///
/// # Errors
/// Always.
pub fn set_paging(_mode: &str) -> Result<(), &'static str> {
    Err("only RISC-V has paging modes; leave the word out")
}

/// A CPU can be switched off and started again: by PSCI.
pub const CAN_STOP: bool = true;

/// Switches this CPU off.
pub fn stop() -> ! {
    let why = psci::cpu_off();
    serial::give_up(format_args!("PSCI CPU_OFF: the firmware answers {why}"))
}

/// Starts a CPU that was switched off, on that stack. False while it is not off yet.
pub fn start_again(other: &Cpu, stack: u64) -> bool {
    match ask(other, stack) {
        Ok(()) => true,
        Err(psci::ALREADY_ON | psci::ON_PENDING) => false,
        Err(why) => refused(other, why),
    }
}

/// Starts a CPU on that stack, and waits for it with a time limit.
pub fn start(other: &Cpu, stack: u64) {
    if let Err(why) = ask(other, stack) {
        refused(other, why);
    }
    crate::smp::wait_us(1_000_000, || other.up.load(Ordering::Acquire));
}

fn refused(other: &Cpu, why: i64) -> ! {
    serial::give_up(format_args!(
        "PSCI CPU_ON: the firmware answers {why} for CPU {}; start fewer CPUs",
        other.id
    ))
}

fn ask(other: &Cpu, stack: u64) -> Result<(), i64> {
    STACK.store(stack, Ordering::Release);
    // The new CPU reads it before its caches are on.
    // SAFETY: cleans a cache line of this kernel.
    unsafe { core::arch::asm!("dc cvac, {}", "dsb sy", in(reg) STACK.as_ptr(), options(nostack)) };
    let entry = physical(start_other as *const () as *const u8);
    psci::cpu_on(controller_id(other.id), entry, other.id as u64)
}
