/* QEMU's virt board, above OpenSBI. */
enum { KERNEL_LEVELS = 1, LEVELS = 3, TOP_INDEX = 4 };

/* The remapped page. Above the identity mapping: memory from 2 GiB. */
#define PAGE (4UL << 30)

/* 1 GiB of memory, identity-mapped: global, dirty and accessed, all rights. */
#define KERNEL_TABLES {{[2] = (2UL << 30 >> 2) | 0xEF}}

static inline uint64_t table_entry(struct words *table) { return (uint64_t)table >> 2 | 1; }
/* Dirty and accessed, readable and writable, not by user code. */
static inline uint64_t page_entry(struct words *frame) { return (uint64_t)frame >> 2 | 0xC7; }

static inline void relax(void) { __asm__ volatile(".4byte 0x0100000F"); /* PAUSE */ }
static inline void load_root_bare(uint64_t root) { /* Sv39 */
    __asm__ volatile("csrw satp, %0; sfence.vma" ::"r"(8UL << 60 | root >> 12) : "memory");
}

static inline void acknowledge(void) { __asm__ volatile("csrci sip, 2" ::: "memory"); }
static inline void take_interrupts(uint64_t cpu) { (void)cpu; /* boot.S has done it */ }

/* A firmware call. */
static inline void sbi(uint64_t extension, uint64_t function, uint64_t first, uint64_t second, uint64_t third) {
    register uint64_t a0 __asm__("a0") = first, a1 __asm__("a1") = second, a2 __asm__("a2") = third;
    register uint64_t a6 __asm__("a6") = function, a7 __asm__("a7") = extension;
    __asm__ volatile("ecall" : "+r"(a0), "+r"(a1) : "r"(a2), "r"(a6), "r"(a7) : "memory");
}

void start_second(void);                            /* boot.S */
static inline void start_second_cpu(uint64_t cpu) { /* the hart that OpenSBI did not choose */
    sbi(0x48534D, 0, 1 - cpu, (uint64_t)start_second, 0);
}
static inline void put(char letter) { sbi(1, 0, (uint64_t)letter, 0, 0); }
static inline void power_off(void) { sbi(0x53525354, 0, 0, 0, 0); }

static inline uint32_t this_cpu(void) {
    uint64_t hart;
    __asm__ volatile("mv %0, tp" : "=r"(hart)); /* boot.S has stored it there; compiled code does not use the register */
    return (uint32_t)hart;
}
static inline void send_interrupts(uint64_t cpus) {
    __asm__ volatile("fence iorw, iorw" ::: "memory");
    sbi(0x735049, 0, cpus, 0, 0);
}
