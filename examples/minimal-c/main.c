/* The smallest kernel of two CPUs around the engine, in C: one remaps a page while the other reads it.
 *
 * When a flush has returned, the frame behind the page is free: the first CPU writes FREED into it. A reader that still
 * finds that has read a freed frame by a stale translation. glue.c is what an embedder writes. */
#include "kernel.h"
#include "machine.h"

enum {
    ROUNDS = 200,   /* remaps of the page */
    FREED = 0xDEAD, /* content of a free frame; a mapped one holds 1 */
};

/* The kernel's own top levels, and the tables of the space, level by level. */
struct words kernel_tables[KERNEL_LEVELS] = {KERNEL_TABLES};
static struct words space[LEVELS];
static struct words frames[4];
static _Atomic uint64_t reads, stale;

#define LOAD(word) atomic_load_explicit(word, memory_order_relaxed)
#define STORE(word, value) atomic_store_explicit(word, value, memory_order_relaxed)

static void print(const char *text, size_t length) {
    for (size_t index = 0; index < length; index++)
        put(text[index]);
}

/* Prints the last line, and switches the machine off. */
_Noreturn void end(const char *text, size_t length) {
    print(text, length);
    put('\n');
    for (;;)
        power_off();
}

/* A rule of the library was broken. */
_Noreturn void shootdown_panic(const char *text, size_t length) {
    end(text, length);
}

static void print_number(const char *name, size_t length, uint64_t number) {
    char digits[20];
    size_t first = sizeof digits;
    do
        digits[--first] = (char)('0' + number % 10);
    while (number /= 10);
    print(name, length);
    print(digits + first, sizeof digits - first);
}

/* The first CPU: starts the second, and remaps. */
_Noreturn void first_cpu(uint64_t cpu) {
    for (int word = 0; word < 512; word++)
        STORE(&space[0].word[word], LOAD(&kernel_tables[0].word[word]));
    for (int level = 0; level + 1 < LEVELS; level++)
        STORE(&space[level].word[level ? 0 : TOP_INDEX], table_entry(&space[level + 1]));
    set_up((uint64_t)kernel_tables, (uint64_t)space);
    take_interrupts(cpu);
    join();
    start_second_cpu(cpu);
    _Atomic uint64_t *entry = &space[LEVELS - 1].word[0];
    for (int round = 0; round < ROUNDS; round++) {
        struct words *frame = &frames[round % 4];
        STORE(&frame->word[0], 1);
        atomic_store_explicit(entry, page_entry(frame), memory_order_release);
        uint64_t before = LOAD(&reads);
        while (LOAD(&reads) < before + 3)
            relax();
        STORE(entry, 0);
        flush(PAGE);
        STORE(&frame->word[0], FREED);
    }
    print_number("rounds=", 7, ROUNDS);
    print_number(" reads=", 7, LOAD(&reads));
    print_number(" stale=", 7, LOAD(&stale));
    end("", 0);
}

/* The second CPU: reads. While the page is unmapped its read faults, and is retried. */
_Noreturn void second_cpu(uint64_t cpu) {
    take_interrupts(cpu);
    join();
    for (;;) {
        uint64_t word = LOAD((_Atomic uint64_t *)PAGE);
        atomic_fetch_add_explicit(&stale, word == FREED, memory_order_relaxed);
        atomic_fetch_add_explicit(&reads, 1, memory_order_relaxed);
        relax();
    }
}

/* The handler of all interrupts: only one is enabled. */
void interrupt(void) {
    acknowledge();
    on_ipi();
}
