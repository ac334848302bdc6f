/* Which instructions are operations of a shootdown, pauses, returns from exceptions, or marks of a window, for each
 * instruction set. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum kind { ORDINARY, PAUSE, RETURN, CALL, MASKS, UNMASKS, HALTS, BEGINS, ENDS };

/* What an instruction does to the kernel's count of preemption. */
enum change { NONE, ADDS, TAKES_BACK };

#define OPERATIONS 8

struct isa {
    const char *target;            /* QEMU's name */
    const char *names[OPERATIONS]; /* of the operations, in the order of their numbers; a gap is NULL */
    int (*operation)(const uint8_t *bytes, size_t size, uint64_t address); /* its number, or -1 */
    enum kind (*kind)(const uint8_t *bytes, size_t size);
    bool (*is_firmware)(uint64_t address);
    int broadcast, barrier; /* of `barriers`; -1 where there are none */
    /* Of `preemption`; NULL where it is not known. `count` is the address of the count. */
    enum change (*change)(const uint8_t *bytes, size_t size, uint64_t address, uint64_t count, int32_t *by);
};

static uint32_t word_of(const uint8_t *bytes, size_t size)
{
    return size == 4 ? (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24 : 0;
}

static bool never(uint64_t address)
{
    (void)address;
    return false;
}

/* x86-64. Interrupts to CPUs are writes to a device or to a register that has other uses: they are not counted here. */
enum { INVLPG, INVPCID, ROOT_LOAD_X86, INVLPGB, TLBSYNC };

static int operation_x86_64(const uint8_t *bytes, size_t size, uint64_t address)
{
    (void)address;
    size_t at = 0;
    while (at < size && (bytes[at] == 0x66 || (bytes[at] & 0xf0) == 0x40))
        at++;
    if (at + 2 >= size || bytes[at] != 0x0f)
        return -1;
    uint8_t second = bytes[at + 1], third = bytes[at + 2];
    if (second == 0x01 && third == 0xfe)
        return INVLPGB;
    if (second == 0x01 && third == 0xff)
        return TLBSYNC;
    if (second == 0x01 && (third & 0x38) == 0x38 && (third & 0xc0) != 0xc0)
        return INVLPG;
    if (second == 0x38 && third == 0x82)
        return INVPCID;
    if (second == 0x22 && (third & 0x38) == 0x18)
        return ROOT_LOAD_X86;
    return -1;
}

static enum kind kind_x86_64(const uint8_t *bytes, size_t size)
{
    static const uint8_t begin_bytes[] = {0x0f, 0x1f, 0x80, 0x31, 0x42, 0x64, 0x53};
    static const uint8_t end_bytes[] = {0x0f, 0x1f, 0x80, 0x32, 0x45, 0x64, 0x53};
    static const uint8_t sysret_bytes[] = {0x48, 0x0f, 0x07};
    if (size == 2 && bytes[0] == 0xf3 && bytes[1] == 0x90)
        return PAUSE;
    if (size == 2 && bytes[0] == 0x48 && bytes[1] == 0xcf)
        return RETURN;
    if (size == 1 && bytes[0] == 0xfa)
        return MASKS;
    if (size == 1 && bytes[0] == 0xf4)
        return HALTS;
    if ((size == 1 && bytes[0] == 0xfb) || (size == 3 && !memcmp(bytes, sysret_bytes, size)))
        return UNMASKS;
    if (size == sizeof begin_bytes && !memcmp(bytes, begin_bytes, size))
        return BEGINS;
    if (size == sizeof end_bytes && !memcmp(bytes, end_bytes, size))
        return ENDS;
    return ORDINARY;
}

static int32_t signed_at(const uint8_t *bytes)
{
    return (int32_t)((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24);
}

/* INC, DEC, ADD and SUB of a variable of the CPU: a GS prefix, the opcode, a displacement from the next instruction. What
 * is in a register cannot be seen: Linux has one such instruction, in __local_bh_enable_ip(), which takes back what was
 * added last, but for one. */
static enum change change_x86_64(const uint8_t *bytes, size_t size, uint64_t address, uint64_t count, int32_t *by)
{
    if (size < 7 || bytes[0] != 0x65 || (bytes[2] & 0xc7) != 0x05 || address + size + (int64_t)signed_at(bytes + 3) != count)
        return NONE;
    uint8_t opcode = bytes[1], extension = bytes[2] >> 3 & 7;
    bool subtracts = opcode == 0xff ? extension == 1 : extension == 5;
    if (opcode == 0xff && extension <= 1)
        *by = 1;
    else if (opcode == 0x83 && size == 8 && (extension == 0 || extension == 5))
        *by = (int8_t)bytes[7];
    else if (opcode == 0x81 && size == 11 && (extension == 0 || extension == 5))
        *by = signed_at(bytes + 7);
    else
        return opcode == 0x01 || opcode == 0x29 ? TAKES_BACK : NONE;
    if (subtracts)
        *by = -*by;
    return ADDS;
}

/* AArch64. */
enum { TLBI_LOCAL, TLBI_BROADCAST, DSB, ISB, SGI, ROOT_LOAD_ARM };

static int operation_aarch64(const uint8_t *bytes, size_t size, uint64_t address)
{
    (void)address;
    uint32_t word = word_of(bytes, size);
    /* SYS with CRn 8, or 9 for the nXS forms. CRm 6 and 7 reach this CPU alone, the others the inner- or outer-shareable
     * domain. */
    if ((word & 0xfff80000) == 0xd5080000 && (word >> 12 & 15) >= 8 && (word >> 12 & 15) <= 9)
        return (word >> 8 & 15) >= 6 ? TLBI_LOCAL : TLBI_BROADCAST;
    if ((word & 0xfffff0ff) == 0xd503309f || (word & 0xfffff3ff) == 0xd503323f)
        return DSB;
    if ((word & 0xfffff0ff) == 0xd50330df)
        return ISB;
    if ((word & 0xffffffe0) == 0xd518cba0) /* ICC_SGI1R_EL1 */
        return SGI;
    if ((word & 0xffffffe0) == 0xd5182000) /* TTBR0_EL1 */
        return ROOT_LOAD_ARM;
    return -1;
}

static enum kind kind_aarch64(const uint8_t *bytes, size_t size)
{
    switch (word_of(bytes, size)) {
    case 0xd503203f: /* YIELD */
    case 0xd503205f: /* WFE */
        return PAUSE;
    case 0xd69f03e0: /* ERET */
        return RETURN;
    case 0xd28a685f: /* movz xzr, #0x5342 */
        return BEGINS;
    case 0xd28a68bf: /* movz xzr, #0x5345 */
        return ENDS;
    default:
        return ORDINARY;
    }
}

/* RISC-V. The firmware, OpenSBI, has the beginning of QEMU's memory. The kernels are at addresses of the upper half. */
enum { SFENCE_VMA, SINVAL_VMA, SFENCE_W_INVAL, SFENCE_INVAL_IR, SBI_CALL, SFENCE_VMA_FIRMWARE, ROOT_LOAD_RISCV };

static bool is_opensbi(uint64_t address)
{
    return address >= 0x80000000 && address < 0x80080000;
}

static int operation_riscv64(const uint8_t *bytes, size_t size, uint64_t address)
{
    uint32_t word = word_of(bytes, size);
    if ((word & 0xfe007fff) == 0x12000073)
        return is_opensbi(address) ? SFENCE_VMA_FIRMWARE : SFENCE_VMA;
    if ((word & 0xfe007fff) == 0x16000073)
        return SINVAL_VMA;
    if (word == 0x18000073)
        return SFENCE_W_INVAL;
    if (word == 0x18100073)
        return SFENCE_INVAL_IR;
    if (word == 0x00000073 && address >> 63) /* ECALL of the kernel */
        return SBI_CALL;
    if ((word & 0xfff0707f) == 0x18001073) /* CSRRW satp */
        return ROOT_LOAD_RISCV;
    return -1;
}

static enum kind kind_riscv64(const uint8_t *bytes, size_t size)
{
    switch (word_of(bytes, size)) {
    case 0x0100000f: /* PAUSE */
    case 0x10500073: /* WFI */
        return PAUSE;
    case 0x10200073: /* SRET */
        return RETURN;
    case 0x00000073: /* ECALL */
        return CALL;
    case 0x53421037: /* lui zero, 0x53421 */
        return BEGINS;
    case 0x53452037: /* lui zero, 0x53452 */
        return ENDS;
    default:
        return ORDINARY;
    }
}

static const struct isa isas[] = {
    {"x86_64", {"invlpg", "invpcid", "root_load", "invlpgb", "tlbsync"}, operation_x86_64, kind_x86_64, never, -1, -1,
     change_x86_64},
    {"aarch64",
     {"tlbi_local", "tlbi_broadcast", "dsb", "isb", "sgi", "root_load"},
     operation_aarch64,
     kind_aarch64,
     never,
     TLBI_BROADCAST,
     DSB,
     NULL},
    {"riscv64",
     {"sfence_vma", "sinval_vma", "sfence_w_inval", "sfence_inval_ir", "sbi_call", "sfence_vma_firmware", "root_load"},
     operation_riscv64,
     kind_riscv64,
     is_opensbi,
     -1,
     -1,
     NULL},
};
static const struct isa *isa;
