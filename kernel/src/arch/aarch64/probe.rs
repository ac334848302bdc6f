//! Accesses that may fault, for `probe.rs`: each returns a value, and whether the access failed.

use core::arch::global_asm;

global_asm!(
    r#"
    .section .text
    .global probe_read
probe_read:
    mov x1, xzr
    .global probe_read_access
probe_read_access:
    ldr x0, [x0]
    ret
    .global probe_write
probe_write:
    mov x2, x0
    mov x3, x1
    mov x0, xzr
    mov x1, xzr
    .global probe_write_access
probe_write_access:
    str x3, [x2]
    ret
    .global probe_read_half
probe_read_half:
    mov x1, xzr
    .global probe_read_half_access
probe_read_half_access:
    ldr w0, [x0]
    ret
    .global probe_copy
probe_copy:                              // to, from, count
    cbz x2, 2f
    .global probe_copy_access
probe_copy_access:
    ldrb w3, [x1], #1
    .global probe_copy_store
probe_copy_store:
    strb w3, [x0], #1
    subs x2, x2, #1
    b.ne probe_copy_access
2:  mov x0, xzr
    mov x1, xzr
    ret
    .global probe_failed
probe_failed:
    mov x0, xzr
    mov x1, #1
    ret
"#
);

unsafe extern "C" {
    static probe_read_access: u8;
    static probe_write_access: u8;
    static probe_read_half_access: u8;
    static probe_copy_access: u8;
    static probe_copy_store: u8;
}

/// Addresses of the instructions that may fault.
pub fn accesses() -> [u64; 5] {
    [
        &raw const probe_read_access as u64,
        &raw const probe_write_access as u64,
        &raw const probe_read_half_access as u64,
        &raw const probe_copy_access as u64,
        &raw const probe_copy_store as u64,
    ]
}
