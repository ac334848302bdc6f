/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* switch: the workers, a process each, share one CPU and yield it to each other: with two of them each operation is a
 * switch between two address spaces. */
#include "measured_loop.h"

#include <sched.h>

static void work(struct worker *worker)
{
    do
        check(sched_yield(), "sched_yield");
    while (go_on(worker));
}

int main(int argc, char **argv)
{
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    check(sched_setaffinity(0, sizeof first, &first), "sched_setaffinity");
    return measure("switch", PROCESSES, work, argc, argv);
}
