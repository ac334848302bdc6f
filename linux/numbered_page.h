/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A page with a number in it. Worker 0 gives it another frame again and again; all others read it. A CPU that was not
 * flushed reads a number that the page does not have. A program defines `replace_page` and measures `work`. */
#ifndef NUMBERED_PAGE_H
#define NUMBERED_PAGE_H

#include "measured_loop.h"

static volatile unsigned *page;
/* The number in the page while it is even; odd while the page is being replaced. */
static atomic_uint number;

/* The loop of worker 0. */
static void replace_page(struct worker *worker);

static void read_page(struct worker *worker)
{
    do {
        unsigned before = atomic_load(&number);
        unsigned found = *page;
        if (before % 2 == 0 && atomic_load(&number) == before)
            expect(worker, found != before, 0);
    } while (spin(worker));
}

static void work(struct worker *worker)
{
    if (worker->index == 0)
        replace_page(worker);
    else
        read_page(worker);
}

#endif
