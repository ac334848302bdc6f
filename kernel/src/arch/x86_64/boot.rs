//! The first instructions: from the loader's 32-bit mode to 64-bit Rust in the upper half, on the first CPU and, from
//! real mode, on the others.
//!
//! The loader finds an entry in an ELF note (PVH, as QEMU loads kernels) or in a header (multiboot2, as boot loaders
//! do). It starts in 32-bit protected mode, paging off, with the physical address of the loader's information in EBX.
//! The tables made here map the first 4 GiB of physical memory three times: at its own address (until all CPUs are up),
//! at [`DIRECT_MAP`](crate::memory::DIRECT_MAP), and its first 2 GiB at the end of the address space, where the kernel
//! is linked.

use super::{controller, features, loader, screen};
use crate::cpu::{Cpu, controller_id};
use crate::serial;
use crate::smp::wait_us;
use core::arch::global_asm;
use core::sync::atomic::Ordering;

pub use super::loader::BootInfo;

/// Destination of the code for the other CPUs: a page below 1 MiB, whose number is the startup vector.
const AP_PAGE: u64 = 0x8000;

// The kernel is linked 0xFFFFFFFF80000000 above its load address; adding 0x80000000 subtracts that.
global_asm!(
    r#"
    .macro load_segments                 # data and stack; none for FS and GS
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    .endm

    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18                       # name size, value size, XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_start + 0x80000000

    .section .multiboot2, "a"
    .balign 8
multiboot2_header:
    .long 0xE85250D6, 0, multiboot2_end - multiboot2_header
    .long 0x17ADAF2A - (multiboot2_end - multiboot2_header) # all four add up to 0
    .short 3, 0                          # where to go: 12 bytes, and 4 up to a multiple of 8
    .long 12, multiboot2_start + 0x80000000, 0
    .short 5, 1                          # pixels if there are any: width, height, depth; and 4 bytes
    .long 20, 1024, 768, 32, 0
    .short 0, 0
    .long 8
multiboot2_end:

    .section .bss
    .balign 4096
    .global boot_pml4
boot_pml4:  .skip 4096
boot_pdpt:  .skip 4096
boot_pdpt_high: .skip 4096
boot_pds:   .skip 4096 * 4
boot_stack: .skip 65536
    .global boot_stack_top
boot_stack_top:

    .section .rodata
    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00AF9A000000FFFF             # 0x08: 64-bit code
    .quad 0x00CF92000000FFFF             # 0x10: data
boot_gdt_end:
boot_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .long boot_gdt + 0x80000000

    .section .text
    .code32
multiboot2_start:
    mov ebp, 1                           # kept: which loader
    jmp 1f
    .global pvh_start
pvh_start:
    xor ebp, ebp
1:  cli
    cld
    mov esi, ebx                         # kept: physical address of the loader's words

    # 2048 large pages: 4 GiB. From 3 GiB on are devices: uncached.
    mov edi, offset boot_pds + 0x80000000
    xor ecx, ecx
2:  mov eax, ecx
    shl eax, 21
    or eax, 0x83                         # present, writable, large
    cmp ecx, 1536
    jb 3f
    or eax, 0x18
3:  mov [edi + ecx * 8], eax
    mov dword ptr [edi + ecx * 8 + 4], 0
    inc ecx
    cmp ecx, 2048
    jne 2b

    mov edi, offset boot_pdpt + 0x80000000
    mov eax, offset boot_pds + 0x80000003
    xor ecx, ecx
4:  mov [edi + ecx * 8], eax
    add eax, 4096
    inc ecx
    cmp ecx, 4
    jne 4b
    mov edi, offset boot_pdpt_high + 0x80000000
    mov eax, offset boot_pds + 0x80000003
    mov [edi + 510 * 8], eax
    add eax, 4096
    mov [edi + 511 * 8], eax
    mov edi, offset boot_pml4 + 0x80000000
    mov eax, offset boot_pdpt + 0x80000003
    mov [edi], eax
    mov [edi + 256 * 8], eax
    mov eax, offset boot_pdpt_high + 0x80000003
    mov [edi + 511 * 8], eax

    mov eax, 0xA0                        # CR4: PAE, PGE
    mov cr4, eax
    mov eax, offset boot_pml4 + 0x80000000
    mov cr3, eax
    mov ecx, 0xC0000080                  # EFER: SCE, LME, NXE
    mov eax, 0x901
    xor edx, edx
    wrmsr
    mov eax, 0x80010033                  # CR0: PG, WP, NE, ET, MP, PE
    mov cr0, eax
    lgdt [boot_gdt_pointer + 0x80000000]
    mov esp, offset boot_stack_top + 0x80000000
    push 0x08
    mov eax, offset boot_low64 + 0x80000000
    push eax
    retf

    .code64
boot_low64:
    movabs rax, offset boot_high64
    jmp rax
boot_high64:
    load_segments
    mov rsp, offset boot_stack_top
    mov edi, esi
    mov esi, ebp
    call {first}
    ud2

    # Copied to AP_PAGE. Real mode, CS = AP_PAGE / 16.
    .section .rodata
    .balign 16
    .global ap_begin
ap_begin:
    # Where the words at the end will be.
    .set at_ap_gdt_pointer, 0x8000 + ap_gdt_pointer - ap_begin
    .set at_ap_root, 0x8000 + ap_root - ap_begin
    .set at_ap_stack, 0x8000 + ap_stack - ap_begin
    .set at_ap_cpu, 0x8000 + ap_cpu - ap_begin
    .code16
    cli
    cld
    xor ax, ax
    mov ds, ax
    lgdt [at_ap_gdt_pointer]
    mov eax, 0xA0
    mov cr4, eax
    mov eax, [at_ap_root]
    mov cr3, eax
    mov ecx, 0xC0000080
    mov eax, 0x901
    xor edx, edx
    wrmsr
    mov eax, 0x80010033
    mov cr0, eax
    .byte 0x66, 0xEA                     # far jump, straight from real mode to 64-bit code
    .long 0x8000 + (ap_long - ap_begin)
    .word 0x08
    .code64
ap_long:
    load_segments
    mov rsp, [at_ap_stack]
    mov rdi, [at_ap_cpu]
    movabs rax, offset {other}
    call rax
    ud2
    .balign 8
ap_gdt:
    .quad 0
    .quad 0x00AF9A000000FFFF
    .quad 0x00CF92000000FFFF
ap_gdt_pointer:
    .word 23
    .long 0x8000 + (ap_gdt - ap_begin)
    .balign 8
    .global ap_root
ap_root: .quad 0
    .global ap_stack
ap_stack: .quad 0
    .global ap_cpu
ap_cpu: .quad 0
    .global ap_end
ap_end:
    .section .text
"#,
    first = sym first,
    other = sym crate::other_cpu,
);

