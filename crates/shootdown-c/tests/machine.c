/* A kernel in C on a machine of three CPUs with software TLBs (machine.h). Each access through a stale translation is
 * counted.
 *
 * Arguments: the design; "split" for pairs of tags, "untagged" for none.
 * Status: 0 if all is well, 3 after stale translations, 1 after another failure. */
#include "machine.h"

/* The kernel. */

static void on(unsigned cpu, unsigned space)
{
    current = cpu;
    cpus[cpu].lazy = false;
    shootdown_switch_to(engine, spaces[space]);
}

static struct shootdown_range pages(unsigned first, unsigned count)
{
    return (struct shootdown_range){USER + first * PAGE, USER + (first + count) * PAGE, 12, false};
}

static void map(unsigned space, unsigned first, unsigned count, bool mapped)
{
    for (unsigned page = first; page < first + count; page++)
        tables[space][page] = mapped ? next_frame++ : 0;
}

static void unlock(void *argument)
{
    CHECK(argument == &meanwhiles);
    meanwhiles++;
}

/* Frames that are no longer in use. */
static uint64_t released[PAGES];
static size_t released_pages, released_tables;

static void release(void *context, const uint64_t *frames, size_t frame_count, const uint64_t *table_frames,
                    size_t table_count)
{
    CHECK(context == &released);
    for (size_t i = 0; i < frame_count; i++) {
        for (unsigned cpu = 0; cpu < CPUS; cpu++)
            for (unsigned entry = 0; entry < ENTRIES; entry++)
                stale += cpus[cpu].entries[entry].valid && cpus[cpu].entries[entry].frame == frames[i];
        released[released_pages++] = frames[i];
    }
    for (size_t i = 0; i < table_count; i++)
        CHECK(table_frames[i] == 7777);
    released_tables += table_count;
}

/* Unmaps the pages and their table with a gather, whose buffer holds 4 frames. */
static void gather_pages(unsigned first, unsigned count)
{
    struct shootdown_gather gather;
    uint64_t buffer[4];
    released_pages = released_tables = 0;
    shootdown_gather_begin(engine, spaces[0], &gather, buffer, 4, release, &released);
    for (unsigned page = first; page < first + count; page++) {
        uint64_t frame = tables[0][page];
        tables[0][page] = 0;
        bool full = shootdown_gather_page(&gather, USER + page * PAGE, 12, frame);
        CHECK(full == ((page - first) % 4 == 3));
        if (full && page % 8 == 3)
            shootdown_gather_flush(&gather);
    }
    shootdown_gather_changed(&gather, pages(first, 1));
    struct shootdown_range span = {0, 1 << 21, 21, false};
    shootdown_gather_table(&gather, span, 7777);
    shootdown_gather_finish(&gather);
    CHECK(released_pages == count && released_tables == 1);
}

/* Both CPUs cache a page, and the current one flushes everything, here or everywhere. */
static void flush_everything(void)
{
    for (unsigned everywhere = 0; everywhere < 2; everywhere++) {
        map(0, 3, 1, true);
        touch(0, 0, 3);
        if (everywhere)
            touch(1, 0, 3);
        map(0, 3, 1, false);
        if (everywhere)
            shootdown_flush_all(engine);
        else
            shootdown_flush_this_cpu(engine);
        touch(0, 0, 3);
        touch(1, 0, 3);
    }
}

