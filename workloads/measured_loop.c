/* Threads, the window and the JSON line: see measured_loop.h. */
#include "measured_loop.h"
#include "pause_loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Most workers. */
#define MOST 256
/* Worker 0 reads the clock once in this many operations: without a vDSO each read is a system call. */
#define LOOK_EVERY 16
/* The window begins after this share of its length: tables and free lists have settled by then. */
#define WARM_UP 0.1

/* No-operations with a number in them, as marks for an instruction counter outside the guest. */
#if defined(__x86_64__)
#define WINDOW_BEGINS __asm__ volatile("nopl 0x53644231(%%rax)" ::: "memory")
#define WINDOW_ENDS __asm__ volatile("nopl 0x53644532(%%rax)" ::: "memory")
#elif defined(__aarch64__)
#define WINDOW_BEGINS __asm__ volatile("movz xzr, #0x5342" ::: "memory")
#define WINDOW_ENDS __asm__ volatile("movz xzr, #0x5345" ::: "memory")
#elif defined(__riscv)
#define WINDOW_BEGINS __asm__ volatile("lui zero, 0x53421" ::: "memory")
#define WINDOW_ENDS __asm__ volatile("lui zero, 0x53452" ::: "memory")
#endif

static struct worker *workers;
static loop *work_of_all;
static atomic_uint *ready;
static unsigned count;

/* The requested length: seconds, or operations of worker 0. */
static double asked_seconds;
static unsigned long asked_ops;

/* Written by worker 0 only. */
static enum { WARMING, OPEN, CLOSED } window;
static double started, opened, closed;
static unsigned long ops_opened, ops_closed;

void check(bool failed, const char *call)
{
    if (!failed)
        return;
    fprintf(stderr, "%s: %s\n", call, strerror(errno));
    _exit(1);
}

