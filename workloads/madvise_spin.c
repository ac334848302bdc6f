/* madvise_spin: one thread repeatedly writes a page, drops it (MADV_DONTNEED), and counts. The other threads spin in
 * user code, so every drop has to interrupt them all. */
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
        *page = 1;
        check(madvise((void *)page, PAGE, MADV_DONTNEED), "madvise");
    } while (go_on(worker));
}

int main(int argc, char **argv)
{
    return measure("madvise_spin", THREADS, work, argc, argv);
}
