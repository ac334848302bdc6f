/* QEMU's virt board. */
enum { KERNEL_LEVELS = 1, LEVELS = 3, TOP_INDEX = 2, IPI = 1 };

/* The remapped page. Above the identity mapping: devices from 0, memory from 1 GiB. */
#define PAGE (2UL << 30)

/* Identity-mapped blocks of 1 GiB, without ASID: devices (attribute 1, never executed) and memory (attribute 0,
 * inner-shareable). */
#define KERNEL_TABLES {{3UL << 53 | 1 << 10 | 1 << 2 | 1, 1UL << 30 | 1 << 10 | 3 << 8 | 1}}

static inline uint64_t table_entry(struct words *table) { return (uint64_t)table | 3; }
/* With ASID, never executed, accessed, inner-shareable. */
static inline uint64_t page_entry(struct words *frame) {
    return (uint64_t)frame | 3UL << 53 | 1 << 11 | 1 << 10 | 3 << 8 | 3;
}

static inline void relax(void) { __asm__ volatile("yield"); }
static inline void load_root_bare(uint64_t root) {
    __asm__ volatile("msr ttbr0_el1, %0; isb" ::"r"(root) : "memory");
}

/* The first pending interrupt, and its end. */
static inline void acknowledge(void) {
    uint64_t number;
    __asm__ volatile("mrs %0, S3_0_C12_C12_0; msr S3_0_C12_C12_1, %0" : "=&r"(number)::"memory");
}

/* boot.S: enables this CPU's part of the GICv3, and unmasks interrupts; the entry of the second CPU. */
void take_interrupts(uint64_t cpu);
void start_second(void);

/* A firmware call, which QEMU handles. */
static inline void psci(uint64_t function, uint64_t cpu, uint64_t entry) {
    register uint64_t x0 __asm__("x0") = function;
    register uint64_t x1 __asm__("x1") = cpu;
    register uint64_t x2 __asm__("x2") = entry;
    __asm__ volatile("hvc #0" : "+r"(x0), "+r"(x1), "+r"(x2)::"x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11",
                     "x12", "x13", "x14", "x15", "x16", "x17", "memory");
}
static inline void start_second_cpu(uint64_t cpu) {
    (void)cpu;
    psci(0xC4000003, 1, (uint64_t)start_second);
}
static inline void power_off(void) { psci(0x84000008, 0, 0); }

static inline void put(char letter) { *(volatile char *)0x09000000 = letter; }

static inline uint32_t this_cpu(void) {
    uint64_t affinity;
    __asm__ volatile("mrs %0, mpidr_el1" : "=r"(affinity));
    return affinity & 0xFF; /* the board numbers its first CPUs in Aff0 */
}
static inline void send_interrupts(uint64_t cpus) {
    __asm__ volatile("dsb ishst; msr S3_0_C12_C11_5, %0; isb" ::"r"(cpus | (uint64_t)IPI << 24) : "memory");
}
