/* Shootdown: TLB coherence for kernels written in C. Link shootdown.o.
 *
 * Generated from crates/shootdown-c/src by `cargo test -p shootdown-c -- --ignored`; a test fails if it is stale.
 *
 * Build for a kernel: link/shootdown.mk, or link/shootdown.cmake, makes one object; their comments say how.
 * The kernel then supplies the hooks and `shootdown_panic`.
 *
 * For kernels on x86-64, AArch64 (aarch64-unknown-none-softfloat) and RISC-V (riscv64gc-unknown-none-elf), and threads of a
 * host.
 *
 * Call these functions on any online CPU, in any context but NMI, unless a function says otherwise. None allocates. A kernel
 * must not unwind or jump out of a hook. */

#ifndef SHOOTDOWN_H
#define SHOOTDOWN_H


#ifdef __KERNEL__ /* Linux */
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

/* Words of a set of CPUs: one for every 64 CPUs. Build the library and every file that includes this with the same value:
 * SHOOTDOWN_CPU_WORDS=2 cargo rustc ..., cc -DSHOOTDOWN_CPU_WORDS=2 ... */
#ifndef SHOOTDOWN_CPU_WORDS
#define SHOOTDOWN_CPU_WORDS 1
#endif

/* Bytes for an engine of that many CPUs, in a static array aligned to SHOOTDOWN_ALIGNMENT. tags: one past the last tag of the
 * machine if the design has system-wide tags ("broadcast", "adaptive" and so on), 0 if each CPU assigns its own ("ipi"). */
#define SHOOTDOWN_ENGINE_SIZE(cpus, tags) (SHOOTDOWN_ENGINE_FIXED + (cpus) * SHOOTDOWN_CPU_SIZE + ((tags) + 63) / 64 * 24)


/**
 * The tag bit of the user half of a pair.
 */
#define SHOOTDOWN_USER_HALF (1 << 11)

/**
 * Alignment of the memory of an engine or a space, bytes: a cache line.
 */
#define SHOOTDOWN_ALIGNMENT 64

/**
 * Bytes of a space.
 */
#define SHOOTDOWN_SPACE_SIZE (704 + (16 * SHOOTDOWN_CPU_WORDS))

/**
 * Bytes of an engine without its CPUs and tags.
 */
#define SHOOTDOWN_ENGINE_FIXED (1664 + (24 * SHOOTDOWN_CPU_WORDS))

/**
 * Bytes of each CPU of an engine.
 */
#define SHOOTDOWN_CPU_SIZE 1600

/**
 * Words of a token.
 */
#define SHOOTDOWN_TOKEN_WORDS (40 + SHOOTDOWN_CPU_WORDS)

/**
 * Words of a gather.
 */
#define SHOOTDOWN_GATHER_WORDS 24

/**
 * Words of a batch.
 */
#define SHOOTDOWN_BATCH_WORDS (65 + SHOOTDOWN_CPU_WORDS)

/**
 * Words of a walk.
 */
#define SHOOTDOWN_WALK_WORDS 6

/**
 * Words of a deferral.
 */
#define SHOOTDOWN_DEFERRAL_WORDS 4

/**
 * The kind of an event.
 */
enum shootdown_event_kind {
    /**
     * A flush needed no other CPU.
     */
    SHOOTDOWN_EVENT_LOCAL_ONLY = 0,
    /**
     * A flush sent IPIs to `count` CPUs, and waits for `targets`.
     */
    SHOOTDOWN_EVENT_INTERRUPTED,
    /**
     * A flush was broadcast, in `count` instructions.
     */
    SHOOTDOWN_EVENT_BROADCAST,
    /**
     * An unmap was deferred; `count` frames wait.
     */
    SHOOTDOWN_EVENT_DEFERRED,
    /**
     * This CPU has answered a request: it invalidated.
     */
    SHOOTDOWN_EVENT_ANSWERED_FLUSHED,
    /**
     * It had already caught up.
     */
    SHOOTDOWN_EVENT_ANSWERED_CURRENT,
    /**
     * It has unloaded the space.
     */
    SHOOTDOWN_EVENT_ANSWERED_UNLOADED,
    /**
     * It does not run the space.
     */
    SHOOTDOWN_EVENT_ANSWERED_ELSEWHERE,
    /**
     * This CPU has caught up with a space, page by page.
     */
    SHOOTDOWN_EVENT_CAUGHT_UP_PARTLY,
    /**
     * This CPU has caught up by flushing a whole tag.
     */
    SHOOTDOWN_EVENT_CAUGHT_UP_WHOLE,
    /**
     * A space was given a system-wide tag.
     */
    SHOOTDOWN_EVENT_PROMOTED,
    /**
     * A space was due for one, but none was free.
     */
    SHOOTDOWN_EVENT_TAGS_EXHAUSTED,
    /**
     * System-wide tags rolled over.
     */
    SHOOTDOWN_EVENT_ROLL_OVER,
    /**
     * A space is active on `targets` CPUs, and qualifies for a system-wide tag.
     */
    SHOOTDOWN_EVENT_PROMOTING,
    /**
     * A space, active on `targets` CPUs, begins to give up its system-wide tag.
     */
    SHOOTDOWN_EVENT_DEMOTING,
    /**
     * A space is back on per-CPU tags.
     */
    SHOOTDOWN_EVENT_DEMOTED,
    /**
     * A space changed between registered and published walks.
     */
    SHOOTDOWN_EVENT_WALKS_CHANGED,
    /**
     * Costs were measured.
     */
    SHOOTDOWN_EVENT_CALIBRATED,
    /**
     * A request for `targets` other CPUs chose IPIs or broadcast by cost.
     */
    SHOOTDOWN_EVENT_CHOSE,
    /**
     * A request for `targets` other CPUs was timed: `before` ns were predicted, `after` ns measured.
     */
    SHOOTDOWN_EVENT_MEASURED,
    /**
     * The least number of other CPUs for a broadcast changed from `before` to `after`.
     */
    SHOOTDOWN_EVENT_THRESHOLD_MOVED,
};

