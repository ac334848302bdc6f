/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* exec: each worker, a process, starts one small program after the other by fork and exec, and waits for its end. The
 * program is this one: with "end" it writes to some pages and ends. */
#include "measured_loop.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOUCHED 8

static int end(void)
{
    volatile unsigned char *pages = map(TOUCHED);
    for (unsigned long page = 0; page < TOUCHED; page++)
        pages[page * PAGE] = 1;
    return pages[0] != 1;
}

static void work(struct worker *worker)
{
    do {
        pid_t child = fork();
        check(child < 0, "fork");
        if (child == 0) {
            execl("/exec", "exec", "end", NULL);
            _exit(127);
        }
        int status;
        check(waitpid(child, &status, 0) < 0, "waitpid");
        expect(worker, WIFEXITED(status) ? (unsigned char)WEXITSTATUS(status) : 255, 0);
    } while (go_on(worker));
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "end"))
        return end();
    return measure("exec", PROCESSES, work, argc, argv);
}
