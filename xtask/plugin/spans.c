/* A QEMU plugin that counts executed instructions between known points of a guest, per CPU.
 *
 * Arguments:
 *   span=NAME:call:ADDRESS        from the entry of a function until the instruction after the call that entered it
 *   span=NAME:interrupt:ADDRESS   from the entry of a handler until the iretq that leaves it
 *   out=FILE                      where the counts go
 * with as many spans as fit. Addresses are hexadecimal. Only spans that begin in a window count: a program opens and
 * closes windows by two no-operations with a number in them (workloads/measured_loop.c).
 *
 * At its end each window becomes one JSON line: all instructions of each CPU, and for each span on each CPU the number of
 * runs and its counts. Two parts are subtracted from a span: handlers with a span of their own that interrupt it, and
 * waiting, which is reported separately. The instructions between two executions of the same PAUSE, with no other PAUSE
 * and no other end of a span between them, are one iteration of a wait loop.
 *
 * For emulation with one thread (thread=single, which -icount implies): there are no locks. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of QEMU's plugin interface that is used here. The caller compiles for the version that its QEMU accepts: 1
 * for QEMU 7.2; since 3 the bytes of an instruction are copied out. */
typedef uint64_t qemu_plugin_id_t;
typedef struct qemu_info_t qemu_info_t;
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
/* Spans of one kind on one CPU in one window whose counts are kept, for the median; all are in the sums. */
#define KEPT 65536

struct span {
    char name[64];
    bool interrupt;
    uint64_t entry;
};
static struct span spans[SPANS];
static unsigned span_count;
static FILE *out;

/* An open span of a CPU. */
struct open {
    bool is;
    uint64_t back; /* where it ends, for a call */
    uint64_t from, waited, handled;
};

/* The counts of one span on one CPU in this window. */
struct tally {
    uint64_t times, sum, waited;
    uint32_t *kept;
};

static struct cpu {
    uint64_t executed, waited; /* all, and of those in wait loops */
    uint64_t handled;          /* of those in handlers that are spans */
    uint64_t pc, size; /* of the instruction before */
    uint64_t pause, paused_at;
    uint64_t begun; /* executed when the window opened */
    struct open open[SPANS];
    struct tally tally[SPANS];
} cpus[CPUS];

static bool window;

enum kind { ORDINARY, PAUSE, IRETQ, BEGINS, ENDS };