/**
 * Whether a CPU had interrupts off.
 */
enum shootdown_interrupts {
    /**
     * A release build of the library does not know.
     */
    SHOOTDOWN_INTERRUPTS_UNKNOWN = 0,
    /**
     * On.
     */
    SHOOTDOWN_INTERRUPTS_ON,
    /**
     * Off.
     */
    SHOOTDOWN_INTERRUPTS_OFF,
};

/**
 * The entries that one invalidation removes.
 */
enum shootdown_what {
    /**
     * Pages under one tag (one page in a local invalidation), with the paging-structure entries of that tag on the
     * path unless leaf_only is set.
     */
    SHOOTDOWN_PAGES = 0,
    /**
     * Every non-global entry under one tag.
     */
    SHOOTDOWN_TAG,
    /**
     * Pages under every tag, global entries included: kernel pages, and in a broadcast user pages of a space without a
     * system-wide tag, too. In a broadcast the paging-structure entries on the way go, too, unless leaf_only is set.
     */
    SHOOTDOWN_PAGES_EVERY_TAG,
    /**
     * Every non-global entry under every tag. Broadcasts only.
     */
    SHOOTDOWN_NON_GLOBAL,
    /**
     * Everything, global entries included.
     */
    SHOOTDOWN_ALL,
};

/**
 * The result of making an engine.
 */
enum shootdown_status {
    /**
     * Success.
     */
    SHOOTDOWN_OK = 0,
    /**
     * No design has that name, or the library is built for another design.
     */
    SHOOTDOWN_UNKNOWN_DESIGN,
    /**
     * No CPU, or more than 64 * SHOOTDOWN_CPU_WORDS; or cpu_words differs from the library's.
     */
    SHOOTDOWN_BAD_CPUS,
    /**
     * A required hook is null; or broadcast or broadcast_sync, and the machine broadcasts; or pin or unpin, and the
     * settings do not say that the kernel is not preemptible.
     */
    SHOOTDOWN_MISSING_HOOK,
    /**
     * A null pointer, or memory that is too small or not aligned.
     */
    SHOOTDOWN_BAD_MEMORY,
    /**
     * Policy and machine do not fit each other or the CPUs; each field documents its range. Under designs with
     * system-wide tags only, tags must outnumber the CPUs. Where the library is built for one design, its policy is
     * fixed.
     */
    SHOOTDOWN_DOES_NOT_FIT,
};

/**
 * TLB coherence for one machine.
 */
struct shootdown_engine;

/**
 * An address space.
 */
struct shootdown_space;

/**
 * The settings of a design that the kernel may change. shootdown_design writes the design's own.
 */
struct shootdown_policy {
    /**
     * Pages up to which a range is flushed page by page; above, the whole tag is flushed.
     */
    uint32_t ceiling;
    /**
     * Per-CPU tags in use, 1 to 16.
     */
    uint8_t slots;
    /**
     * One request in this many, a power of two, is timed; for "adaptive".
     */
    uint32_t sample_one_in;
    /**
     * Consecutive samples that must favour a space without its tag before it gives the tag up; for "adaptive".
     */
    uint32_t demote_after;
    /**
     * Frames that unmaps on one CPU may defer; for "deferred".
     */
    uint32_t defer_frames;
    /**
     * Wait in ns after which a CPU that has not answered is reported to the hook `stuck`; 0 reports never.
     */
    uint64_t stuck_ns;
};

/**
 * The features of the machine. shootdown_design writes x86 with PCIDs and the errata that are part of the design.
 */
struct shootdown_machine {
    /**
     * One past the last tag: 4096 with PCIDs, at most 65536. 1 or 0 without tags: then every hook receives tag 0 and
     * load_root never receives `keep`, and both may be ignored.
     */
    uint32_t tag_limit;
    /**
     * First tag that the engine may use, from 1.
     */
    uint16_t first_tag;
    /**
     * User and kernel halves under pairs of tags that differ in SHOOTDOWN_USER_HALF (PTI). The hooks receive both of
     * every pair.
     */
    bool split;
    /**
     * Erratum: never broadcast.
     */
    bool never_broadcast;
    /**
     * Erratum: interrupt as well as broadcast.
     */
    bool interrupt_too;
    /**
     * Erratum: invalidate and synchronise twice.
     */
    bool repeat;
};

