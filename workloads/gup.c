/* gup: every thread repeatedly pins eight pages of its own and unpins them; one operation is one such pin.
 *
 * The pinning call is vmsplice: Linux pins the pages by a lockless walk (get_user_pages_fast) and puts them into a pipe;
 * splice to /dev/null releases them without a copy. A kernel that runs this needs pipe, open of /dev/null,
 * vmsplice and splice. */
#include "measured_loop.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#define PINNED 8UL

static void work(struct worker *worker)
{
    volatile unsigned char *base = map(PINNED);
    for (unsigned long page = 0; page < PINNED; page++)
        base[page * PAGE] = 1;
    int ends[2];
    check(pipe(ends), "pipe");
    int nowhere = open("/dev/null", O_WRONLY);
    check(nowhere < 0, "open of /dev/null");
    struct iovec pages = {(void *)base, PINNED * PAGE};
    do {
        check(vmsplice(ends[1], &pages, 1, 0) != (ssize_t)(PINNED * PAGE), "vmsplice");
        check(splice(ends[0], NULL, nowhere, NULL, PINNED * PAGE, 0) != (ssize_t)(PINNED * PAGE), "splice");
    } while (go_on(worker));
}

int main(int argc, char **argv)
{
    return measure("gup", THREADS, work, argc, argv);
}
