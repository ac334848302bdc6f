/* A QEMU plugin that counts executed instructions between known points of a guest, per CPU, and the operations of a
 * shootdown: invalidations, barriers, interrupts to CPUs, calls of firmware. For x86-64, AArch64 and RISC-V.
 *
 * Arguments:
 *   span=NAME:call:ADDRESS        from the entry of a function until the instruction after the call that entered it
 *   span=NAME:interrupt:ADDRESS   from the entry of a handler until the return from the exception
 *   span=NAME:interrupt:ADDRESS:VIA   the same, counted only if the instruction at VIA is executed in between
 *   span=NAME:barriers:0          from the barrier before a broadcast invalidation to the one behind it (Arm)
 *   span=NAME:masked:0            from a CLI to the next STI, IRET or SYSRET, with what is executed between them (x86-64)
 *   span=NAME:preemption:ADDRESS  while the kernel's count of preemption, a variable of each CPU at ADDRESS from GS, is not
 *                                 zero; from the first user code of a CPU on, and not while it is idle (x86-64)
 *   out=FILE                      where the counts go
 * with as many spans as fit. Addresses are hexadecimal. Only spans that begin in a window count: a program or the kernel
 * opens and closes windows by two no-operations with a number in them (workloads/measured_loop.c). Without spans only
 * operations are counted, which costs little time.
 *
 * At its end each window becomes one JSON line: how often each operation was executed, all instructions of each CPU, and
 * for each span on each CPU the number of runs, of those with a PAUSE, and its counts. Two parts are subtracted from a
 * span: handlers with a span of their own that interrupt it, and waiting, which is reported separately. The instructions
 * between two executions of the same PAUSE (YIELD, WFI), with no other PAUSE and no other end of a span between them, are
 * one iteration of a wait loop. Instructions of RISC-V's machine mode (OpenSBI) are in none of these counts, and are
 * reported separately.
 *
 * CPUs may run on threads of their own (thread=multi). There are no locks: each CPU counts for itself, and joins a window
 * at its first instruction in it. The CPU that closes the window reads the counts of the others, so theirs may lack what
 * they execute meanwhile. With one thread (thread=single, which -icount implies) all counts are exact. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of QEMU's plugin interface that is used here. The caller compiles for the version that its QEMU accepts: 1
 * for QEMU 7.2; since 3 the bytes of an instruction are copied out. */
typedef uint64_t qemu_plugin_id_t;
/* Only its first member is used. */
typedef struct qemu_info_t {
    const char *target_name;
} qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *),
                                            enum qemu_plugin_cb_flags, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
#if PLUGIN_VERSION >= 3
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *, size_t);
#else
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
#endif

__attribute__((visibility("default"))) int qemu_plugin_version = PLUGIN_VERSION;

#define CPUS 64
#define SPANS 16
/* Handlers that interrupt each other on one CPU. */
#define NESTED 8
/* Spans of one kind on one CPU in one window whose counts are kept, for the median; all are in the sums. */
#define KEPT 65536

struct span {
    char name[64];
    bool interrupt, barriers, masked, preemption;
    uint64_t entry, via; /* via: 0 for any way */
};
static struct span spans[SPANS];
static unsigned span_count;
static FILE *out;

/* An open span of a CPU. */
struct open {
    bool is, passed;
    uint64_t back; /* where it ends, for a call */
    uint64_t from, waited, handled, firmware, firmware_handled, pauses;
};

/* The counts of one span on one CPU in this window. */
struct tally {
    uint64_t times, sum, waits, waited, firmware;
    uint32_t *kept;
};

#include "operations.h"

