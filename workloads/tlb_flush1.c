/* tlb_flush1: the loop of tlb_flush2 on 1 MiB of a file of each thread's own, mapped privately. The file is in memory
 * (memfd_create, ftruncate), so that nothing is read from a disk. */
#include "measured_loop.h"

#include <sys/mman.h>

static void work(struct worker *worker)
{
    flush_loop(worker, file(), MAP_PRIVATE);
}

int main(int argc, char **argv)
{
    return measure("tlb_flush1", THREADS, work, argc, argv);
}