/* Both CPUs cache the pages, the current one unmaps them by `way`, and both access them again. */
static void unmap_everywhere(unsigned way, unsigned first, unsigned count)
{
    map(0, first, count, true);
    for (unsigned page = first; page < first + count; page++) {
        touch(0, 0, page);
        touch(1, 0, page);
    }
    if (way != 5)
        map(0, first, count, false);
    struct shootdown_range range = pages(first, count);
    struct shootdown_token token;
    struct shootdown_batch batch = {0};
    switch (way) {
    case 0:
        shootdown_flush(engine, spaces[0], range);
        break;
    case 1:
        shootdown_flush_while(engine, spaces[0], range, unlock, &meanwhiles);
        break;
    case 2:
        shootdown_dispatch(engine, spaces[0], range, &token);
        CHECK(shootdown_token_poll(&token));
        shootdown_wait(&token);
        shootdown_dispatch_kernel(engine, (struct shootdown_range){1ull << 63, (1ull << 63) + PAGE, 12, false}, &token);
        shootdown_wait(&token);
        break;
    case 3:
        shootdown_batch_finish(&batch); /* has not begun */
        if (first % 2) {
            shootdown_batch_begin(engine, &batch);
            shootdown_batch_add(&batch, spaces[0], range);
        } else {
            shootdown_batch_begin_or_add(engine, &batch, spaces[0], range);
            shootdown_batch_begin_or_add(engine, &batch, spaces[0], range);
        }
        CHECK(shootdown_batch_is_begun(&batch));
        shootdown_batch_finish(&batch);
        CHECK(!shootdown_batch_is_begun(&batch));
        shootdown_flush_pending(engine, spaces[0]);
        break;
    case 4:
        range.tables = true;
        shootdown_flush_tables(engine, spaces[0], range);
        break;
    case 5:
        gather_pages(first, count);
        CHECK(!shootdown_poll(engine));
        break;
    }
    if (invalidates && way != 5) {
        CHECK(device_told.start <= range.start && device_told.end >= range.end && device_told.page_shift == 12);
        /* After a batch, the whole space is flushed. */
        CHECK((device_told.tables == range.tables || way == 3) && device_done == device_ticket);
    }
    for (unsigned page = first; page < first + count; page++) {
        touch(0, 0, page);
        touch(1, 0, page);
    }
}

/* A tick on each CPU up to `last`. */
static void tick(unsigned last)
{
    unsigned here = current;
    for (current = 0; current <= last; current++)
        shootdown_tick(engine);
    current = here;
}

/* Both CPUs cache the pages; they are unmapped, and mapped again after their quarantine. CPU 2 has no ticks. */
static void unmap_later(bool deferred, bool now, unsigned first, unsigned count)
{
    current = 2;
    shootdown_tick_stops(engine);
    current = 0;
    map(0, first, count, true);
    for (unsigned page = first; page < first + count; page++) {
        touch(0, 0, page);
        touch(1, 0, page);
    }
    map(0, first, count, false);
    struct shootdown_range range = pages(first, count);
    struct shootdown_deferral deferral;
    unsigned before = interrupts;
    bool later = shootdown_flush_later(engine, spaces[0], range, count, &deferral);
    CHECK(later == deferred);
    if (later) {
        CHECK(interrupts == before);
        struct shootdown_deferrals_over over = shootdown_deferrals_over(engine);
        CHECK(!shootdown_release(engine, &deferral, &over));
#ifdef FORGET_QUARANTINE
        (void)now;
#else
        bool released = now;
        if (now)
            shootdown_release_now(engine, spaces[0], range, &deferral);
        for (unsigned period = 0; period < 2 && !released; period++) {
            tick(1);
            over = shootdown_deferrals_over(engine);
            released = shootdown_release(engine, &deferral, &over);
        }
        CHECK(released && (now || interrupts == before));
#endif
    }
    map(0, first, count, true);
    for (unsigned page = first; page < first + count; page++) {
        touch(0, 0, page);
        touch(1, 0, page);
    }
    map(0, first, count, false);
    shootdown_flush_pages(engine, spaces[0], range.start, range.end, range.page_shift, range.tables);
    current = 2;
    shootdown_tick_resumes(engine);
    current = 0;
}

/* Unlinks a page-table page of space 0 that CPU 2 may be reading. Some designs defer its free in either case. */
static void free_table_later(bool must_wait)
{
    struct shootdown_walk walk;
    if (must_wait) {
        current = 2;
        shootdown_walk_begin(engine, spaces[0], &walk);
        current = 0;
    }
    struct shootdown_range range = pages(0, PAGES);
    range.tables = true;
    struct shootdown_grace grace;
    bool later = shootdown_flush_tables_later(engine, spaces[0], range, &grace);
    CHECK(later || !must_wait);
    if (!later)
        return;
    tick(1);
    struct shootdown_graces_over over = shootdown_graces_over(engine);
    CHECK(!shootdown_grace_is_over(&grace, &over));
    current = 2;
    if (must_wait)
        shootdown_walk_end(&walk);
    shootdown_tick(engine);
    current = 0;
    over = shootdown_graces_over(engine);
    CHECK(shootdown_grace_is_over(&grace, &over));
}