static double now(void)
{
    struct timespec time;
    check(clock_gettime(CLOCK_MONOTONIC, &time), "clock_gettime");
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static unsigned long ops_of_all(void)
{
    unsigned long sum = 0;
    for (unsigned index = 0; index < count; index++)
        sum += atomic_load_explicit(&workers[index].ops, memory_order_relaxed);
    return sum;
}

/* Worker 0: opens or closes the window when it is time. */
static void look(unsigned long done)
{
    bool by_ops = asked_ops > 0;
    if (window == WARMING) {
        bool warm = by_ops ? done >= (unsigned long)(WARM_UP * (double)asked_ops)
                           : now() - started >= WARM_UP * asked_seconds;
        if (!warm)
            return;
        window = OPEN;
        ops_opened = ops_of_all();
        opened = now();
        WINDOW_BEGINS;
    } else if (window == OPEN) {
        bool over = by_ops ? done >= (unsigned long)((1 + WARM_UP) * (double)asked_ops)
                           : now() - opened >= asked_seconds;
        if (!over)
            return;
        WINDOW_ENDS;
        closed = now();
        ops_closed = ops_of_all();
        window = CLOSED;
        for (unsigned index = 0; index < count; index++)
            atomic_store_explicit(&workers[index].stop, true, memory_order_relaxed);
    }
}

bool go_on(struct worker *worker)
{
    unsigned long done = atomic_load_explicit(&worker->ops, memory_order_relaxed) + 1;
    atomic_store_explicit(&worker->ops, done, memory_order_relaxed);
    if (worker->index == 0 && done % LOOK_EVERY == 0)
        look(done);
    return !atomic_load_explicit(&worker->stop, memory_order_relaxed);
}

bool spin(struct worker *worker)
{
    /* Emulators that run all CPUs in one thread switch to the next one here. */
    pause_loop();
    return !atomic_load_explicit(&worker->stop, memory_order_relaxed);
}

void expect(struct worker *worker, unsigned char found, unsigned char expected)
{
    if (found != expected)
        atomic_fetch_add_explicit(&worker->stale, 1, memory_order_relaxed);
}

volatile unsigned char *map(unsigned long pages)
{
    void *base = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(base == MAP_FAILED, "mmap");
    return base;
}

void flush_loop(struct worker *worker, int fd, int flags)
{
    bool shared = flags & MAP_SHARED;
    unsigned char value = 0;
    for (;;) {
        void *mapped = mmap(NULL, REGION_PAGES * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
        check(mapped == MAP_FAILED, "mmap");
        volatile unsigned char *base = mapped;
        bool more = true;
        for (unsigned long page = 0; more && page < REGION_PAGES; page++) {
            value = (unsigned char)(value % 255 + 1);
            base[page * PAGE] = value;
            check(madvise((void *)(base + page * PAGE), PAGE, MADV_DONTNEED), "madvise");
            /* The written value is gone, unless it was written to the file. */
            expect(worker, base[page * PAGE], shared ? value : 0);
            more = go_on(worker);
        }
        check(munmap(mapped, REGION_PAGES * PAGE), "munmap");
        if (!more)
            return;
    }
}

int file(void)
{
    int fd = memfd_create("workload", 0);
    check(fd < 0, "memfd_create");
    check(ftruncate(fd, (off_t)(REGION_PAGES * PAGE)), "ftruncate");
    return fd;
}

static void *start(void *argument)
{
    struct worker *worker = argument;
    /* No worker begins before all exist. */
    atomic_fetch_add(ready, 1);
    while (atomic_load(ready) < count)
        spin(worker);
    if (worker->index == 0)
        started = now();
    work_of_all(worker);
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[MOST];
    for (unsigned index = 1; index < count; index++) {
        errno = pthread_create(&threads[index], NULL, start, &workers[index]);
        check(errno != 0, "pthread_create");
    }
    start(&workers[0]);
    for (unsigned index = 1; index < count; index++)
        pthread_join(threads[index], NULL);
}

static void run_processes(void)
{
    pid_t processes[MOST];
    for (unsigned index = 1; index < count; index++) {
        processes[index] = fork();
        check(processes[index] < 0, "fork");
        if (processes[index] == 0) {
            start(&workers[index]);
            _exit(0);
        }
    }
    start(&workers[0]);
    for (unsigned index = 1; index < count; index++) {
        int status;
        check(waitpid(processes[index], &status, 0) < 0, "waitpid");
        if (!WIFEXITED(status) || WEXITSTATUS(status)) {
            /* Its operations are missing: report no figure. */
            fprintf(stderr, "worker %u ended before its time, status %d\n", index, status);
            _exit(1);
        }
    }
}

static int usage(const char *name)
{
    fprintf(stderr,
            "usage: %s WORKERS (--seconds S | --ops N)\n"
            "  WORKERS      1 to %u\n"
            "  --seconds S  the window, after a tenth of it to warm up\n"
            "  --ops N      the window in operations of the first worker, at least 100\n",
            name, MOST);
    return 2;
}

int measure(const char *name, enum kind kind, loop *work, int argc, char **argv)
{
    if (argc != 4)
        return usage(name);
    char *end[2];
    long workers_asked = strtol(argv[1], &end[0], 10);
    bool by_ops = !strcmp(argv[2], "--ops");
    double amount = strtod(argv[3], &end[1]);
    if (*end[0] || *end[1] || workers_asked < 1 || workers_asked > MOST)
        return usage(name);
    if (by_ops ? !(amount >= 100 && amount <= 1e15) : strcmp(argv[2], "--seconds") || !(amount > 0 && amount <= 1e6))
        return usage(name);
    count = (unsigned)workers_asked;
    work_of_all = work;
    if (by_ops)
        asked_ops = (unsigned long)amount;
    else
        asked_seconds = amount;

    /* One page for the common state, then the workers. Only processes need it shared; threads share everything. */
    int sharing = kind == PROCESSES && count > 1 ? MAP_SHARED : MAP_PRIVATE;
    size_t bytes = PAGE + count * sizeof(struct worker);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    check(memory == MAP_FAILED, "mmap");
    ready = memory;
    workers = (struct worker *)((char *)memory + PAGE);
    for (unsigned index = 0; index < count; index++) {
        workers[index].index = index;
        workers[index].count = count;
    }
    if (kind == PROCESSES)
        run_processes();
    else
        run_threads();

    unsigned long stale = 0, ops = ops_closed - ops_opened;
    for (unsigned index = 0; index < count; index++)
        stale += workers[index].stale;
    double seconds = closed - opened;
    printf("{\"workload\":\"%s\",\"threads\":%u,\"ops\":%lu,\"seconds\":%.6f,\"ops_per_s\":%.1f,\"ops_with_warm_up\":%lu,"
           "\"stale\":%lu}\n",
           name, count, ops, seconds, seconds > 0 ? (double)ops / seconds : 0.0, ops_of_all(), stale);
    return stale ? 1 : 0;
}