/**
 * The range of a flush. First and last byte are rounded to pages.
 */
struct shootdown_range {
    /**
     * First byte.
     */
    uint64_t start;
    /**
     * One past the last byte; if it is not above start, the range is the page at start.
     */
    uint64_t end;
    /**
     * log2 of the smallest page that was withdrawn: 12, 21 or 30. Any other value counts as 12, which flushes no less.
     */
    uint32_t page_shift;
    /**
     * Whether page-table pages are being freed: then the CPUs' paging-structure caches are flushed too.
     */
    bool tables;
};

/**
 * An event. Fields that its kind does not name are 0.
 */
struct shootdown_event {
    /**
     * Its kind.
     */
    enum shootdown_event_kind kind;
    /**
     * CPUs concerned.
     */
    uint32_t targets;
    /**
     * Interrupts, instructions or frames.
     */
    uint32_t count;
    /**
     * The first of two values.
     */
    uint64_t before;
    /**
     * The second.
     */
    uint64_t after;
};

/**
 * A CPU that did not answer in time. The wait continues after the report.
 */
struct shootdown_stuck {
    /**
     * The waiting CPU.
     */
    uint32_t waiter;
    /**
     * The CPU that has not answered.
     */
    uint32_t target;
    /**
     * Number of the space whose flush is waited for; 0 for kernel ranges and batches.
     */
    uint64_t space;
    /**
     * Requested generation; 0 when the request has none.
     */
    uint64_t generation;
    /**
     * Whether the target had interrupts off when the library last saw it. If they were off, look for a loop that waits
     * with interrupts off and does not call shootdown_poll. Known if the library has debug assertions
     * (SHOOTDOWN_DEBUG of link/shootdown.mk) and the hook interrupts_are_off.
     */
    enum shootdown_interrupts interrupts;
};

/**
 * One invalidation. Fields that `what` does not use are 0.
 */
struct shootdown_invalidation {
    /**
     * The entries to remove.
     */
    enum shootdown_what what;
    /**
     * log2 of the size of a page in bytes: 12, 21 or 30.
     */
    uint32_t page_shift;
    /**
     * First byte of the first page.
     */
    uint64_t address;
    /**
     * Pages, from 1 (not "extra pages"); 1 in a local invalidation.
     */
    uint32_t count;
    /**
     * PCID or ASID.
     */
    uint16_t tag;
    /**
     * Only leaf entries need to be removed: no page-table page is being freed.
     */
    bool leaf_only;
};

/**
 * The kernel's hooks for the engine. Each receives the context pointer of the settings. None may allocate, take a
 * lock, or call the engine. The first six are required; so are pin and unpin, unless the settings say that the kernel
 * is not preemptible. The others may be null.
 *
 * A library that was built with SHOOTDOWN_HOOKS (link/shootdown.mk) ignores these pointers. The kernel then defines
 * the functions shootdown_hook_cpu and so on, below, which are called directly. A hook that SHOOTDOWN_HOOKS does not
 * name is absent, and costs nothing.
 *
 * In a kernel, a library with the feature `instructions` executes the instructions itself. It does not use
 * interrupts_off, interrupts_restore, interrupts_are_off, invalidate, load_root, local_sync, broadcast and
 * broadcast_sync.
 */
