//! Accesses that may fault, for `probe.rs`: each returns a value, and whether the access failed.

use core::arch::global_asm;

global_asm!(
    r#"
    .section .text
    .global probe_read
probe_read:
    li a1, 0
    .global probe_read_access
probe_read_access:
    ld a0, (a0)
    ret
    .global probe_write
probe_write:
    mv t0, a0
    mv t1, a1
    li a0, 0
    li a1, 0
    .global probe_write_access
probe_write_access:
    sd t1, (t0)
    ret
    .global probe_read_half
probe_read_half:
    li a1, 0
    .global probe_read_half_access
probe_read_half_access:
    lwu a0, (a0)
    ret
    .global probe_copy
probe_copy:                              # to, from, count
    beqz a2, 2f
    .global probe_copy_access
probe_copy_access:
    lb t0, (a1)
    .global probe_copy_store
probe_copy_store:
    sb t0, (a0)
    addi a0, a0, 1
    addi a1, a1, 1
    addi a2, a2, -1
    bnez a2, probe_copy_access
2:  li a0, 0
    li a1, 0
    ret
    .global probe_failed
probe_failed:
    li a0, 0
    li a1, 1
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
