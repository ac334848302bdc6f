/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* compile: each worker, a process, compiles /usr/src/compiled.c with tcc, again and again. */
#include "measured_loop.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(struct worker *worker)
{
    char out[32];
    snprintf(out, sizeof out, "/compiled%u.o", worker->index);
    do {
        pid_t child = fork();
        check(child < 0, "fork");
        if (child == 0) {
            execl("/usr/bin/tcc", "tcc", "-c", "/usr/src/compiled.c", "-o", out, NULL);
            _exit(127);
        }
        int status;
        check(waitpid(child, &status, 0) < 0, "waitpid");
        expect(worker, WIFEXITED(status) ? (unsigned char)WEXITSTATUS(status) : 255, 0);
    } while (go_on(worker));
}

int main(int argc, char **argv)
{
    return measure("compile", PROCESSES, work, argc, argv);
}
