/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* poke: another process writes to a page that all workers read (process_vm_writev). It is a child of this one and shares the
 * page with it, so that its write gives this process another frame: the kernel flushes an address space that the CPU of the
 * writer does not run. A CPU that was not flushed reads the frame that the two shared. */
#include "numbered_page.h"
#include "pause_loop.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The child: writes the number to the page of its parent. */
static void write_there(unsigned next)
{
    struct iovec here = {&next, sizeof next}, there = {(void *)page, sizeof next};
    _exit(process_vm_writev(getppid(), &here, 1, &there, 1, 0) == sizeof next ? 0 : 1);
}

static void replace_page(struct worker *worker)
{
    unsigned turn = 0;
    int status;
    do {
        turn += 2;
        atomic_store(&number, turn - 1);
        pid_t child = fork();
        check(child < 0, "fork");
        /* The fork has flushed; the readers take their turn, and cache what the two processes share. */
        pause_loop();
        if (child == 0)
            write_there(turn);
        check(waitpid(child, &status, 0) != child || status, "process_vm_writev");
        atomic_store(&number, turn);
        pause_loop();
        expect(worker, *page != turn, 0);
    } while (go_on(worker));
}

int main(int argc, char **argv)
{
    page = (volatile unsigned *)map(1);
    *page = 0;
    return measure("poke", THREADS, work, argc, argv);
}