struct shootdown_hooks {
    /**
     * Returns the number of the running CPU, from 0, dense. Called pinned or with interrupts off, and from NMI context
     * for calls that are allowed there. Waiters that may migrate also call it; a slightly outdated answer suffices for
     * them.
     */
    uint32_t (*cpu)(void *kernel);
    /**
     * Masks interrupts on this CPU; returns what interrupts_restore needs.
     */
    uint64_t (*interrupts_off)(void *kernel);
    /**
     * Restores the mask that interrupts_off returned.
     */
    void (*interrupts_restore)(void *kernel, uint64_t saved);
    /**
     * Raises the shootdown interrupt on every CPU whose bit is set in the SHOOTDOWN_CPU_WORDS words at targets (CPU n
     * is bit n % 64 of word n / 64; never the sender). Their handlers call shootdown_on_ipi. Called pinned. With
     * x2APIC execute mfence and lfence first, because the write to its command register is not a store.
     */
    void (*send_ipi)(void *kernel, const uint64_t *targets);
    /**
     * Carries out one local invalidation: complete on return, or at the latest when local_sync returns. Called pinned
     * or with interrupts off.
     */
    void (*invalidate)(void *kernel, const struct shootdown_invalidation *what);
    /**
     * Loads a root under a tag. With keep, entries under the tag survive (x86 NOFLUSH). Without it, every non-global
     * entry under the tag is gone on return. Called with interrupts off.
     */
    void (*load_root)(void *kernel, uint64_t root, uint16_t tag, bool keep);
    /**
     * Whether interrupts are off on this CPU. Null: unknown.
     */
    bool (*interrupts_are_off)(void *kernel);
    /**
     * Waits until the local invalidations of this CPU are complete, where invalidate does not (Arm, RISC-V with
     * Svinval).
     */
    void (*local_sync)(void *kernel);
    /**
     * Issues one broadcast invalidation; asynchronous. Called pinned, when broadcast_pages is not 0.
     */
    void (*broadcast)(void *kernel, const struct shootdown_invalidation *what);
    /**
     * Waits until every broadcast of this CPU is complete everywhere; a full barrier. Called pinned, on the CPU that
     * issued.
     */
    void (*broadcast_sync)(void *kernel);
    /**
     * Forbids migration and preemption until unpin; nests.
     */
    void (*pin)(void *kernel);
    /**
     * Ends one pin.
     */
    void (*unpin)(void *kernel);
    /**
     * Monotonic time, ns. Null: stuck CPUs are not reported, and promotion needs few CPUs.
     */
    uint64_t (*now_ns)(void *kernel);
    /**
     * Asks the hypervisor to flush everything of a virtual CPU before it runs again. True if the virtual CPU is
     * descheduled and will be flushed. This must be one atomic step (KVM: a compare-exchange); otherwise a request can
     * be lost.
     */
    bool (*flush_at_entry)(void *kernel, uint32_t cpu);
    /**
     * Flushes secondary TLBs (an IOMMU) for the space with that root. Called once for every flush (twice where an
     * unmap was to be deferred, and could not be); with a null range, the space ends. Returns a ticket for
     * secondary_sync, never falling, or 0 when there is nothing to wait for. Called pinned, after a full barrier.
     */
    uint64_t (*secondary)(void *kernel, uint64_t root, const struct shootdown_range *range);
    /**
     * Waits until all flushes up to that ticket are carried out. It must not depend on another CPU.
     */
    void (*secondary_sync)(void *kernel, uint64_t ticket);
    /**
     * This CPU has left the space with that root, and the kernel's root is loaded. The cause is a request while the
     * space was loaded in lazy TLB mode, the end of the space, shootdown_switch_to_kernel or shootdown_cpu_offline.
     * Not called if another space is loaded instead. The space still exists. Interrupts are off.
     */
    void (*unloaded)(void *kernel, uint64_t root);
    /**
     * Receives the engine's events, for statistics. In any context in which the engine is called; must be cheap.
     */
    void (*event)(void *kernel, const struct shootdown_event *event);
    /**
     * A CPU has not answered for a long time. Log it.
     */
    void (*stuck)(void *kernel, const struct shootdown_stuck *report);
    /**
     * As send_ipi, to one CPU. Null: send_ipi is called.
     */
    void (*send_ipi_to)(void *kernel, uint32_t target);
};

/**
 * The machine, the design and the hooks. Set unused fields to zero.
 */
struct shootdown_settings {
    /**
     * The hooks; copied.
     */
    struct shootdown_hooks hooks;
    /**
     * The context pointer of each hook. Shared by all CPUs; used for the engine's lifetime.
     */
    void *kernel;
    /**
     * Name of the design, as in `shootdown list`: "ipi", "broadcast", "adaptive", "arm-local-first" and so on.
     * Negative controls for tests: "none" invalidates nothing, "local-only" nothing on other CPUs. Null for the design
     * that the library is built for (the variable SHOOTDOWN_DESIGN of its build).
     */
    const char *design;
    /**
     * The changes to its policy; null for none. Only shootdown_engine_init reads it, and the machine.
     */
    const struct shootdown_policy *policy;
    /**
     * The machine. Null for x86 with PCIDs, not split; with the feature `instructions`, for the machine that the
     * library detects.
     */
    const struct shootdown_machine *machine;
    /**
     * SHOOTDOWN_CPU_WORDS, so that a header that differs from the library is detected.
     */
    uint32_t cpu_words;
    /**
     * CPUs of the machine, including those that are offline.
     */
    uint32_t cpus;
    /**
     * The kernel is never preempted: a thread leaves its CPU only at its own request. Then pin and unpin may be
     * null.
     */
    bool not_preemptible;
    /**
     * Most 4 KiB pages in one broadcast instruction (CPUID 8000_0008, EDX bits 15 to 0, + 1); 0 without broadcasts.
     */
    uint32_t broadcast_pages;
    /**
     * Most 2 MiB pages in one; 0 counts as 1.
     */
    uint32_t broadcast_large_pages;
    /**
     * Whether a broadcast interrupts every other CPU, as firmware of RISC-V does (SBI RFENCE).
     */
    bool broadcast_interrupts;
    /**
     * The root that maps only the kernel.
     */
    uint64_t kernel_root;
};

/**
 * A flush that must be waited for, once, before anything is freed. Another CPU may wait for it.
 */
struct shootdown_token {
    uint64_t opaque[SHOOTDOWN_TOKEN_WORDS];
};

/**
 * A gathered unmap. It must not move from its beginning to its end.
 */
struct shootdown_gather {
    uint64_t opaque[SHOOTDOWN_GATHER_WORDS];
};

