/* The machine of machine.c: CPUs with software TLBs, a device that shares page tables, and the hooks on them.
 *
 * One CPU runs at a time. The target handles an interrupt at once, inside the sender's call of the hook. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shootdown.h"

enum { CPUS = 3, SPACES = 2, PAGES = 64, ENTRIES = 256, KERNEL_ROOT = 99 };
static const uint64_t PAGE = 4096, USER = 0x10000;

struct entry {
    bool valid;
    uint16_t tag;
    uint64_t address, frame;
};

static struct cpu {
    uint64_t root;
    uint16_t tag;
    bool interrupts_off, lazy;
    int pins;
    struct entry entries[ENTRIES];
} cpus[CPUS];

/* Frame of each page of each space, 0 for none; a top table is the number of its space. */
static uint64_t tables[SPACES][PAGES];
static uint64_t next_frame = 1, now;
static unsigned current, stale, interrupts, broadcasts, meanwhiles, invalidated_pages;
static uint64_t device_ticket, device_done;
static bool device_ended, invalidates, late;
static struct shootdown_machine machine;
static struct shootdown_range device_told;
static struct shootdown_engine *engine;
static struct shootdown_space *spaces[SPACES];

#define CHECK(holds) \
    do { \
        if (!(holds)) { \
            fprintf(stderr, "line %d: %s\n", __LINE__, #holds); \
            exit(1); \
        } \
    } while (0)

/* The hooks. */

static uint32_t this_cpu(void *kernel)
{
    CHECK(kernel == &cpus);
    return current;
}

static uint64_t interrupts_off(void *kernel)
{
    (void)kernel;
    uint64_t saved = cpus[current].interrupts_off;
    cpus[current].interrupts_off = true;
    return saved;
}

static void interrupts_restore(void *kernel, uint64_t saved)
{
    (void)kernel;
    cpus[current].interrupts_off = saved;
}

/* The current CPU takes the interrupt. */
static void interrupt(void)
{
    cpus[current].interrupts_off = true;
    shootdown_on_ipi(engine);
    cpus[current].interrupts_off = false;
}

static bool interrupts_are_off(void *kernel)
{
    (void)kernel;
    return cpus[current].interrupts_off;
}

static void send_ipi(void *kernel, const uint64_t *targets)
{
    (void)kernel;
    unsigned sender = current;
    if (late)
        return;
    CHECK(!(targets[0] >> sender & 1));
    for (size_t word = 0; word < SHOOTDOWN_CPU_WORDS; word++)
        CHECK(word == 0 ? targets[0] >> CPUS == 0 : targets[word] == 0);
    for (unsigned target = 0; target < CPUS; target++) {
        if (targets[0] >> target & 1) {
            CHECK(!cpus[target].interrupts_off);
            interrupts++;
            current = target;
            interrupt();
        }
    }
    current = sender;
}

static void forget(struct cpu *cpu, const struct shootdown_invalidation *what)
{
    for (unsigned i = 0; i < ENTRIES; i++) {
        struct entry *entry = &cpu->entries[i];
        bool tagged = entry->tag == what->tag;
#ifdef FORGET_HALVES
        tagged = entry->tag == (what->tag & ~SHOOTDOWN_USER_HALF);
#endif
        switch (what->what) {
        case SHOOTDOWN_PAGES:
        case SHOOTDOWN_PAGES_EVERY_TAG: {
            uint64_t bytes = (uint64_t)what->count << what->page_shift;
            CHECK(what->count >= 1 && what->page_shift >= 12);
#ifdef FORGET_PAGES
            break;
#endif
            if ((tagged || what->what == SHOOTDOWN_PAGES_EVERY_TAG) && entry->address - what->address < bytes)
                entry->valid = false;
            break;
        }
        case SHOOTDOWN_TAG:
#ifdef FORGET_TAGS
            break;
#endif
            if (tagged)
                entry->valid = false;
            break;
        case SHOOTDOWN_NON_GLOBAL:
        case SHOOTDOWN_ALL:
            entry->valid = false;
            break;
        }
    }
}

static void invalidate(void *kernel, const struct shootdown_invalidation *what)
{
    (void)kernel;
    invalidated_pages += what->what == SHOOTDOWN_PAGES;
    forget(&cpus[current], what);
}

/* The root that each CPU has left for the kernel's; events by kind. */
static uint64_t left[CPUS];
static unsigned events[SHOOTDOWN_EVENT_THRESHOLD_MOVED + 1];

static void unloaded(void *kernel, uint64_t root)
{
    (void)kernel;
    left[current] = root;
}

static void event(void *kernel, const struct shootdown_event *what)
{
    (void)kernel;
    events[what->kind]++;
}

static void load_root(void *kernel, uint64_t root, uint16_t tag, bool keep)
{
    (void)kernel;
    CHECK(cpus[current].interrupts_off);
    CHECK(machine.tag_limit > 1 || (tag == 0 && !keep));
    cpus[current].root = root;
    cpus[current].tag = tag;
#ifdef FORGET_ROOTS
    keep = true;
#endif
    if (!keep) {
        struct shootdown_invalidation all = {.what = SHOOTDOWN_TAG, .tag = tag};
        for (unsigned i = 0; i < ENTRIES; i++)
            if (cpus[current].entries[i].tag == all.tag)
                cpus[current].entries[i].valid = false;
    }
}

static void broadcast(void *kernel, const struct shootdown_invalidation *what)
{
    (void)kernel;
    CHECK(what->count <= 8);
    broadcasts++;
    for (unsigned cpu = 0; cpu < CPUS; cpu++)
        forget(&cpus[cpu], what);
}

static void nothing(void *kernel)
{
    (void)kernel;
}

static void pin(void *kernel)
{
    (void)kernel;
    cpus[current].pins++;
}

static void unpin(void *kernel)
{
    (void)kernel;
    CHECK(cpus[current].pins-- > 0);
}

static uint64_t now_ns(void *kernel)
{
    (void)kernel;
    return now += 100;
}

/* A device that shares the page tables of space 0. It invalidates when the engine waits for it. */

static uint64_t secondary(void *kernel, uint64_t root, const struct shootdown_range *range)
{
    (void)kernel;
    if (root != 0)
        return 0;
    device_ended |= !range;
    if (range)
        device_told = *range;
    return ++device_ticket;
}

static void secondary_sync(void *kernel, uint64_t ticket)
{
    (void)kernel;
    CHECK(ticket <= device_ticket);
    device_done = ticket > device_done ? ticket : device_done;
}

/* The processor: a TLB miss reads the page tables. */

static void touch(unsigned on, unsigned space, unsigned page)
{
    struct cpu *cpu = &cpus[on];
    uint64_t address = USER + page * PAGE;
    CHECK(cpu->root == space && !cpu->lazy);
    /* The exit to user mode loads the user half. */
    uint16_t tag = machine.split ? cpu->tag | SHOOTDOWN_USER_HALF : cpu->tag;
    struct entry *entry = NULL, *free_entry = NULL;
    for (unsigned i = 0; i < ENTRIES; i++) {
        if (!cpu->entries[i].valid)
            free_entry = free_entry ? free_entry : &cpu->entries[i];
        else if (cpu->entries[i].tag == tag && cpu->entries[i].address == address)
            entry = &cpu->entries[i];
    }
    if (!entry) {
        /* A full TLB evicts an entry. */
        entry = free_entry ? free_entry : &cpu->entries[page];
        *entry = (struct entry){tables[space][page] != 0, tag, address, tables[space][page]};
    }
    stale += entry->valid && entry->frame != tables[space][page];
}
