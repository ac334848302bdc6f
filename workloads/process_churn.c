/* process_churn: each worker, a process, forks one small process after the other and waits for it: the shape of a
 * compile. The child writes a page that it shares with its parent, drops what it has (as exec does), writes pages of its
 * own, drops some of them, and ends. With one CPU (`--cpus 1`) no address space ever runs on two. */
#include "measured_loop.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PARENT 4UL
#define CHILD 8UL

/* The exit status: 0, or 1 when a dropped page was still there. */
static int child(volatile unsigned char *shared)
{
    shared[0] = 2;
    check(munmap((void *)shared, PARENT * PAGE), "munmap");
    volatile unsigned char *own = map(CHILD);
    for (unsigned long page = 0; page < CHILD; page++)
        own[page * PAGE] = 3;
    check(madvise((void *)own, CHILD / 2 * PAGE, MADV_DONTNEED), "madvise");
    return own[0] != 0;
}

static void work(struct worker *worker)
{
    volatile unsigned char *base = map(PARENT);
    do {
        for (unsigned long page = 0; page < PARENT; page++)
            base[page * PAGE] = 1;
        pid_t process = fork();
        check(process < 0, "fork");
        if (process == 0)
            _exit(child(base));
        int status;
        check(waitpid(process, &status, 0) < 0, "waitpid");
        expect(worker, WIFEXITED(status) ? (unsigned char)WEXITSTATUS(status) : 255, 0);
        /* The child's store went to a copy. */
        expect(worker, base[0], 1);
    } while (go_on(worker));
}

int main(int argc, char **argv)
{
    return measure("process_churn", PROCESSES, work, argc, argv);
}