/**
 * Frees frames: the flush that covers them is complete, on every CPU. Page-table pages are included only when no
 * lockless walk can hold a link to them. Called in the context of the flushing call.
 */
typedef void (*shootdown_free_frames)(void *context,
                                      const uint64_t *pages,
                                      size_t page_count,
                                      const uint64_t *tables,
                                      size_t table_count);

/**
 * Flushes of several spaces with one wait.
 */
struct shootdown_batch {
    uint64_t opaque[SHOOTDOWN_BATCH_WORDS];
};

/**
 * A lockless walk of page tables.
 */
struct shootdown_walk {
    uint64_t opaque[SHOOTDOWN_WALK_WORDS];
};

/**
 * Frames and a virtual range in quarantine after shootdown_flush_later.
 */
struct shootdown_deferral {
    uint64_t opaque[SHOOTDOWN_DEFERRAL_WORDS];
};

/**
 * The set of deferrals that are over.
 */
struct shootdown_deferrals_over {
    uint64_t opaque[1];
};

/**
 * A grace period of unlinked page-table pages.
 */
struct shootdown_grace {
    uint64_t opaque[1];
};

/**
 * The set of grace periods that are over.
 */
struct shootdown_graces_over {
    uint64_t opaque[1];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Writes the settings of the design of that name, for the kernel to change and to pass in the settings. False if there
 * is no such design. Either pointer may be null. Any context.
 *
 * # Safety
 * The pointers are valid, or null; `name` is a string.
 */
bool shootdown_design(const char *name, struct shootdown_policy *policy, struct shootdown_machine *machine);

/**
 * Writes the features of the present machine, for the kernel to change and to pass in the settings. False in a library
 * without the feature `instructions`. On a CPU with the kernel's root loaded.
 *
 * # Safety
 * The pointer is valid; kernel_root is the root that maps only the kernel.
 */
bool shootdown_machine_found(uint64_t kernel_root, struct shootdown_machine *machine);

/**
 * The hook cpu of a library with SHOOTDOWN_HOOKS. SHOOTDOWN_CPU_INSTRUCTION takes its place. The functions below
 * are its other hooks: each has the contract of the member of struct shootdown_hooks with its name. A kernel
 * defines those that SHOOTDOWN_HOOKS names.
 */
extern uint32_t shootdown_hook_cpu(void);

/**
 * The hook send_ipi.
 */
extern void shootdown_hook_send_ipi(const uint64_t *targets);

/**
 * The hook send_ipi_to.
 */
extern void shootdown_hook_send_ipi_to(uint32_t target);

/**
 * The hook pin.
 */
extern void shootdown_hook_pin(void);

/**
 * The hook unpin.
 */
extern void shootdown_hook_unpin(void);

/**
 * The hook now_ns.
 */
extern uint64_t shootdown_hook_now_ns(void);

/**
 * The hook flush_at_entry.
 */
extern bool shootdown_hook_flush_at_entry(uint32_t cpu);

/**
 * The hook secondary.
 */
extern uint64_t shootdown_hook_secondary(uint64_t root, const struct shootdown_range *range);

/**
 * The hook secondary_sync.
 */
extern void shootdown_hook_secondary_sync(uint64_t ticket);

/**
 * The hook unloaded.
 */
extern void shootdown_hook_unloaded(uint64_t root);

/**
 * The hook event.
 */
extern void shootdown_hook_event(const struct shootdown_event *event);

/**
 * The hook stuck.
 */
extern void shootdown_hook_stuck(const struct shootdown_stuck *report);

/**
 * Returns the size in bytes of an engine with these settings. It depends on the number of CPUs and, for designs with
 * system-wide tags, on the tags of the machine. 0 for invalid settings. The hooks may be missing. Any context.
 *
 * # Safety
 * The pointers are valid, or null.
 */
size_t shootdown_engine_size(const struct shootdown_settings *settings);

/**
 * Returns the alignment of the memory of engines and spaces, bytes. Any context.
 */
size_t shootdown_alignment(void);

/**
 * Makes an engine in memory of that many bytes, with every CPU offline. Before the second CPU starts. The engine keeps
 * the memory for ever.
 *
 * # Safety
 * The pointers are valid, or null; the hooks satisfy their contracts, on every CPU.
 */
enum shootdown_status shootdown_engine_init(void *memory,
                                            size_t size,
                                            const struct shootdown_settings *settings,
                                            struct shootdown_engine **engine);

/**
 * Measures the cost of IPIs and broadcasts: once, when all CPUs are online, for the design "adaptive". Does nothing in
 * a library without it. Takes some microseconds. Context: as shootdown_flush.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_calibrate(const struct shootdown_engine *engine);

/**
 * The shootdown interrupt has arrived. In its handler, with interrupts off and without migration, after the
 * acknowledgement if the controller requires one. To poll, call it only outside of walks and of other calls.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_on_ipi(const struct shootdown_engine *engine);

/**
 * Returns the size of a space in bytes. Any context.
 */
size_t shootdown_space_size(void);

/**
 * Makes an address space in memory of that size and alignment; null when it is not aligned. It needs no destructor:
 * after shootdown_retire the memory may be reused.
 *
 * # Safety
 * The memory is the space's until it is retired.
 */
struct shootdown_space *shootdown_space_init(const struct shootdown_engine *engine, void *memory, uint64_t root);

/**
 * Writes the CPUs that may hold entries of the space to the SHOOTDOWN_CPU_WORDS words at cpus (CPU n is bit n % 64 of
 * word n / 64). The set may be outdated, and may still contain CPUs that have left. Any context.
 *
 * # Safety
 * The space was made by shootdown_space_init and lives; cpus is valid memory.
 */
void shootdown_space_cpus(const struct shootdown_space *space, uint64_t *cpus);

/**
 * Ends the space. No CPU has it loaded except in lazy TLB mode, and its tables have no walk: those CPUs leave it. Then
 * its memory and its tables may be freed. Context: as shootdown_flush.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_retire(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * Brings this CPU online, with the kernel's root loaded. Call it before the CPU loads a space, or uses kernel mappings
 * that may change. Interrupts off, and on soon after. A library with the feature `instructions` enables the processor
 * features that it uses (x86: PCIDs, global pages).
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_cpu_online(const struct shootdown_engine *engine);

/**
 * Takes this CPU offline, after its last use of user translations and its last walk. From here on no flush waits for
 * it. Interrupts off.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_cpu_offline(const struct shootdown_engine *engine);

/**
 * Loads a space on this CPU, or ends lazy TLB mode when it is loaded already. From the scheduler.
 *
 * # Safety
 * The space lives until every CPU has left it: by switching to another or to the kernel, going offline, or
 * shootdown_retire.
 */
void shootdown_switch_to(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * As shootdown_switch_to, for a caller that has interrupts off: it neither masks them nor asks whether they are.
 *
 * # Safety
 * As shootdown_switch_to. Interrupts are off on this CPU.
 */
void shootdown_switch_to_interrupts_off(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * Loads the kernel's own root: this CPU leaves its space.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_switch_to_kernel(const struct shootdown_engine *engine);

/**
 * Enters lazy TLB mode: the space stays loaded, but no user address is touched until shootdown_leave_lazy or
 * shootdown_switch_to.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_enter_lazy(const struct shootdown_engine *engine);

/**
 * Ends lazy TLB mode, or loads the space if it was unloaded meanwhile. Call it before any user address is touched.
 *
 * # Safety
 * As shootdown_switch_to.
 */
void shootdown_leave_lazy(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * User code of the loaded space has entered the kernel. If true, call shootdown_leave_lazy before any user address is
 * touched, copying routines included, and before the return. Optional; useful under "adaptive".
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
bool shootdown_enter_kernel(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * Serves requests of other CPUs, and returns whether there were any. Call it in every loop that waits with interrupts
 * off for something that a CPU may hold while it flushes, such as a spin lock. Does nothing inside a walk, and on an
 * offline CPU. Not from NMI context. One or two loads when no request is pending.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
bool shootdown_poll(const struct shootdown_engine *engine);

/**
 * Whether an NMI handler may touch user addresses of the space. In NMI context.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
bool shootdown_user_access_ok(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * The timer tick on this CPU, which is in no walk. Ticks end deferrals and grace periods. Any context with a CPU that
 * cannot change. A load and a compare when nothing is pending.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_tick(const struct shootdown_engine *engine);

/**
 * This CPU takes no ticks from here on, although it runs user code: no deferral waits for it, and unmaps that concern
 * it are synchronous. Not in the shootdown handler. Idle CPUs need not call it.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_tick_stops(const struct shootdown_engine *engine);

/**
 * This CPU takes ticks again.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_tick_resumes(const struct shootdown_engine *engine);

/**
 * Page-table entries of the space were cleared or weakened. On return no CPU uses the old ones, and the frames behind
 * them may be freed. With interrupts off it serves requests of other CPUs while it waits. Hold no lock for which
 * another CPU may spin with interrupts off, unless that loop calls shootdown_poll. Not from the shootdown handler, nor
 * in a walk.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_flush(const struct shootdown_engine *engine,
                     const struct shootdown_space *space,
                     struct shootdown_range range);

/**
 * As shootdown_flush, with the members of the range as arguments. They stay in registers: a structure is stored, and
 * read again. Context: as shootdown_flush.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_flush_pages(const struct shootdown_engine *engine,
                           const struct shootdown_space *space,
                           uint64_t start,
                           uint64_t end,
                           uint32_t page_shift,
                           bool tables);

/**
 * As shootdown_flush, and calls meanwhile(argument) while the targets work. It may release the lock that protects the
 * page tables, but not free, sleep, switch or flush.
 *
 * # Safety
 * As shootdown_flush; meanwhile is a function.
 */
void shootdown_flush_while(const struct shootdown_engine *engine,
                           const struct shootdown_space *space,
                           struct shootdown_range range,
                           void (*meanwhile)(void *argument),
                           void *argument);

/**
 * Sends a flush without waiting: fills the token. shootdown_wait must follow before anything is freed. Designs with
 * requests on the stack wait inside. Context: as shootdown_flush; in particular not in the shootdown handler.
 *
 * # Safety
 * The token is valid memory.
 */
void shootdown_dispatch(const struct shootdown_engine *engine,
                        const struct shootdown_space *space,
                        struct shootdown_range range,
                        struct shootdown_token *token);

/**
 * As shootdown_dispatch, for a range of kernel addresses.
 *
 * # Safety
 * The token is valid memory.
 */
void shootdown_dispatch_kernel(const struct shootdown_engine *engine,
                               struct shootdown_range range,
                               struct shootdown_token *token);

/**
 * Whether every CPU has answered a dispatched flush, so that shootdown_wait waits at most for devices. Serves requests
 * to this CPU. Context: as shootdown_wait.
 *
 * # Safety
 * The token was filled and not waited for.
 */
bool shootdown_token_poll(const struct shootdown_token *token);

/**
 * Waits for a dispatched flush; with preemption on if the design's waits are preemptible. Not in the handler, nor in a
 * walk.
 *
 * # Safety
 * The token was filled by shootdown_dispatch and not waited for before.
 */
void shootdown_wait(struct shootdown_token *token);

/**
 * As shootdown_flush with range.tables, and waits for lockless walks too. On return page-table pages that were
 * unlinked before may be freed.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_flush_tables(const struct shootdown_engine *engine,
                            const struct shootdown_space *space,
                            struct shootdown_range range);

/**
 * Kernel mappings were cleared or weakened: as shootdown_flush, on every CPU.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_flush_kernel(const struct shootdown_engine *engine, struct shootdown_range range);

/**
 * Flushes everything on every CPU: entries of user and kernel pages under every tag. Context: as shootdown_flush.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_flush_all(const struct shootdown_engine *engine);

/**
 * Flushes everything on this CPU only, under every tag: for changes of kernel mappings that no other CPU uses. With
 * PTI or PCIDs a page invalidation would leave entries under other tags. And for a fault at an address whose present
 * entry allows the access: this CPU used the previous entry, which was invalid or less permissive. Any context with a
 * CPU that cannot change.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_flush_this_cpu(const struct shootdown_engine *engine);

/**
 * Begins to gather an unmap of a space. Pending frames are kept in buffer, which has room for capacity of them, at
 * least one. shootdown_gather_finish must follow.
 *
 * # Safety
 * The gather and the buffer are valid memory without other users, which does not move until shootdown_gather_finish,
 * like engine and space. release is not null.
 */
void shootdown_gather_begin(const struct shootdown_engine *engine,
                            const struct shootdown_space *space,
                            struct shootdown_gather *gather,
                            uint64_t *buffer,
                            size_t capacity,
                            shootdown_free_frames release,
                            void *context);

/**
 * Adds the page at address, of 2^page_shift bytes, whose entry was cleared, and its frame. True means that the buffer
 * is full: call shootdown_gather_flush where waiting is allowed, before the next frame. Otherwise the next frame
 * flushes, in the context of shootdown_flush.
 *
 * # Safety
 * The gather was begun and is not finished.
 */
bool shootdown_gather_page(struct shootdown_gather *gather, uint64_t address, uint32_t page_shift, uint64_t frame);

/**
 * Adds a page-table page that was unlinked, and the range that it mapped, in pages of the size of the entry that
 * linked it or smaller. Returns as shootdown_gather_page.
 *
 * # Safety
 * The gather was begun and is not finished.
 */
bool shootdown_gather_table(struct shootdown_gather *gather, struct shootdown_range span, uint64_t frame);

/**
 * Adds changed entries that free nothing. Any context.
 *
 * # Safety
 * The gather was begun and is not finished.
 */
void shootdown_gather_changed(struct shootdown_gather *gather, struct shootdown_range range);

/**
 * Flushes the gathered ranges, waits, and releases the frames; the gather may be used again. Context: as
 * shootdown_flush.
 *
 * # Safety
 * The gather was begun and is not finished.
 */
void shootdown_gather_flush(struct shootdown_gather *gather);

/**
 * The same, and the gather ends.
 *
 * # Safety
 * The gather was begun and is not finished.
 */
void shootdown_gather_finish(struct shootdown_gather *gather);

/**
 * Begins a batch of flushes, as for reclaim. shootdown_batch_finish must follow.
 *
 * # Safety
 * The batch is valid memory.
 */
void shootdown_batch_begin(const struct shootdown_engine *engine, struct shootdown_batch *batch);

/**
 * As shootdown_batch_add, and begins the batch if necessary: the memory of such a batch must be zero at first. For
 * kernels whose batches begin at the first unmap.
 *
 * # Safety
 * The batch is zero, finished, or begun with this engine.
 */
void shootdown_batch_begin_or_add(const struct shootdown_engine *engine,
                                  struct shootdown_batch *batch,
                                  const struct shootdown_space *space,
                                  struct shootdown_range range);

/**
 * Whether the batch was begun and is not finished.
 *
 * # Safety
 * The batch is zero, or was begun.
 */
bool shootdown_batch_is_begun(const struct shootdown_batch *batch);

/**
 * Adds a range of a space whose entries were cleared, under the lock that protects its page table. May wait. Context:
 * as shootdown_flush.
 *
 * # Safety
 * The batch was begun and is not finished.
 */
void shootdown_batch_add(struct shootdown_batch *batch,
                         const struct shootdown_space *space,
                         struct shootdown_range range);

/**
 * Sends the requests and waits. On return the frames of all added ranges may be freed. Does nothing for a batch that
 * has not begun. Context: as shootdown_flush.
 *
 * # Safety
 * The batch is zero, or was begun.
 */
void shootdown_batch_finish(struct shootdown_batch *batch);

/**
 * Flushes the pending batched unmaps of the space. Call it before relying on an entry that is already clear. Context:
 * as shootdown_flush.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
void shootdown_flush_pending(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * Begins a lockless walk of the space's tables: masks interrupts, and no page-table page that it can reach is freed
 * until it ends. Do not wait meanwhile. For designs with lockless walks ("adaptive", "walk-sticky" and so on).
 *
 * # Safety
 * The walk is valid memory.
 */
void shootdown_walk_begin(const struct shootdown_engine *engine,
                          const struct shootdown_space *space,
                          struct shootdown_walk *walk);

/**
 * As shootdown_walk_begin, in NMI context, where it may have interrupted a walk. Masks nothing.
 *
 * # Safety
 * The walk is valid memory.
 */
void shootdown_walk_begin_nmi(const struct shootdown_engine *engine,
                              const struct shootdown_space *space,
                              struct shootdown_walk *walk);

/**
 * Ends a walk, on the CPU where it began. Nested walks may end in any order.
 *
 * # Safety
 * The walk was begun and has not ended.
 */
void shootdown_walk_end(struct shootdown_walk *walk);

/**
 * Unmaps private memory, with that number of frames, that no CPU relies on before the range is mapped again. False: it
 * was flushed, as by shootdown_flush, and range and frames are free. True ("deferred" only): it is deferred and no CPU
 * was interrupted. Then the range may not be mapped again, nor the frames freed, before the deferral is released.
 *
 * # Safety
 * As shootdown_flush; the deferral is valid memory.
 */
bool shootdown_flush_later(const struct shootdown_engine *engine,
                           const struct shootdown_space *space,
                           struct shootdown_range range,
                           uint32_t frames,
                           struct shootdown_deferral *deferral);

/**
 * Returns which deferrals are over, and starts the next epoch if the last is over. A new deferral takes two calls,
 * with a tick on every CPU that runs user code between them. Reads a line of every CPU: call it from one CPU
 * occasionally, at its tick. Any context with a CPU that cannot change.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
struct shootdown_deferrals_over shootdown_deferrals_over(const struct shootdown_engine *engine);

/**
 * Whether the deferral is over. If so, it is consumed, and its range and frames are free. Any context.
 *
 * # Safety
 * The deferral was filled by a call that returned true, and is not consumed; over is valid.
 */
bool shootdown_release(const struct shootdown_engine *engine,
                       struct shootdown_deferral *deferral,
                       const struct shootdown_deferrals_over *over);

/**
 * Ends a deferral at once, for a caller that needs range or frames: flushes the range. Context: as shootdown_flush.
 * False: the deferral is of another space; it is unchanged, and nothing may be freed.
 *
 * # Safety
 * The deferral was filled for that range, by a call that returned true, and is not consumed.
 */
bool shootdown_release_now(const struct shootdown_engine *engine,
                           const struct shootdown_space *space,
                           struct shootdown_range range,
                           struct shootdown_deferral *deferral);

/**
 * As shootdown_flush_tables, for page-table pages that can wait. False: they may be freed. True ("walk-grace",
 * "broadcast"): when the grace period is over.
 *
 * # Safety
 * As shootdown_flush; grace is valid memory.
 */
bool shootdown_flush_tables_later(const struct shootdown_engine *engine,
                                  const struct shootdown_space *space,
                                  struct shootdown_range range,
                                  struct shootdown_grace *grace);

/**
 * Returns which grace periods are over. Reads a word of every CPU: for ticks, not for spinning. Not in a walk. A CPU
 * that idles, or runs user code, without ticks delays all that began since. shootdown_flush_tables interrupts every
 * CPU, which ends them.
 *
 * # Safety
 * The pointers were made by this library's init functions, and their objects still live.
 */
struct shootdown_graces_over shootdown_graces_over(const struct shootdown_engine *engine);

/**
 * Whether the grace period is over. If so, its page-table pages may be freed. Any context; may be called again.
 *
 * # Safety
 * Grace was filled by a call that returned true; over is valid.
 */
bool shootdown_grace_is_over(const struct shootdown_grace *grace, const struct shootdown_graces_over *over);

/**
 * Supplied by the kernel if this library is built without `std`: a rule of an interface was broken. The text,
 * which is not zero-terminated, names it and the place. Must not return.
 */
extern void shootdown_panic(const char *text, size_t length);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SHOOTDOWN_H */
