//! Accesses that may fault, for `probe.rs`: each returns a value, and whether the access failed.

use core::arch::global_asm;

global_asm!(
    r#"
    .section .text
    .global probe_read
probe_read:
    xor edx, edx
    .global probe_read_access
probe_read_access:
    mov rax, [rdi]
    ret
    .global probe_write
probe_write:
    xor edx, edx
    .global probe_write_access
probe_write_access:
    mov [rdi], rsi
    ret
    .global probe_read_half
probe_read_half:
    xor edx, edx
    .global probe_read_half_access
probe_read_half_access:
    mov eax, [rdi]
    ret
    .global probe_copy
probe_copy:
    mov rcx, rdx
    xor edx, edx
    .global probe_copy_access
probe_copy_access:
    rep movsb
    ret
    .global probe_failed
probe_failed:
    xor eax, eax
    mov edx, 1
    ret
"#
);

unsafe extern "C" {
    static probe_read_access: u8;
    static probe_write_access: u8;
    static probe_read_half_access: u8;
    static probe_copy_access: u8;
}

/// Addresses of the instructions that may fault.
pub fn accesses() -> [u64; 4] {
    [
        &raw const probe_read_access as u64,
        &raw const probe_write_access as u64,
        &raw const probe_read_half_access as u64,
        &raw const probe_copy_access as u64,
    ]
}
