/* mmap: each thread maps 1 MiB of private anonymous memory, unmaps it untouched and counts one. */
#include "measured_loop.h"

#include <sys/mman.h>

static void work(struct worker *worker)
{
    do {
        volatile unsigned char *base = map(REGION_PAGES);
        check(munmap((void *)base, REGION_PAGES * PAGE), "munmap");
    } while (go_on(worker));
}

int main(int argc, char **argv)
{
    return measure("mmap", THREADS, work, argc, argv);
}
