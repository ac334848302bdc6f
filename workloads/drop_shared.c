/* drop_shared: each thread has a page that all read. One operation: write the turn to it (fault), drop it, and then read
 * every other thread's page. While that thread reports that it has dropped its page and not written it again, the page
 * must be zero, for the program and for the kernel on its behalf. tlb_flush1, 2 and 3 check each thread's own pages only;
 * this program detects a CPU that was not flushed. */
#include "measured_loop.h"
#include "pause_loop.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST 256
/* From linux/futex.h, which musl lacks. */
#define FUTEX_WAIT_PRIVATE 128

/* Written by its owner only. */
static struct {
    _Alignas(128) _Atomic(volatile unsigned *) page;
    atomic_ulong written; /* how often the owner has begun to write */
    atomic_ulong dropped; /* how often it has dropped what it wrote */
} shared[MOST];

/* Reads the page of `other`, if it is dropped and stays dropped. */
static void look(struct worker *worker, unsigned other)
{
    volatile unsigned *page = atomic_load(&shared[other].page);
    if (page == NULL)
        return;
    unsigned long turn = atomic_load(&shared[other].dropped);
    unsigned found = page[0];
    bool still = atomic_load(&shared[other].written) == turn;
    if (turn == 0 || !still)
        return;
    expect(worker, found != 0, 0);
    /* The kernel reads the word: with the old turn this thread would sleep for ever. */
    if (turn % 8 == 0) {
        long slept = syscall(SYS_futex, page, FUTEX_WAIT_PRIVATE, (unsigned)turn, NULL, NULL, 0);
        check(slept != -1 || errno != EAGAIN, "futex");
    }
}

static void work(struct worker *worker)
{
    volatile unsigned *page = (volatile unsigned *)map(1);
    unsigned long turn = 0;
    atomic_store(&shared[worker->index].page, page);
    do {
        turn++;
        atomic_store(&shared[worker->index].written, turn);
        page[0] = (unsigned)turn;
        /* The others take their turn, and read it. */
        pause_loop();
        check(madvise((void *)page, PAGE, MADV_DONTNEED), "madvise");
        atomic_store(&shared[worker->index].dropped, turn);
        /* Twice: a value read before the owner's drop must not be read again after it. */
        for (int time = 0; time < 2; time++) {
            for (unsigned other = 0; other < worker->count; other++)
                if (other != worker->index)
                    look(worker, other);
            pause_loop();
        }
    } while (go_on(worker));
}

int main(int argc, char **argv)
{
    return measure("drop_shared", THREADS, work, argc, argv);
}