static struct cpu {
    uint64_t window;           /* the last one that it joined */
    uint64_t operations[OPERATIONS]; /* in that window */
    uint64_t executed, waited; /* all, and of those in wait loops */
    uint64_t handled;          /* of those in handlers that are spans */
    uint64_t firmware, firmware_run; /* instructions of machine mode: all; of interrupts that it passes on later */
    bool calls;                      /* the last instruction was ECALL */
    uint64_t firmware_handled;
    uint64_t pc, size; /* of the instruction before */
    uint64_t pause, paused_at, pauses; /* the last one, when it was; how many */
    uint64_t begun, firmware_begun; /* executed when the window opened */
    struct open open[SPANS]; /* calls */
    int32_t preemption;      /* the count of preemption, once it is known: user code has run */
    bool preemption_known;
    int32_t added[NESTED];   /* to it, other than 1, and not yet taken back; the last one last */
    unsigned added_depth;
    struct handler {
        unsigned span;
        struct open open;
    } handlers[NESTED]; /* interrupts, the innermost last */
    unsigned depth;
    struct tally tally[SPANS];
} cpus[CPUS];

/* The number of the open window, 0 while none is, and of the last one. */
static _Atomic uint64_t window;
static uint64_t windows;

static void begin_window(void)
{
    atomic_store(&window, ++windows);
}

