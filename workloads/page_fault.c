/* page_fault: each thread maps 1 MiB of private anonymous memory, writes a byte of each page (fault) and counts one;
 * after 256 pages it unmaps the region and maps it again. */
#include "measured_loop.h"

#include <sys/mman.h>

static void work(struct worker *worker)
{
    bool more = true;
    while (more) {
        volatile unsigned char *base = map(REGION_PAGES);
        for (unsigned long page = 0; more && page < REGION_PAGES; page++) {
            base[page * PAGE] = 1;
            more = go_on(worker);
        }
        check(munmap((void *)base, REGION_PAGES * PAGE), "munmap");
    }
}

int main(int argc, char **argv)
{
    return measure("page_fault", THREADS, work, argc, argv);
}
