/* together: threads that change the same pages, or wait for the same processes, at the same time. Ends with 7 on success.
 * `cargo xtask programs` runs it while the kernel holds the window before each flush open (`linger=`). */
#include "pause_loop.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define ROUNDS 100
/* Delays of the other threads, in PAUSEs, tried one after the other because the place of the window is unknown. */
#define DELAYS 12

/* Written by all, each a word of its own; its pages are shared with children until they are written. */
static volatile unsigned long *page;
static atomic_ulong round_begun, dropped, lost, stale;
static atomic_bool over;

static void pauses(unsigned long count)
{
    while (count--)
        pause_loop();
}

static void need(int failed, const char *call)
{
    if (!failed)
        return;
    printf("%s failed\n", call);
    exit(1);
}

/* Stores repeatedly, and checks that the value is still there. */
static void *store(void *unused)
{
    for (unsigned long turn = 1; !atomic_load(&over); turn++) {
        page[0] = turn;
        for (int look = 0; look < 4; look++) {
            pauses(1);
            atomic_fetch_add(&lost, page[0] != turn);
        }
    }
    return unused;
}

/* Stores once in each round: when the round begins, its CPU must no longer have the page writable. */
static void *store_once(void *unused)
{
    for (unsigned long turn = 1; turn <= ROUNDS; turn++) {
        while (atomic_load(&round_begun) < turn)
            pauses(1);
        pauses(turn % DELAYS);
        page[1] = turn;
    }
    return unused;
}

static void fork_and_wait(void)
{
    pid_t child = fork();
    need(child < 0, "fork");
    if (child == 0)
        _exit(0);
    need(waitpid(child, NULL, 0) != child, "waitpid");
}

/* One thread copies a page while another stores to it; the other's CPU may write the old page until it is flushed. */
static int copies(void)
{
    pthread_t threads[2];
    need(pthread_create(&threads[0], NULL, store, NULL), "pthread_create");
    need(pthread_create(&threads[1], NULL, store_once, NULL), "pthread_create");
    for (unsigned long turn = 1; turn <= ROUNDS; turn++) {
        fork_and_wait();
        pauses(DELAYS);
        atomic_store(&round_begun, turn);
        fork_and_wait();
        pauses(2 * DELAYS);
    }
    atomic_store(&over, true);
    for (int index = 0; index < 2; index++)
        pthread_join(threads[index], NULL);
    if (lost)
        printf("%lu times a store was gone\n", lost);
    return lost != 0;
}

/* Reads a page that another thread has written, drops it while that one does, and reads it again. */
static void *drop_too(void *unused)
{
    for (unsigned long turn = 1; turn <= ROUNDS; turn++) {
        while (atomic_load(&round_begun) != turn)
            pauses(1);
        unsigned long found = page[0];
        pauses(turn % DELAYS);
        need(madvise((void *)page, PAGE, MADV_DONTNEED), "madvise");
        atomic_fetch_add(&stale, found != 0 && page[0] != 0);
        atomic_store(&dropped, turn);
    }
    return unused;
}

/* A thread that drops a page while another thread drops it must not see it afterwards either. */
static int drops(void)
{
    pthread_t other;
    need(pthread_create(&other, NULL, drop_too, NULL), "pthread_create");
    for (unsigned long turn = 1; turn <= ROUNDS; turn++) {
        page[0] = turn;
        atomic_store(&round_begun, turn);
        pauses(2);
        need(madvise((void *)page, PAGE, MADV_DONTNEED), "madvise");
        while (atomic_load(&dropped) != turn)
            pauses(1);
    }
    pthread_join(other, NULL);
    if (stale)
        printf("%lu reads found a page that was dropped\n", stale);
    return stale != 0;
}

/* Forks a child that runs for that many PAUSEs, and waits for it. */
static void *wait_for_own(void *life)
{
    pid_t child = fork();
    need(child < 0, "fork");
    if (child == 0) {
        pauses((unsigned long)life);
        _exit(3);
    }
    int status = 0;
    need(waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 3, "waitpid");
    return NULL;
}

/* Each of two threads waits for its own child: the first waiter for the child that ends last, and the reverse. */
static int waiters(void)
{
    for (unsigned long turn = 0; turn < ROUNDS; turn++) {
        pthread_t other;
        unsigned long long_life = 40 + turn, short_life = 1;
        need(pthread_create(&other, NULL, wait_for_own, (void *)(turn % 2 ? short_life : long_life)), "pthread_create");
        pauses(turn % DELAYS);
        wait_for_own((void *)(turn % 2 ? long_life : short_life));
        pthread_join(other, NULL);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } all[] = {{"copies", copies}, {"drops", drops}, {"waiters", waiters}};
    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(page == MAP_FAILED, "mmap");
    for (unsigned index = 0; argc > 1 && index < sizeof all / sizeof *all; index++)
        if (!strcmp(argv[1], all[index].name) && all[index].run())
            return 1;
    printf("%s\n", argc > 1 ? argv[1] : "nothing");
    return 7;
}
