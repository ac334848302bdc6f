/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* collapse: worker 0 makes one large page of 512 small ones (MADV_COLLAPSE), which frees a page-table page, and breaks it up
 * again. Meanwhile the others write the pages, each its own, directly and by a system call whose buffers the kernel pins
 * by a lockless walk (vmsplice), and read them back. */
#include "measured_loop.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGES 512
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static volatile unsigned char *region;

static volatile unsigned *word(unsigned page)
{
    return (volatile unsigned *)(region + page * PAGE);
}

static void change(struct worker *worker)
{
    unsigned large = 0;
    do {
        large += madvise((void *)region, PAGES * PAGE, MADV_COLLAPSE) == 0;
        /* The last page goes, and with it the large one. */
        check(madvise((void *)word(PAGES - 1), PAGE, MADV_DONTNEED), "madvise");
        *word(PAGES - 1) = 1;
        check(mprotect((void *)word(PAGES - 2), PAGE, PROT_READ), "mprotect");
        check(mprotect((void *)word(PAGES - 2), PAGE, PROT_READ | PROT_WRITE), "mprotect");
    } while (go_on(worker));
    check(large == 0, "no page was collapsed");
}

/* Sends a page through a pipe, and returns its first word as the kernel read it. */
static unsigned pinned(const int *pipe, unsigned page)
{
    unsigned found;
    struct iovec one = {(void *)word(page), sizeof found};
    check(vmsplice(pipe[1], &one, 1, 0) != sizeof found, "vmsplice");
    check(read(pipe[0], &found, sizeof found) != sizeof found, "read");
    return found;
}

static void write_pages(struct worker *worker)
{
    int ends[2];
    unsigned round = 0;
    check(pipe(ends), "pipe");
    do {
        round++;
        for (unsigned page = worker->index; page < PAGES - 2; page += worker->count) {
            expect(worker, round > 1 && *word(page) != round - 1, 0);
            *word(page) = round;
            if (page % 16 == 0)
                expect(worker, pinned(ends, page) != round, 0);
        }
    } while (spin(worker));
}

static void work(struct worker *worker)
{
    if (worker->index == 0)
        change(worker);
    else
        write_pages(worker);
}

int main(int argc, char **argv)
{
    volatile unsigned char *all = map(2 * PAGES);
    region = (volatile unsigned char *)(((unsigned long)all + PAGES * PAGE - 1) & ~(PAGES * PAGE - 1));
    memset((void *)region, 0, PAGES * PAGE);
    return measure("collapse", THREADS, work, argc, argv);
}
