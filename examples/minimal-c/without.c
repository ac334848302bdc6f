/* The negative control: the space is loaded, and nothing is flushed. */
#include "kernel.h"
#include "machine.h"

static _Atomic uint64_t space_root;

void set_up(uint64_t kernel_root, uint64_t root) {
    (void)kernel_root;
    space_root = root;
}

void join(void) {
    load_root_bare(space_root);
}

void flush(uint64_t page) {
    (void)page;
}

void on_ipi(void) {}