static void *zeroed(size_t size)
{
    size_t alignment = shootdown_alignment();
    void *memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    CHECK(memory);
    return memset(memory, 0x5a, size);
}

static struct shootdown_settings settings(const char *design)
{
    struct shootdown_settings settings = {
        .hooks = {.cpu = this_cpu,
                  .interrupts_off = interrupts_off,
                  .interrupts_restore = interrupts_restore,
                  .interrupts_are_off = interrupts_are_off,
                  .send_ipi = send_ipi,
                  .invalidate = invalidate,
                  .load_root = load_root,
                  .unloaded = unloaded,
                  .event = event,
                  .broadcast = broadcast,
                  .broadcast_sync = nothing,
                  .pin = pin,
                  .unpin = unpin,
                  .now_ns = now_ns,
                  .secondary = secondary,
                  .secondary_sync = secondary_sync},
        .kernel = &cpus,
        .design = design,
        .cpu_words = SHOOTDOWN_CPU_WORDS,
        .cpus = CPUS,
        .broadcast_pages = 8,
        .kernel_root = KERNEL_ROOT,
    };
    return settings;
}

static void what_is_wrong_is_refused(void)
{
    struct shootdown_engine *none = NULL;
    struct shootdown_settings bad = settings("ipi");
    size_t size = shootdown_engine_size(&bad);
    void *memory = zeroed(size + 1);
    bad = settings("no such design");
    CHECK(shootdown_engine_size(&bad) == 0 && shootdown_engine_size(NULL) == 0);
    CHECK(shootdown_engine_init(memory, size, &bad, &none) == SHOOTDOWN_UNKNOWN_DESIGN);
    bad = settings(NULL);
    CHECK(shootdown_engine_init(memory, size, &bad, &none) == SHOOTDOWN_UNKNOWN_DESIGN);
    bad = settings("ipi");
    bad.cpus = 64 * SHOOTDOWN_CPU_WORDS + 1;
    CHECK(shootdown_engine_init(memory, size, &bad, &none) == SHOOTDOWN_BAD_CPUS);
    CHECK(shootdown_engine_size(&bad) == 0);
    bad.cpus = 0;
    CHECK(shootdown_engine_init(memory, size, &bad, &none) == SHOOTDOWN_BAD_CPUS && shootdown_engine_size(&bad) == 0);
    bad = settings("ipi");
    bad.cpu_words = SHOOTDOWN_CPU_WORDS + 1;
    CHECK(shootdown_engine_init(memory, size, &bad, &none) == SHOOTDOWN_BAD_CPUS);
    bad = settings("ipi");
    bad.hooks.send_ipi = NULL;
    CHECK(shootdown_engine_init(memory, size, &bad, &none) == SHOOTDOWN_MISSING_HOOK);
    bad = settings("ipi");
    bad.hooks.broadcast_sync = NULL;
    CHECK(shootdown_engine_init(memory, size, &bad, &none) == SHOOTDOWN_MISSING_HOOK);
    bad = settings("ipi");
    bad.hooks.pin = NULL;
    CHECK(shootdown_engine_init(memory, size, &bad, &none) == SHOOTDOWN_MISSING_HOOK);
    bad.not_preemptible = true;
    CHECK(shootdown_engine_init(zeroed(size), size, &bad, &none) == SHOOTDOWN_OK);
    none = NULL;
    bad = settings("ipi");
    CHECK(shootdown_engine_init(memory, size - 1, &bad, &none) == SHOOTDOWN_BAD_MEMORY);
    CHECK(shootdown_engine_init((char *)memory + 1, size, &bad, &none) == SHOOTDOWN_BAD_MEMORY);
    CHECK(shootdown_engine_init(memory, size, NULL, &none) == SHOOTDOWN_BAD_MEMORY);
    struct shootdown_policy policy;
    struct shootdown_machine narrow;
    CHECK(!shootdown_design("no such design", &policy, &narrow) && !shootdown_design(NULL, NULL, NULL));
    CHECK(shootdown_design("arm-broadcast", &policy, &narrow) && narrow.tag_limit == 4096 && policy.ceiling == 511);
    narrow.tag_limit = CPUS + narrow.first_tag;
    bad = settings("arm-broadcast");
    bad.machine = &narrow;
    CHECK(shootdown_engine_init(memory, size, &bad, &none) == SHOOTDOWN_DOES_NOT_FIT);
    CHECK(shootdown_design("ipi", &policy, NULL) && policy.slots == 6);
    policy.slots = 17;
    bad = settings("ipi");
    bad.policy = &policy;
    CHECK(shootdown_engine_init(memory, size, &bad, &none) == SHOOTDOWN_DOES_NOT_FIT);
    CHECK(!none);
    free(memory);
}

