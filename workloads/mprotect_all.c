/* mprotect_all: every worker is a process of its own, which makes a page of its own read-only and writable again, and
 * writes it; one operation is one such pair. Nothing is shared: every interrupt here is unnecessary. */
#include "measured_loop.h"

#include <sys/mman.h>

static void work(struct worker *worker)
{
    volatile unsigned char *page = map(1);
    *page = 1;
    do {
        check(mprotect((void *)page, PAGE, PROT_READ), "mprotect");
        check(mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE), "mprotect");
        *page = 1;
    } while (go_on(worker));
}

int main(int argc, char **argv)
{
    return measure("mprotect_all", PROCESSES, work, argc, argv);
}
