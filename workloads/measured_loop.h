/* Runs a loop in a number of threads (or processes) for a given time, and prints one JSON line about it.
 *
 * A workload is one file: a loop, and a `main` that passes it to `measure`. The loop runs until `go_on` returns false.
 * Worker 0 decides when the window begins and ends; operations of all workers are counted between the two.
 *
 * System calls made here, in addition to those of pthread_create and pthread_join: clock_gettime, write; for processes
 * fork, wait4 and one shared anonymous mapping. */
#ifndef MEASURED_LOOP_H
#define MEASURED_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define PAGE 4096UL
/* Pages of a region of tlb_flush1, 2, 3 and page_fault: 1 MiB, as in the simulator. */
#define REGION_PAGES 256UL

/* One worker. Two cache lines, since adjacent lines are prefetched together. */
struct worker {
    _Alignas(128) atomic_ulong ops; /* written by this worker only */
    atomic_ulong stale;             /* reads that found a dropped page's old contents */
    unsigned index, count;          /* its number, and the number of workers */
    atomic_bool stop;
};

typedef void loop(struct worker *worker);

/* Kind of the workers: threads of one process, or a process each. */
enum kind { THREADS, PROCESSES };

/* Runs `work` with the given arguments and prints the line. Returns the exit status of `main`: 0; 1 when a read was
 * stale; 2 on bad usage. */
int measure(const char *name, enum kind kind, loop *work, int argc, char **argv);

/* Counts one operation; returns whether to do another. */
bool go_on(struct worker *worker);

/* Whether this worker must end, without counting. Yields to another hardware thread: for workers that only spin. */
bool spin(struct worker *worker);

/* Counts a read that should have found `expected`. */
void expect(struct worker *worker, unsigned char found, unsigned char expected);

/* Private anonymous pages. */
volatile unsigned char *map(unsigned long pages);

/* The loop of tlb_flush1, 2 and 3: map 1 MiB, for each page write a byte, drop the page, read it back; unmap,
 * repeat. `fd` is the file mapped, -1 for anonymous memory; `flags` those of mmap. */
void flush_loop(struct worker *worker, int fd, int flags);

/* A file of 1 MiB in memory. */
int file(void);

/* Ends the whole workload, naming the call that failed, when `failed`. */
void check(bool failed, const char *call);

#endif