/* The last report. The target answers after it. */
static struct shootdown_stuck reported;

static void stuck(void *kernel, const struct shootdown_stuck *report)
{
    unsigned waiter = current;
    (void)kernel;
    reported = *report;
    current = report->target;
    interrupt();
    current = waiter;
}

/* CPU 1 does not answer CPU 0. The report says whether it had interrupts off when it polled before. */
static void a_cpu_that_does_not_answer_is_reported(void)
{
    struct shootdown_settings late_answers = settings("ipi");
    struct shootdown_policy policy;
    CHECK(shootdown_design("ipi", &policy, &machine));
    policy.stuck_ns = 1000;
    late_answers.policy = &policy;
    late_answers.hooks.stuck = stuck;
    size_t size = shootdown_engine_size(&late_answers);
    void *memory = zeroed(size), *place = zeroed(shootdown_space_size());
    CHECK(shootdown_engine_init(memory, size, &late_answers, &engine) == SHOOTDOWN_OK);
    struct shootdown_space *space = shootdown_space_init(engine, place, 1);
    for (current = 2; current-- > 0;) {
        shootdown_cpu_online(engine);
        shootdown_switch_to(engine, space);
    }
    late = true;
    for (unsigned off = 0; off < 2; off++) {
        current = 1;
        cpus[1].interrupts_off = off;
        shootdown_poll(engine);
        current = 0;
        shootdown_flush(engine, space, (struct shootdown_range){USER, USER + PAGE, 12, false});
        CHECK(reported.target == 1 && reported.waiter == 0 && reported.generation > 0);
        CHECK(reported.interrupts == (off ? SHOOTDOWN_INTERRUPTS_OFF : SHOOTDOWN_INTERRUPTS_ON));
    }
    late = false;
    memset(cpus, 0, sizeof cpus);
    free(memory);
    free(place);
}

/* Reserved at compile time: enough for every design on a machine with 4096 tags. */
static _Alignas(SHOOTDOWN_ALIGNMENT) char engine_memory[SHOOTDOWN_ENGINE_SIZE(CPUS, 4096)];
static _Alignas(SHOOTDOWN_ALIGNMENT) char space_memory[SPACES + 1][(SHOOTDOWN_SPACE_SIZE + 63) / 64 * 64];

