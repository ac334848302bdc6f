/* All the code that this kernel needs for the engine. The library executes the instructions (the feature
 * `instructions`); the machine's part is the number of a CPU and sending an IPI, the hooks that SHOOTDOWN_HOOKS names. */
#include "kernel.h"
#include "machine.h"
#include <shootdown.h>

enum {
    CPUS = 2,
    TAGS = 256, /* limit of the used tags, if a tag is the same on all CPUs */
};

static struct shootdown_engine *engine;
static struct shootdown_space *space;
static _Alignas(SHOOTDOWN_ALIGNMENT) char engine_memory[SHOOTDOWN_ENGINE_SIZE(CPUS, TAGS)];
static _Alignas(SHOOTDOWN_ALIGNMENT) char space_memory[SHOOTDOWN_SPACE_SIZE];

/* Not on RISC-V, where the Makefile names an instruction instead. */
uint32_t shootdown_hook_cpu(void) {
    return this_cpu();
}

void shootdown_hook_send_ipi(const uint64_t *targets) {
    send_interrupts(*targets);
}

void set_up(uint64_t kernel_root, uint64_t root) {
    static struct shootdown_machine machine;
    static struct shootdown_settings settings = {
        .not_preemptible = true,
        .machine = &machine,
        .cpu_words = SHOOTDOWN_CPU_WORDS,
        .cpus = CPUS,
    };
    settings.kernel_root = kernel_root;
    shootdown_machine_found(kernel_root, &machine);
    if (machine.tag_limit > TAGS)
        machine.tag_limit = TAGS;
    if (shootdown_engine_init(engine_memory, sizeof engine_memory, &settings, &engine) != SHOOTDOWN_OK)
        end("no engine", 9);
    space = shootdown_space_init(engine, space_memory, root);
}

/* Interrupts are off. */
void join(void) {
    shootdown_cpu_online(engine);
    shootdown_switch_to(engine, space);
}

void flush(uint64_t page) {
    shootdown_flush(engine, space, (struct shootdown_range){page, page + 4096, 12, false});
}

void on_ipi(void) {
    shootdown_on_ipi(engine);
}