unsafe extern "C" {
    static boot_pml4: u8;
    static ap_begin: u8;
    static ap_root: u8;
    static ap_stack: u8;
    static ap_cpu: u8;
    static ap_end: u8;
}

/// Physical address of the boot tables' root, which becomes the kernel's own root.
pub fn root() -> u64 {
    &raw const boot_pml4 as u64 - crate::memory::KERNEL_BASE
}

/// The first CPU enters here, on the boot stack, with the lower half still mapped.
extern "C" fn first(words: u32, by_multiboot: u32) -> ! {
    serial::set_up();
    let boot_info = if by_multiboot == 0 {
        loader::pvh(words)
    } else {
        loader::multiboot(words)
    };
    if let Some(screen) = boot_info.screen {
        screen::set_up(screen);
    }
    crate::first_cpu(&boot_info)
}

/// The table that maps the kernel: the root's upper half.
pub fn kernel_table() -> u64 {
    root()
}

/// The lower half, where the CPUs started, is empty from here on.
pub fn leave_start() {
    crate::memory::Frame::at(root()).words()[0].store(0, Ordering::SeqCst);
}

/// Selects the paging mode by its name: there is one only.
///
/// # Errors
/// Always.
pub fn set_paging(_mode: &str) -> Result<(), &'static str> {
    Err("only RISC-V has paging modes; leave the word out")
}

/// A CPU cannot be switched off and started again.
pub const CAN_STOP: bool = false;

/// Stops this CPU for good.
pub fn stop() -> ! {
    super::interrupts::stop()
}

/// Starts a CPU that was switched off: there is none.
pub fn start_again(_other: &Cpu, _stack: u64) -> bool {
    false
}

/// Starts a CPU on that stack (INIT, then STARTUP twice), and waits for it with a time limit.
pub fn start(other: &Cpu, stack: u64) {
    set_startup(stack, other.id);
    let apic_id = controller_id(other.id);
    controller::send_init(apic_id);
    // Required by old processors; a virtual one needs none.
    if !features::get().hypervisor {
        wait_us(10_000, || false);
    }
    for _ in 0..2 {
        controller::send_startup(apic_id, AP_PAGE);
        if wait_us(200_000, || other.up.load(Ordering::Acquire)) {
            break;
        }
    }
}

/// Copies the startup code to its page, with the root to load.
pub fn prepare_to_start() {
    let size = &raw const ap_end as usize - &raw const ap_begin as usize;
    // SAFETY: the page below 1 MiB has no other user (`frames` allocates none there), and the code fits a page.
    unsafe { core::ptr::copy_nonoverlapping(&raw const ap_begin, place(0).cast(), size) };
    // SAFETY: a word of the copied code.
    unsafe { place(offset(&raw const ap_root)).write_volatile(root()) };
}

/// The parameters of the next CPU to start: its stack and its number.
fn set_startup(stack_top: u64, cpu: usize) {
    // SAFETY: words of the copied code; CPUs are started one at a time, so none reads them meanwhile.
    unsafe {
        place(offset(&raw const ap_stack)).write_volatile(stack_top);
        place(offset(&raw const ap_cpu)).write_volatile(cpu as u64);
    }
}

fn offset(word: *const u8) -> u64 {
    word as u64 - &raw const ap_begin as u64
}

fn place(offset: u64) -> *mut u64 {
    crate::memory::direct(AP_PAGE + offset)
}
