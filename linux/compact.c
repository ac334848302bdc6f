/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* compact: worker 0 makes the kernel move pages (/proc/sys/vm/compact_memory), which unmaps them in batches with one flush
 * for many. Meanwhile each other worker writes its pages, and the next one reads them: a CPU that was not flushed writes to
 * the frame from which a page has gone, and the others do not see it. */
#include "measured_loop.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 64
#define PAGES 2048

static struct {
    _Alignas(128) volatile unsigned *_Atomic pages;
    _Atomic unsigned round;
} shared[MOST];

static volatile unsigned *word(volatile unsigned *pages, unsigned page)
{
    return pages + page * (PAGE / sizeof(unsigned));
}

static void move(struct worker *worker)
{
    int file = open("/proc/sys/vm/compact_memory", O_WRONLY);
    check(file < 0, "/proc/sys/vm/compact_memory");
    do {
        /* Holes for the pages to move into: one page in eight of a region is given back. */
        volatile unsigned char *region = map(2 * PAGES);
        for (unsigned page = 0; page < 2 * PAGES; page++)
            region[page * PAGE] = 1;
        for (unsigned page = 0; page < 2 * PAGES; page += 8)
            check(madvise((void *)(region + page * PAGE), PAGE, MADV_DONTNEED), "madvise");
        check(write(file, "1", 1) != 1, "compact_memory");
        munmap((void *)region, 2 * PAGES * PAGE);
    } while (go_on(worker));
    close(file);
}

static void write_pages(struct worker *worker)
{
    volatile unsigned *pages = (volatile unsigned *)map(PAGES);
    unsigned round = 0, neighbour = worker->index + 1 < worker->count ? worker->index + 1 : 1;
    atomic_store(&shared[worker->index].pages, pages);
    do {
        round++;
        for (unsigned page = 0; page < PAGES; page++) {
            expect(worker, *word(pages, page) != round - 1, 0);
            *word(pages, page) = round;
        }
        atomic_store(&shared[worker->index].round, round);
        volatile unsigned *other = atomic_load(&shared[neighbour].pages);
        for (unsigned page = 0; other && page < PAGES; page += 8) {
            unsigned before = atomic_load(&shared[neighbour].round);
            unsigned found = *word(other, page);
            unsigned after = atomic_load(&shared[neighbour].round);
            expect(worker, found < before || found > after + 1, 0);
        }
    } while (spin(worker));
}

static void work(struct worker *worker)
{
    if (worker->index == 0)
        move(worker);
    else
        write_pages(worker);
}

int main(int argc, char **argv)
{
    return measure("compact", THREADS, work, argc, argv);
}
