/* tlb_flush2: each thread maps 1 MiB of private anonymous memory; for each 4 KiB page it writes a byte (fault), drops
 * the page, reads it back as zero (fault) and counts one; after 256 pages it unmaps the region and maps it again. */
#include "measured_loop.h"

#include <sys/mman.h>

static void work(struct worker *worker)
{
    flush_loop(worker, -1, MAP_PRIVATE | MAP_ANONYMOUS);
}

int main(int argc, char **argv)
{
    return measure("tlb_flush2", THREADS, work, argc, argv);
}