/* Whether a window is open. If it is new to this CPU, its counts begin. */
static inline bool in_window(struct cpu *cpu)
{
    uint64_t current = atomic_load_explicit(&window, memory_order_relaxed);
    if (!current || cpu->window == current)
        return current;
    cpu->window = current;
    memset(cpu->operations, 0, sizeof cpu->operations);
    cpu->begun = cpu->executed;
    cpu->depth = 0;
    cpu->firmware_run = 0;
    cpu->firmware_begun = cpu->firmware;
    for (unsigned s = 0; s < span_count; s++) {
        cpu->open[s].is = false;
        struct tally *tally = &cpu->tally[s];
        tally->times = tally->sum = tally->waits = tally->waited = tally->firmware = 0;
    }
    return true;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void end_window(void)
{
    if (!atomic_load(&window))
        return;
    atomic_store(&window, 0);
    const char *between = "";
    fprintf(out, "{\"operations\":{");
    for (unsigned op = 0; op < OPERATIONS; op++) {
        if (isa->names[op]) {
            uint64_t executed = 0;
            for (unsigned c = 0; c < CPUS; c++)
                executed += cpus[c].window == windows ? cpus[c].operations[op] : 0;
            fprintf(out, "%s\"%s\":%" PRIu64, between, isa->names[op], executed);
            between = ",";
        }
    }
    between = "";
    fprintf(out, "},\"cpus\":[");
    for (unsigned c = 0; c < CPUS; c++) {
        struct cpu *cpu = &cpus[c];
        if (!cpu->executed || cpu->window != windows)
            continue;
        fprintf(out, "%s{\"cpu\":%u,\"instructions\":%" PRIu64 ",\"firmware\":%" PRIu64 ",\"spans\":[", between, c,
                cpu->executed - cpu->begun, cpu->firmware - cpu->firmware_begun);
        between = "";
        for (unsigned s = 0; s < span_count; s++) {
            struct tally *tally = &cpu->tally[s];
            if (!tally->times)
                continue;
            size_t kept = tally->times < KEPT ? tally->times : KEPT;
            qsort(tally->kept, kept, sizeof *tally->kept, by_size);
            fprintf(out,
                    "%s{\"name\":\"%s\",\"times\":%" PRIu64 ",\"sum\":%" PRIu64 ",\"waits\":%" PRIu64
                    ",\"waiting\":%" PRIu64 ",\"firmware\":%" PRIu64 ",\"least\":%" PRIu32 ",\"median\":%" PRIu32
                    ",\"most\":%" PRIu32 "}",
                    between, spans[s].name, tally->times, tally->sum, tally->waits, tally->waited, tally->firmware,
                    tally->kept[0], tally->kept[kept / 2], tally->kept[kept - 1]);
            between = ",";
        }
        fprintf(out, "]}");
        between = ",";
    }
    fprintf(out, "]}\n");
    fflush(out);
}

/* Records a span that ends now, after `executed` instructions. */
static void close_span(struct cpu *cpu, unsigned s, struct open *open)
{
    struct tally *tally = &cpu->tally[s];
    uint64_t waited = cpu->waited - open->waited;
    uint64_t worked = cpu->executed - open->from - waited - (cpu->handled - open->handled);
    uint64_t firmware = cpu->firmware - open->firmware - (cpu->firmware_handled - open->firmware_handled);
    bool paused = cpu->pauses != open->pauses;
    open->is = false;
    cpu->pause = 0;
    if (spans[s].interrupt) {
        cpu->handled += worked + waited;
        cpu->firmware_handled += firmware;
        cpu->waited = open->waited;
        cpu->pauses = open->pauses;
        /* It was counted in this one; a second time it would be missing in the call that both interrupted. */
        cpu->firmware_run = 0;
        if (spans[s].via && !open->passed)
            return;
    }
    if (!tally->kept && !(tally->kept = malloc(KEPT * sizeof *tally->kept)))
        abort();
    if (tally->times < KEPT)
        tally->kept[tally->times] = worked > UINT32_MAX ? UINT32_MAX : (uint32_t)worked;
    tally->times++;
    tally->sum += worked;
    tally->waits += paused;
    tally->waited += waited;
    tally->firmware += firmware;
}

static void begin_span(struct cpu *cpu, struct open *open)
{
    *open = (struct open){.is = true,
                          .from = cpu->executed,
                          .waited = cpu->waited,
                          .handled = cpu->handled,
                          .firmware = cpu->firmware,
                          .firmware_handled = cpu->firmware_handled,
                          .pauses = cpu->pauses};
}

/* Interrupts have been masked, or are no longer. */
static void mask(struct cpu *cpu, bool masked)
{
    for (unsigned s = 0; in_window(cpu) && s < span_count; s++) {
        struct open *open = &cpu->open[s];
        if (!spans[s].masked)
            continue;
        if (open->is && !masked)
            close_span(cpu, s, open);
        else if (!open->is && masked)
            begin_span(cpu, open);
    }
}

/* The count of preemption has changed from `before`. */
static void preempt(struct cpu *cpu, int32_t before)
{
    for (unsigned s = 0; in_window(cpu) && cpu->preemption_known && s < span_count; s++) {
        struct open *open = &cpu->open[s];
        if (!spans[s].preemption)
            continue;
        if (open->is && !cpu->preemption)
            close_span(cpu, s, open);
        else if (!before)
            begin_span(cpu, open);
    }
}

/* In user code the count is zero. If it is not here, an instruction changes it that this plugin does not know. */
static void user_code(struct cpu *cpu, uint64_t pc)
{
    if (cpu->preemption_known && cpu->preemption) {
        fprintf(stderr, "spans: the count of preemption is %d in user code, at %#" PRIx64 "\n", cpu->preemption, pc);
        _Exit(1);
    }
    cpu->preemption_known = true;
    cpu->preemption = 0;
    cpu->added_depth = 0;
}

/* The idle task holds off preemption all the time. */
static void halt(struct cpu *cpu)
{
    for (unsigned s = 0; s < span_count; s++)
        if (spans[s].preemption)
            cpu->open[s].is = false;
}

/* Instructions of machine mode before it passed this interrupt on, not counting those before a call that it interrupts. */
static uint64_t passed_on(const struct cpu *cpu)
{
    uint64_t before = cpu->firmware_run;
    for (unsigned s = 0; s < span_count; s++) {
        uint64_t since = cpu->firmware - cpu->open[s].firmware;
        if (cpu->open[s].is && before > since)
            before = since;
    }
    return before;
}

/* An instruction is about to be executed. `executed` counts those before it. */
static inline void step(unsigned index, uint64_t pc, unsigned size, enum kind kind)
{
    struct cpu *cpu = &cpus[index % CPUS];
    if (in_window(cpu)) {
        /* User code: no handler is open, although another task's may have been left. */
        if (!(pc >> 63)) {
            cpu->depth = 0;
            user_code(cpu, pc);
        }
        for (unsigned s = 0; s < span_count; s++) {
            if (spans[s].barriers || spans[s].masked || spans[s].preemption)
                continue;
            if (spans[s].interrupt) {
                if (pc == spans[s].via && cpu->depth && cpu->handlers[cpu->depth - 1].span == s)
                    cpu->handlers[cpu->depth - 1].open.passed = true;
                if (pc != spans[s].entry || cpu->depth == NESTED)
                    continue;
                cpu->handlers[cpu->depth].span = s;
            }
            struct open *open = spans[s].interrupt ? &cpu->handlers[cpu->depth++].open : &cpu->open[s];
            if (open->is && !spans[s].interrupt && pc == open->back)
                close_span(cpu, s, open);
            if ((!open->is || spans[s].interrupt) && pc == spans[s].entry) {
                /* The instruction before it was the call. */
                uint64_t before = spans[s].interrupt ? passed_on(cpu) : 0;
                *open = (struct open){true,
                                      false,
                                      cpu->pc + cpu->size,
                                      cpu->executed,
                                      cpu->waited,
                                      cpu->handled,
                                      cpu->firmware - before,
                                      cpu->firmware_handled,
                                      cpu->pauses};
                cpu->pause = 0;
            }
        }
    }
    if (kind == PAUSE) {
        if (cpu->pause == pc)
            cpu->waited += cpu->executed - cpu->paused_at;
        cpu->pause = pc;
        cpu->pauses++;
        cpu->paused_at = cpu->executed;
    }
    cpu->executed++;
    cpu->calls = kind == CALL;
    cpu->pc = pc;
    cpu->size = size;
    if (kind == MASKS || kind == UNMASKS || kind == RETURN)
        mask(cpu, kind == MASKS);
    if (kind == RETURN) {
        if (cpu->depth) {
            struct handler *handler = &cpu->handlers[--cpu->depth];
            close_span(cpu, handler->span, &handler->open);
        }
    } else if (kind == HALTS) {
        halt(cpu);
    } else if (kind == BEGINS) {
        begin_window();
    } else if (kind == ENDS) {
        end_window();
    }
}

/* One callback for each kind; the rest is packed into the interface's user word. The address of an instruction needs 48
 * bits and its sign, its size 4 bits. */
#define STEP(name, kind) \
    static void name(unsigned index, void *packed) \
    { \
        uint64_t word = (uint64_t)packed; \
        step(index, (uint64_t)((int64_t)word >> 4), word & 15, kind); \
    }
STEP(ordinary, ORDINARY)
STEP(pause_loop, PAUSE)
STEP(returns, RETURN)
STEP(calls_out, CALL)
STEP(masks, MASKS)
STEP(unmasks, UNMASKS)
STEP(halts, HALTS)
STEP(begins, BEGINS)
STEP(ends, ENDS)

static void firmware(unsigned index, void *unused)
{
    (void)unused;
    struct cpu *cpu = &cpus[index % CPUS];
    in_window(cpu);
    cpu->firmware++;
    cpu->firmware_run += !cpu->calls;
}

static void operate(unsigned index, void *packed)
{
    int op = (int)(uintptr_t)packed;
    struct cpu *cpu = &cpus[index % CPUS];
    if (!in_window(cpu))
        return;
    cpu->operations[op]++;
    for (unsigned s = 0; s < span_count; s++) {
        struct open *open = &cpu->open[s];
        if (!spans[s].barriers)
            continue;
        if (op == isa->broadcast)
            open->passed = true;
        if (op != isa->barrier)
            continue;
        if (open->is && open->passed) {
            cpu->executed++; /* the barrier belongs to it */
            close_span(cpu, s, open);
            cpu->executed--;
        } else {
            begin_span(cpu, open);
        }
    }
}

/* An addition to the count of preemption. One of more than 1, of softirqs, may be taken back from a register. */
static void adds(unsigned index, void *packed)
{
    struct cpu *cpu = &cpus[index % CPUS];
    int32_t before = cpu->preemption, by = (int32_t)(intptr_t)packed;
    cpu->preemption += by;
    if (by > 1 && cpu->added_depth < NESTED)
        cpu->added[cpu->added_depth++] = by;
    if (by < -1 && cpu->added_depth)
        cpu->added_depth--;
    preempt(cpu, before);
}

static void takes_back(unsigned index, void *unused)
{
    (void)unused;
    struct cpu *cpu = &cpus[index % CPUS];
    int32_t before = cpu->preemption;
    if (cpu->added_depth)
        cpu->preemption -= cpu->added[--cpu->added_depth] - 1;
    preempt(cpu, before);
}

/* Registers what follows a change of the count of preemption, after the step. */
static void translate_change(struct qemu_plugin_insn *instruction, const uint8_t *bytes, size_t size, uint64_t address)
{
    for (unsigned s = 0; isa->change && s < span_count; s++) {
        int32_t by = 0;
        enum change change = NONE;
        if (spans[s].preemption)
            change = isa->change(bytes, size, address, spans[s].entry, &by);
        if (change != NONE)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, change == ADDS ? adds : takes_back, QEMU_PLUGIN_CB_NO_REGS,
                                                   (void *)(intptr_t)by);
    }
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    static void (*const calls[])(unsigned, void *) = {
        [ORDINARY] = ordinary, [PAUSE] = pause_loop, [RETURN] = returns,
        [CALL] = calls_out,    [MASKS] = masks,      [UNMASKS] = unmasks,
        [HALTS] = halts,       [BEGINS] = begins,    [ENDS] = ends,
    };
    size_t count = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        size_t size = qemu_plugin_insn_size(instruction);
        uint64_t address = qemu_plugin_insn_vaddr(instruction);
#if PLUGIN_VERSION >= 3
        uint8_t bytes[16] = {0};
        qemu_plugin_insn_data(instruction, bytes, sizeof bytes);
#else
        const uint8_t *bytes = qemu_plugin_insn_data(instruction);
#endif
        int op = isa->operation(bytes, size, address);
        if (op >= 0)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, operate, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)op);
        enum kind kind = isa->kind(bytes, size);
        if (!span_count && kind != BEGINS && kind != ENDS)
            continue;
        if (isa->is_firmware(address)) {
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, firmware, QEMU_PLUGIN_CB_NO_REGS, NULL);
            continue;
        }
        uint64_t word = address << 4 | (size & 15);
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, calls[kind], QEMU_PLUGIN_CB_NO_REGS, (void *)word);
        translate_change(instruction, bytes, size, address);
    }
}