static void begin_window(void)
{
    window = true;
    for (unsigned c = 0; c < CPUS; c++) {
        cpus[c].begun = cpus[c].executed;
        for (unsigned s = 0; s < span_count; s++) {
            cpus[c].open[s].is = false;
            cpus[c].tally[s].times = cpus[c].tally[s].sum = cpus[c].tally[s].waited = 0;
        }
    }
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void end_window(void)
{
    if (!window)
        return;
    window = false;
    const char *between = "";
    fprintf(out, "{\"cpus\":[");
    for (unsigned c = 0; c < CPUS; c++) {
        struct cpu *cpu = &cpus[c];
        if (!cpu->executed)
            continue;
        fprintf(out, "%s{\"cpu\":%u,\"instructions\":%" PRIu64 ",\"spans\":[", between, c, cpu->executed - cpu->begun);
        between = "";
        for (unsigned s = 0; s < span_count; s++) {
            struct tally *tally = &cpu->tally[s];
            if (!tally->times)
                continue;
            size_t kept = tally->times < KEPT ? tally->times : KEPT;
            qsort(tally->kept, kept, sizeof *tally->kept, by_size);
            fprintf(out,
                    "%s{\"name\":\"%s\",\"times\":%" PRIu64 ",\"sum\":%" PRIu64 ",\"waiting\":%" PRIu64
                    ",\"least\":%" PRIu32 ",\"median\":%" PRIu32 ",\"most\":%" PRIu32 "}",
                    between, spans[s].name, tally->times, tally->sum, tally->waited, tally->kept[0],
                    tally->kept[kept / 2], tally->kept[kept - 1]);
            between = ",";
        }
        fprintf(out, "]}");
        between = ",";
    }
    fprintf(out, "]}\n");
    fflush(out);
}

/* Records a span that ends now, after `executed` instructions. */
static void close_span(struct cpu *cpu, unsigned s)
{
    struct open *open = &cpu->open[s];
    struct tally *tally = &cpu->tally[s];
    uint64_t waited = cpu->waited - open->waited;
    uint64_t worked = cpu->executed - open->from - waited - (cpu->handled - open->handled);
    open->is = false;
    cpu->pause = 0;
    if (spans[s].interrupt) {
        cpu->handled += worked + waited;
        cpu->waited = open->waited;
    }
    if (!tally->kept && !(tally->kept = malloc(KEPT * sizeof *tally->kept)))
        abort();
    if (tally->times < KEPT)
        tally->kept[tally->times] = worked > UINT32_MAX ? UINT32_MAX : (uint32_t)worked;
    tally->times++;
    tally->sum += worked;
    tally->waited += waited;
}

/* An instruction is about to be executed. `executed` counts those before it. */
static inline void step(unsigned index, uint64_t pc, unsigned size, enum kind kind)
{
    struct cpu *cpu = &cpus[index % CPUS];
    if (window) {
        for (unsigned s = 0; s < span_count; s++) {
            struct open *open = &cpu->open[s];
            if (open->is && !spans[s].interrupt && pc == open->back)
                close_span(cpu, s);
            if (!open->is && pc == spans[s].entry) {
                /* The instruction before it was the call. */
                *open = (struct open){true, cpu->pc + cpu->size, cpu->executed, cpu->waited, cpu->handled};
                cpu->pause = 0;
            }
        }
    }
    if (kind == PAUSE) {
        if (cpu->pause == pc)
            cpu->waited += cpu->executed - cpu->paused_at;
        cpu->pause = pc;
        cpu->paused_at = cpu->executed;
    }
    cpu->executed++;
    cpu->pc = pc;
    cpu->size = size;
    if (kind == IRETQ) {
        for (unsigned s = 0; s < span_count; s++)
            if (cpu->open[s].is && spans[s].interrupt)
                close_span(cpu, s);
    } else if (kind == BEGINS) {
        begin_window();
    } else if (kind == ENDS) {
        end_window();
    }
}

/* One callback for each kind; the rest is packed into the interface's user word. The address of an x86-64
 * instruction needs 48 bits and its sign, its size 4 bits. */
#define STEP(name, kind) \
    static void name(unsigned index, void *packed) \
    { \
        uint64_t word = (uint64_t)packed; \
        step(index, (uint64_t)((int64_t)word >> 4), word & 15, kind); \
    }
STEP(ordinary, ORDINARY)
STEP(pause_loop, PAUSE)
STEP(iretq, IRETQ)
STEP(begins, BEGINS)
STEP(ends, ENDS)

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    static const uint8_t begin_bytes[] = {0x0f, 0x1f, 0x80, 0x31, 0x42, 0x64, 0x53};
    static const uint8_t end_bytes[] = {0x0f, 0x1f, 0x80, 0x32, 0x45, 0x64, 0x53};
    size_t count = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        size_t size = qemu_plugin_insn_size(instruction);
#if PLUGIN_VERSION >= 3
        uint8_t bytes[16] = {0};
        qemu_plugin_insn_data(instruction, bytes, sizeof bytes);
#else
        const uint8_t *bytes = qemu_plugin_insn_data(instruction);
#endif
        void (*call)(unsigned, void *) = ordinary;
        if (size == 2 && bytes[0] == 0xf3 && bytes[1] == 0x90)
            call = pause_loop;
        else if (size == 2 && bytes[0] == 0x48 && bytes[1] == 0xcf)
            call = iretq;
        else if (size == sizeof begin_bytes && !memcmp(bytes, begin_bytes, size))
            call = begins;
        else if (size == sizeof end_bytes && !memcmp(bytes, end_bytes, size))
            call = ends;
        uint64_t word = qemu_plugin_insn_vaddr(instruction) << 4 | (size & 15);
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, call, QEMU_PLUGIN_CB_NO_REGS, (void *)word);
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
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "out=", 4)) {
            out = fopen(argv[i] + 4, "w");
            continue;
        }
        char kind[16];
        struct span *span = &spans[span_count];
        if (span_count == SPANS ||
            sscanf(argv[i], "span=%63[^:]:%15[^:]:%" SCNx64, span->name, kind, &span->entry) != 3 ||
            (strcmp(kind, "call") && strcmp(kind, "interrupt"))) {
            fprintf(stderr, "spans: not a span, or too many: %s\n", argv[i]);
            return 1;
        }
        span->interrupt = !strcmp(kind, "interrupt");
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
