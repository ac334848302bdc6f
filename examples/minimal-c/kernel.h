/* What the parts of this kernel know of each other. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* A page of words: a page table or a frame. */
struct words {
    _Alignas(4096) _Atomic uint64_t word[512];
};

/* glue.c, or without.c in the negative control. */
void set_up(uint64_t kernel_root, uint64_t root); /* makes the engine; once, on the first CPU */
void join(void);                                 /* this CPU takes part, and runs the space */
void flush(uint64_t page);                       /* the page's entry was cleared: nobody reads through it on return */
void on_ipi(void);                               /* the interrupt has come, and was acknowledged */

/* main.c */
_Noreturn void end(const char *text, size_t length);
