/* madvise_empty: madvise_spin without the write. The page is never present, so nothing has to be invalidated. The
 * difference between the two is the fault and the invalidation. */
#include "measured_loop.h"

#include <sys/mman.h>

static void work(struct worker *worker)
{
    if (worker->index > 0) {
        while (spin(worker)) {
        }
        return;
    }
    volatile unsigned char *page = map(1);
    do {
        check(madvise((void *)page, PAGE, MADV_DONTNEED), "madvise");
    } while (go_on(worker));
}

int main(int argc, char **argv)
{
    return measure("madvise_empty", THREADS, work, argc, argv);
}