int main(int argc, char **argv)
{
    const char *design = argc > 1 ? argv[1] : "ipi";
    invalidates = strcmp(design, "none") != 0;
    what_is_wrong_is_refused();
    a_cpu_that_does_not_answer_is_reported();
    struct shootdown_settings good = settings(design);
    struct shootdown_policy policy;
    CHECK(shootdown_design(design, &policy, &machine));
    machine.split = argc > 2 && !strcmp(argv[2], "split");
    if (argc > 2 && !strcmp(argv[2], "untagged"))
        machine.tag_limit = 1;
    policy.ceiling = 4;
    policy.stuck_ns = 0;
    good.policy = &policy;
    good.machine = &machine;
    size_t size = shootdown_engine_size(&good);
    CHECK(0 < size && size <= sizeof engine_memory);
    CHECK(shootdown_alignment() <= SHOOTDOWN_ALIGNMENT && shootdown_space_size() <= SHOOTDOWN_SPACE_SIZE);
    CHECK(shootdown_engine_init(engine_memory, size, &good, &engine) == SHOOTDOWN_OK);
    for (unsigned i = 0; i < SPACES; i++) {
        char *memory = space_memory[i];
        CHECK(!shootdown_space_init(engine, memory + 1, i));
        spaces[i] = shootdown_space_init(engine, memory, i);
        CHECK(spaces[i]);
    }
    for (current = 0; current < CPUS; current++)
        shootdown_cpu_online(engine);
    current = 0;
    shootdown_calibrate(engine);

    for (unsigned round = 0; round < 200; round++) {
        on(2, 1);
        on(1, 0);
        on(0, 0);
        unmap_everywhere(round % 6, round % 7, 1);
        unmap_everywhere((round + 1) % 6, 8, 4);
        unmap_everywhere((round + 2) % 6, 10, 40); /* beyond the ceiling: whole tags */

        /* CPU 1 is lazy during an unmap, then comes back; the second time it runs another space meanwhile. */
        for (unsigned elsewhere = 0; elsewhere < 2; elsewhere++) {
            map(0, 3, 2, true);
            touch(1, 0, 3);
            touch(1, 0, 4);
            current = 1;
            if (elsewhere) {
                shootdown_switch_to(engine, spaces[1]);
            } else {
                shootdown_enter_lazy(engine);
                cpus[1].lazy = true;
            }
            current = 0;
            map(0, 3, 2, false);
            shootdown_flush(engine, spaces[0], pages(3, 2));
            current = 1;
            cpus[1].lazy = false;
            if (elsewhere) {
                cpus[1].interrupts_off = true;
                shootdown_switch_to_interrupts_off(engine, spaces[0]);
                cpus[1].interrupts_off = false;
            } else {
                shootdown_leave_lazy(engine, spaces[0]);
            }
            CHECK(shootdown_user_access_ok(engine, spaces[0]));
            touch(1, 0, 3);
            touch(1, 0, 4);
            current = 0;
        }
        flush_everything();
        unmap_later(!strcmp(design, "deferred"), round % 2, 20, 3);
        free_table_later(!strcmp(design, "walk-grace"));
        if (shootdown_enter_kernel(engine, spaces[0]))
            shootdown_leave_lazy(engine, spaces[0]);
        struct shootdown_range kernel = {0xffff800000000000, 0xffff800000002000, 12, false};
        shootdown_flush_kernel(engine, kernel);

        if (!strcmp(design, "adaptive") || !strncmp(design, "walk-", 5)) {
            struct shootdown_walk outer, inner, nmi;
            shootdown_walk_begin(engine, spaces[0], &outer);
            CHECK(cpus[0].interrupts_off);
            shootdown_walk_begin_nmi(engine, spaces[0], &nmi);
            shootdown_walk_end(&nmi);
            CHECK(cpus[0].interrupts_off);
            shootdown_walk_begin(engine, spaces[1], &inner);
            shootdown_walk_end(&inner);
            CHECK(cpus[0].interrupts_off);
            shootdown_walk_end(&outer);
            CHECK(!cpus[0].interrupts_off);
        }
    }

    if (!strcmp(design, "ipi")) {
        unsigned before = invalidated_pages;
        shootdown_flush(engine, spaces[0], pages(50, policy.ceiling + 1));
        CHECK(invalidated_pages == before);
        shootdown_flush(engine, spaces[0], pages(50, policy.ceiling));
        CHECK(invalidated_pages == before + 2 * policy.ceiling * (machine.split ? 2 : 1));
    }

    current = 1;
    shootdown_enter_lazy(engine);
    current = 0;
    uint64_t members[SHOOTDOWN_CPU_WORDS];
    shootdown_space_cpus(spaces[0], members);
    CHECK((members[0] & 3) == 3);
    left[0] = left[1] = ~0ull;
    shootdown_switch_to_kernel(engine);
    CHECK(cpus[0].root == KERNEL_ROOT && cpus[1].root == 0);
    CHECK(left[0] == 0 && left[1] == ~0ull);
    shootdown_retire(engine, spaces[0]);
    CHECK(device_ended && device_done == device_ticket);
    CHECK(cpus[1].root != 0 && left[1] == 0);
    CHECK((interrupts == 0) == (events[SHOOTDOWN_EVENT_INTERRUPTED] == 0));
    CHECK((broadcasts == 0) == (events[SHOOTDOWN_EVENT_BROADCAST] == 0));
    for (current = 0; current < CPUS; current++) {
        CHECK(cpus[current].pins == 0 && !cpus[current].interrupts_off);
        shootdown_switch_to_kernel(engine);
        shootdown_cpu_offline(engine);
    }
    CHECK(meanwhiles > 0);
    printf("%s: %u interrupts, %u broadcasts, %u stale\n", design, interrupts, broadcasts, stale);
    return stale ? 3 : 0;
}
