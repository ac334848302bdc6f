/* misbehave: does one operation that a program must not do, or that a kernel may lack. `cargo xtask programs` has the
 * expected result of each. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Unmapped addresses, and one of the kernel. */
#define NOWHERE ((volatile int *)0xdeadbeef000)
#define KERNEL ((volatile int *)0xffffffff80200000)

static char data[16];

/* Operations of futex; musl has no header for them. */
enum { WAIT = 0, WAIT_BITSET = 9, ANY_BIT = -1 };

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Whether a wait without a waker times out, neither too early nor hours late: one with a relative time, one with an absolute. */
static int times_out(int operation)
{
    const long long length = 20000000, begun = now_ns();
    long long limit_ns = operation == WAIT ? length : begun + length;
    struct timespec limit = {limit_ns / 1000000000, limit_ns % 1000000000};
    int word = 5;
    if (syscall(SYS_futex, &word, operation, 5, &limit, NULL, ANY_BIT) != -1 || errno != ETIMEDOUT)
        return 0;
    return now_ns() - begun >= length && now_ns() - begun < 100 * length;
}

/* Sets the flag "nested task" (x86), with which the kernel must not return by IRET, and lets it run other threads. */
static void set_nested_task(void)
{
    pid_t child = fork();
    for (int turn = 0; turn < 100; turn++) {
#if defined(__x86_64__)
        __asm__ volatile("pushfq; orl $0x4000, (%%rsp); popfq" ::: "memory", "cc");
#endif
        syscall(SYS_sched_yield);
    }
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
}

/* Instructions that user code may not execute: one that stops the CPU or changes what it takes, and an invalidation. */
static void halt(void)
{
#if defined(__x86_64__)
    __asm__ volatile("hlt");
#elif defined(__aarch64__)
    __asm__ volatile("msr daifset, #2");
#elif defined(__riscv)
    __asm__ volatile("wfi");
#endif
}

static void broadcast(void)
{
#if defined(__x86_64__)
    __asm__ volatile(".byte 0x0f, 0x01, 0xfe" ::"a"(0), "c"(0), "d"(0)); /* INVLPGB */
#elif defined(__aarch64__)
    __asm__ volatile("tlbi vmalle1is");
#elif defined(__riscv)
    __asm__ volatile("sfence.vma");
#endif
}

static void *sleep_for_ever(void *unused)
{
    static int word;
    syscall(SYS_futex, &word, WAIT, 0, NULL, NULL, ANY_BIT);
    return unused;
}

/* Whether one thread above the limit is refused, and no other. */
static int runs_out_of_threads(void)
{
    pthread_t thread;
    for (int count = 0; count < 100000; count++)
        if (pthread_create(&thread, NULL, sleep_for_ever, NULL))
            return count > 100;
    return 0;
}

/* Whether unmapped page tables are reused: more of them than there is memory, with the other CPUs idle. */
static int tables_come_back(void)
{
    const unsigned long span = 2UL << 20, spans = 32, all = 600UL << 20;
    for (unsigned long tables = 0; tables < all / 4096; tables += spans) {
        char *base = mmap(NULL, spans * span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED)
            return 0;
        for (unsigned long index = 0; index < spans; index++)
            (void)*(volatile char *)(base + index * span);
        munmap(base, spans * span);
    }
    return 1;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    /* A bad pointer in a system call makes the call fail. */
    if (write(1, (const void *)NOWHERE, 16) != -1)
        return 1;
    if (!strcmp(what, "read"))
        return *NOWHERE;
    if (!strcmp(what, "read-kernel"))
        return *KERNEL;
    if (!strcmp(what, "write-code"))
        *(volatile char *)main = 1;
    if (!strcmp(what, "run-data"))
        ((void (*)(void))data)();
    if (!strcmp(what, "halt"))
        halt();
    if (!strcmp(what, "broadcast"))
        broadcast();
    if (!strcmp(what, "nested-task"))
        set_nested_task();
    if (!strcmp(what, "threads") && !runs_out_of_threads())
        return 2;
    if (!strcmp(what, "tables") && !tables_come_back())
        return 2;
    if (!strcmp(what, "lacking"))
        return (int)syscall(SYS_socket, 0, 0, 0);
    if (!strcmp(what, "timed") && !(times_out(WAIT) && times_out(WAIT_BITSET)))
        return 2;
    printf("%s\n", what);
    return 7;
}
