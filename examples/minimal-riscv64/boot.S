/* The first instructions of each hart, and its traps. OpenSBI enters in supervisor mode, tables off, A0 the number of
 * the hart; QEMU zeroes `.bss`. */

    .section .text.boot, "ax"
    .global start
start:
    la t1, first_cpu
    j 1f
    .global start_second
start_second:
    la t1, second_cpu
1:  mv tp, a0                            // the hart's number, kept
    addi t0, a0, 1
    slli t0, t0, 16
    la sp, stacks
    add sp, sp, t0
    la t0, trap
    csrw stvec, t0
    la t0, kernel_tables                 // Sv39
    srli t0, t0, 12
    li t2, 8 << 60
    or t0, t0, t2
    csrw satp, t0
    sfence.vma
    li t0, 0x22                          // the software interrupt, and the timer's
    csrs sie, t0
    call tick
    csrsi sstatus, 2
    jr t1

    // A timer interrupt in a millisecond: an emulator that runs the harts in turn switches at interrupts.
tick:
    rdtime a0
    li a1, 10000
    add a0, a0, a1
    li a7, 0x54494D45
    li a6, 0
    ecall
    mv a0, tp
    ret

    .balign 4
trap:
    csrw sscratch, t0
    csrr t0, scause
    bltz t0, 2f
    sfence.vma                           // an unmapped page: processors may cache that
    .4byte 0x0100000F                    // PAUSE
    csrr t0, sscratch
    sret
2:  csrr t0, sscratch
    addi sp, sp, -128
    sd ra, 0(sp)
    sd t0, 8(sp)
    sd t1, 16(sp)
    sd t2, 24(sp)
    sd t3, 32(sp)
    sd t4, 40(sp)
    sd t5, 48(sp)
    sd t6, 56(sp)
    sd a0, 64(sp)
    sd a1, 72(sp)
    sd a2, 80(sp)
    sd a3, 88(sp)
    sd a4, 96(sp)
    sd a5, 104(sp)
    sd a6, 112(sp)
    sd a7, 120(sp)
    csrr t0, scause                      // 1: software, 5: timer
    andi t0, t0, 4
    bnez t0, 3f
    call interrupt
    j 4f
3:  call tick
4:  ld ra, 0(sp)
    ld t0, 8(sp)
    ld t1, 16(sp)
    ld t2, 24(sp)
    ld t3, 32(sp)
    ld t4, 40(sp)
    ld t5, 48(sp)
    ld t6, 56(sp)
    ld a0, 64(sp)
    ld a1, 72(sp)
    ld a2, 80(sp)
    ld a3, 88(sp)
    ld a4, 96(sp)
    ld a5, 104(sp)
    ld a6, 112(sp)
    ld a7, 120(sp)
    addi sp, sp, 128
    sret

    .section .bss
    .balign 16
stacks: .skip 0x20000
    .section .note.GNU-stack, "", %progbits
