/* A PC. */
enum { KERNEL_LEVELS = 2, LEVELS = 4, TOP_INDEX = 1, IPI = 0xF0 };

/* The remapped page. Above the identity mapping: memory from 0, devices from 3 GiB. */
#define PAGE (1UL << 39)

/* Identity-mapped pages of 1 GiB, global: memory, and devices, uncached. boot.S makes the entry above them. */
#define KERNEL_TABLES {{0}}, {{[0] = 0x183, [3] = 3UL << 30 | 0x19B}}

static inline uint64_t table_entry(struct words *table) { return (uint64_t)table | 3; }
static inline uint64_t page_entry(struct words *frame) { return (uint64_t)frame | 3; }

static inline void relax(void) { __asm__ volatile("pause"); }
static inline void load_root_bare(uint64_t root) { __asm__ volatile("mov %0, %%cr3" ::"r"(root) : "memory"); }

/* The local APIC of each CPU, at its standard address. */
static inline volatile uint32_t *apic(uint64_t offset) { return (volatile uint32_t *)(0xFEE00000 + offset); }
static inline void acknowledge(void) { *apic(0xB0) = 0; }
static inline void apic_command(uint32_t id, uint32_t command) {
    *apic(0x310) = id << 24;
    *apic(0x300) = command;
    while (*apic(0x300) & 1 << 12)
        relax();
}

static inline void take_interrupts(uint64_t cpu) { (void)cpu; /* boot.S has done it */ }
static inline void start_second_cpu(uint64_t cpu) {
    (void)cpu;
    apic_command(1, 0x4500); /* INIT */
    apic_command(1, 0x4608); /* at 0x8000 */
}

static inline void out(uint16_t port, uint8_t byte) { __asm__ volatile("outb %0, %1" ::"a"(byte), "Nd"(port)); }
static inline void put(char letter) { out(0x3F8, (uint8_t)letter); }
static inline void power_off(void) { out(0x64, 0xFE); /* a reset, which ends QEMU */ }

static inline uint32_t this_cpu(void) { return *apic(0x20) >> 24; /* two APIC ids: 0 and 1 */ }
static inline void send_interrupts(uint64_t cpus) {
    for (; cpus; cpus &= cpus - 1)
        apic_command((uint32_t)__builtin_ctzl(cpus), 0x4000 | IPI);
}
