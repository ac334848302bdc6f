/* tlb_flush3: the loop of tlb_flush2 on 1 MiB of a file of each thread's own, mapped shared: the written
 * value is read back. The file is in memory (memfd_create, ftruncate). */
#include "measured_loop.h"

#include <sys/mman.h>

static void work(struct worker *worker)
{
    flush_loop(worker, file(), MAP_SHARED);
}

int main(int argc, char **argv)
{
    return measure("tlb_flush3", THREADS, work, argc, argv);
}
