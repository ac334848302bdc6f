/* The first instructions of each CPU, and its interrupts. QEMU enters in 32-bit mode, paging off (PVH), `.bss`
 * zeroed; the second CPU begins in real mode, in a copy of a few instructions below 1 MiB. */

    .intel_syntax noprefix
    .set IPI, 0xF0                       // as in glue.rs and machine.h
    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18
    .asciz "Xen"
    .quad start

    .section .text
    .code32
    .global start
start:
    mov esi, offset real_mode            // for the second CPU
    mov edi, 0x8000
    mov ecx, 64                          // at least all of it
    rep movsb
    mov eax, offset kernel_tables + 0x1003    // the root's one entry
    mov [kernel_tables], eax
    mov eax, offset fault                // gates: address in two halves of 16 bits
    mov [idt + 14 * 16], ax
    shr eax, 16
    mov [idt + 14 * 16 + 6], ax
    mov eax, offset handler
    mov [idt + IPI * 16], ax
    shr eax, 16
    mov [idt + IPI * 16 + 6], ax
    mov ebp, offset first_cpu
    mov esp, offset stacks + 0x10000
    jmp 2f

    .code16
real_mode:
    cli
    xor ax, ax
    mov ds, ax
    .byte 0x0F, 0x01, 0x16               // LGDT of the copy
    .word 0x8000 + gdt_pointer_16 - real_mode
    mov eax, 0x11                        // protected mode first: the rest is as for the first CPU
    mov cr0, eax
    .byte 0x66, 0xEA
    .long second
    .word 0x18
gdt_pointer_16:
    .word 31
    .long gdt

    .code32
second:
    mov eax, 0x10
    mov ds, eax
    mov ss, eax
    mov ebp, offset second_cpu
    mov esp, offset stacks + 0x20000
2:  mov eax, 0xA0                        // PAE, PGE
    mov cr4, eax
    mov eax, offset kernel_tables
    mov cr3, eax
    mov ecx, 0xC0000080                  // EFER: LME, NXE
    mov eax, 0x900
    xor edx, edx
    wrmsr
    mov eax, 0x80010033                  // PG, WP, NE, ET, MP, PE
    mov cr0, eax
    lgdt [gdt_pointer]
    push 0x08
    mov eax, offset long_mode
    push eax
    retf
    .code64
long_mode:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    lidt [idt_pointer]
    mov al, 0xFF                         // the old interrupt controllers: off
    out 0x21, al
    out 0xA1, al
    mov eax, 0xFEE000F0                  // the local APIC: on
    mov dword ptr [rax], 0x1FF
    sti
    mov eax, ebp
    call rax

fault:                                   // an unmapped page: yield to the other CPU, then retry
    add rsp, 8
    pause
    iretq
handler:
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    call interrupt
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    iretq

    .section .data
    .balign 16
idt:
    .rept 256
    .word 0, 8, 0x8E00, 0, 0, 0, 0, 0
    .endr
gdt:
    .quad 0
    .quad 0x00AF9A000000FFFF             // 0x08: 64-bit code
    .quad 0x00CF92000000FFFF             // 0x10: data
    .quad 0x00CF9A000000FFFF             // 0x18: 32-bit code
gdt_pointer:
    .word 31
    .quad gdt
idt_pointer:
    .word 0xFFF
    .quad idt

    .section .bss
    .balign 16
stacks: .skip 0x20000
    .section .note.GNU-stack, "", %progbits
