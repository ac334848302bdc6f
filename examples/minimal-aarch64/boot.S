/* The first instructions of each CPU, its part of the interrupt controller, and the exception vectors. QEMU enters at
 * EL1, MMU off, `.bss` zeroed. */

    .set IPI, 1                          // as in glue.rs and machine.h
    .section .text.boot, "ax"
    .global start
start:
    ldr x0, =stacks + 0x10000
    ldr x20, =first_cpu
    b 1f
    .global start_second
start_second:
    ldr x0, =stacks + 0x20000
    ldr x20, =second_cpu
1:  mov sp, x0
    ldr x0, =0x04FF                      // MAIR: 0 is write-back memory; 1 is devices
    msr mair_el1, x0
    ldr x0, =0x200803519                 // TCR: 39 bits, 4 KiB, write-back, shared, 40 bits of physical address; no TTBR1
    mrs x1, id_aa64mmfr0_el1
    ubfx x1, x1, #5, #1
    orr x0, x0, x1, lsl #36              // AS: 16-bit ASIDs if supported
    msr tcr_el1, x0
    ldr x0, =kernel_tables
    msr ttbr0_el1, x0
    ldr x0, =vectors
    msr vbar_el1, x0
    dsb ish
    isb                                  // the settings before anything that depends on them
    tlbi vmalle1
    dsb nsh
    isb
    mrs x0, sctlr_el1
    mov x1, #0x1005                      // M, C, I
    orr x0, x0, x1
    msr sctlr_el1, x0
    isb
    mrs x0, mpidr_el1                    // the CPU's number
    and x0, x0, #0xFF
    br x20

    .global take_interrupts
take_interrupts:
    ldr x1, =0x08000000                  // GICD_CTLR: by affinity, group 1
    mov w2, #0x12
    str w2, [x1]
    ldr x1, =0x080A0000                  // this CPU's redistributor
    add x1, x1, x0, lsl #17
    str wzr, [x1, #0x14]                 // GICR_WAKER: awake
3:  ldr w2, [x1, #0x14]
    tbnz w2, #2, 3b
    add x1, x1, #0x10000
    mov w2, #-1
    str w2, [x1, #0x80]                  // GICR_IGROUPR0: all in group 1
    mov w2, #1 << IPI
    str w2, [x1, #0x100]                 // GICR_ISENABLER0
    mov x0, #7
    msr S3_0_C12_C12_5, x0               // ICC_SRE_EL1: by system registers
    isb
    mov x0, #0xFF
    msr S3_0_C4_C6_0, x0                 // ICC_PMR_EL1: all priorities
    mov x0, #1
    msr S3_0_C12_C12_7, x0               // ICC_IGRPEN1_EL1
    isb
    msr daifclr, #2
    ret

    .balign 2048
vectors:
    .balign 0x200                        // 0x200: exceptions of this level, on its own stack
    .skip 0x200
    yield                                // an unmapped page: yield to the other CPU, then retry
    eret
    .balign 0x80                         // 0x280: interrupts
    stp x29, x30, [sp, #-176]!
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    stp x8, x9, [sp, #80]
    stp x10, x11, [sp, #96]
    stp x12, x13, [sp, #112]
    b 2f
    .balign 0x800
2:  stp x14, x15, [sp, #128]
    stp x16, x17, [sp, #144]
    str x18, [sp, #160]
    bl interrupt
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldp x8, x9, [sp, #80]
    ldp x10, x11, [sp, #96]
    ldp x12, x13, [sp, #112]
    ldp x14, x15, [sp, #128]
    ldp x16, x17, [sp, #144]
    ldr x18, [sp, #160]
    ldp x29, x30, [sp], #176
    eret

    .section .bss
    .balign 16
stacks: .skip 0x20000
    .section .note.GNU-stack, "", %progbits
