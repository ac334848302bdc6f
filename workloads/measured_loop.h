/* A loop run by so many threads (or processes) for so long, and one JSON line about it.
 *
 * A workload is one file: a loop, and a `main` that hands it to `measure`. The loop works until `go_on` says no. Worker
 * 0 decides when the window begins and ends; operations of all workers are counted between the two.
 *
 * System calls made here, besides those of pthread_create and pthread_join: clock_gettime, write; for processes fork,
 * wait4 and one shared anonymous mapping. */
#ifndef MEASURED_LOOP_H
#define MEASURED_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define PAGE 4096UL
/* Pages of a region of tlb_flush1, 2, 3 and page_fault: 1 MiB, as in the simulator. */
#define REGION_PAGES 256UL

/* One worker. Two cache lines of its own, since neighbours are fetched too. */
struct worker {
    _Alignas(128) atomic_ulong ops; /* written by this worker only */
    atomic_ulong stale;             /* reads that found a dropped page's old contents */
    unsigned index, count;          /* which of how many */
    atomic_bool stop;
};

typedef void loop(struct worker *worker);

/* What the workers are: threads of one process, or a process each. */
enum kind { THREADS, PROCESSES };

/* Runs `work` as the arguments say and prints the line. The exit status of `main`: 0; 1 when a read was stale; 2 on bad
 * usage. */
int measure(const char *name, enum kind kind, loop *work, int argc, char **argv);

/* Counts one operation; whether to do another. */
bool go_on(struct worker *worker);

/* Whether this worker is to end, without counting. Lets another hardware thread run: for workers that only spin. */
bool spin(struct worker *worker);

/* Counts a read that should have found `expected`. */
void expect(struct worker *worker, unsigned char found, unsigned char expected);

/* Private anonymous pages. */
volatile unsigned char *map(unsigned long pages);

/* The loop of tlb_flush1, 2 and 3: map 1 MiB, for each page write a byte, drop the page, read it back; unmap, and
 * again. `fd` is the file mapped, -1 for anonymous memory; `flags` those of mmap. */
void flush_loop(struct worker *worker, int fd, int flags);

/* A file of 1 MiB in memory. */
int file(void);

/* Ends the whole workload, naming the call that failed, when `failed`. */
void check(bool failed, const char *call);

#endif
