/* The interface between the parts of this kernel. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* A page of words: a page table or a frame. */
struct words {
    _Alignas(4096) _Atomic uint64_t word[512];
};

/* glue.c, or without.c in the negative control. */
void set_up(uint64_t kernel_root, uint64_t root); /* makes the engine; once, on the first CPU */
void join(void);                                 /* brings this CPU online, and loads the space */
void flush(uint64_t page);                       /* the page's entry was cleared: on return no CPU uses the old one */
void on_ipi(void);                               /* handles the interrupt, after its acknowledgement */

/* main.c */
_Noreturn void end(const char *text, size_t length);
