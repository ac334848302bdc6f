/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* remap: worker 0 replaces a page that all others read: by mmap and by mremap over it, by dropping it, and by changing
 * its protection there and back. The page-table page is often freed with it, since the page is alone in its 2 MiB. After
 * each replacement worker 0 fills new frames, so that those that were freed are in use again: a CPU that was not flushed
 * reads a number that the page does not have. */
#include "numbered_page.h"
#include "pause_loop.h"

#include <sys/mman.h>

#define FRAMES 16

static void *at(void *wanted, unsigned long bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (wanted ? MAP_FIXED : 0);
    void *found = mmap(wanted, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    check(found == MAP_FAILED, "mmap");
    return found;
}

static void replace(unsigned turn)
{
    volatile unsigned *other;
    switch (turn / 2 % 4) {
    case 0:
        at((void *)page, PAGE);
        break;
    case 1:
        other = at(NULL, PAGE);
        *other = turn - 1;
        check(mremap((void *)other, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)page) == MAP_FAILED, "mremap");
        break;
    case 2:
        check(madvise((void *)page, PAGE, MADV_DONTNEED), "madvise");
        break;
    default:
        check(mprotect((void *)page, PAGE, PROT_READ), "mprotect");
        check(mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE), "mprotect");
    }
}

static void replace_page(struct worker *worker)
{
    unsigned turn = 0;
    do {
        turn += 2;
        atomic_store(&number, turn - 1);
        replace(turn);
        *page = turn;
        volatile unsigned char *frames = at(NULL, FRAMES * PAGE);
        for (unsigned frame = 0; frame < FRAMES; frame++)
            *(volatile unsigned *)(frames + frame * PAGE) = ~0u;
        atomic_store(&number, turn);
        pause_loop();
        expect(worker, *page != turn, 0);
        munmap((void *)frames, FRAMES * PAGE);
    } while (go_on(worker));
}

int main(int argc, char **argv)
{
    /* In the middle of 6 MiB, all the rest of which is unmapped. */
    unsigned long large = 2ul << 20;
    char *region = at(NULL, 3 * large);
    char *middle = (char *)(((unsigned long)region + 2 * large - 1) & ~(large - 1));
    munmap(region, (unsigned long)(middle - region));
    munmap(middle + PAGE, (unsigned long)(region + 3 * large - middle) - PAGE);
    page = (volatile unsigned *)middle;
    *page = 0;
    return measure("remap", THREADS, work, argc, argv);
}