static void at_exit(qemu_plugin_id_t id, void *data)
{
    (void)id;
    (void)data;
    end_window();
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
                                                               char **argv)
{
    for (unsigned known = 0; known < sizeof isas / sizeof *isas; known++)
        if (!strcmp(isas[known].target, info->target_name))
            isa = &isas[known];
    if (!isa) {
        fprintf(stderr, "spans: no instruction set %s: add it to operations.h\n", info->target_name);
        return 1;
    }
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "out=", 4)) {
            out = fopen(argv[i] + 4, "w");
            continue;
        }
        char kind[16];
        struct span *span = &spans[span_count];
        if (span_count == SPANS ||
            sscanf(argv[i], "span=%63[^:]:%15[^:]:%" SCNx64 ":%" SCNx64, span->name, kind, &span->entry, &span->via) < 3 ||
            (strcmp(kind, "call") && strcmp(kind, "interrupt") && strcmp(kind, "barriers") && strcmp(kind, "masked") &&
             strcmp(kind, "preemption"))) {
            fprintf(stderr, "spans: not a span, or too many: %s\n", argv[i]);
            return 1;
        }
        span->interrupt = !strcmp(kind, "interrupt");
        span->barriers = !strcmp(kind, "barriers");
        span->masked = !strcmp(kind, "masked");
        span->preemption = !strcmp(kind, "preemption");
        span_count++;
    }
    if (!out) {
        fprintf(stderr, "spans: out=FILE is missing or cannot be written\n");
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
