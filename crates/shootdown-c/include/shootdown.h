/* Shootdown: TLB coherence for kernels written in C. Link libshootdown_c.a.
 *
 * Generated from crates/shootdown-c/src by `cargo test -p shootdown-c -- --ignored`; a test fails when it is not.
 *
 * Build for a kernel: cargo rustc -p shootdown-c --release --no-default-features --target x86_64-unknown-none
 *                     --crate-type staticlib
 * Then the kernel supplies `shootdown_panic` besides the hooks.
 *
 * For kernels on x86-64, AArch64 (aarch64-unknown-none-softfloat) and RISC-V (riscv64gc-unknown-none-elf), and threads of a
 * host.
 *
 * Every call may be made on any CPU that is online, in any context but NMI, unless it says otherwise. None allocates. A kernel
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

/* Words of a set of CPUs: machines of up to 64 times as many CPUs. Build the library and what includes this with the same:
 * SHOOTDOWN_CPU_WORDS=2 cargo rustc ..., cc -DSHOOTDOWN_CPU_WORDS=2 ... */
#ifndef SHOOTDOWN_CPU_WORDS
#define SHOOTDOWN_CPU_WORDS 1
#endif

/* Bytes for an engine of so many CPUs, in a static array of SHOOTDOWN_ALIGNMENT. tags: one past the last tag of the machine
 * where the design has system-wide tags ("broadcast", "adaptive" and so on), 0 where each CPU gives out its own ("ipi"). */
#define SHOOTDOWN_ENGINE_SIZE(cpus, tags) (SHOOTDOWN_ENGINE_FIXED + (cpus) * SHOOTDOWN_CPU_SIZE + ((tags) + 63) / 64 * 24)


/**
 * The tag bit of the user half of a pair.
 */
#define SHOOTDOWN_USER_HALF (1 << 11)

/**
 * To what the memory of an engine or a space is aligned, bytes: a cache line.
 */
#define SHOOTDOWN_ALIGNMENT 64

/**
 * Bytes of a space.
 */
#define SHOOTDOWN_SPACE_SIZE (704 + (16 * SHOOTDOWN_CPU_WORDS))

/**
 * Bytes of an engine without its CPUs and tags.
 */
#define SHOOTDOWN_ENGINE_FIXED (1664 + (16 * SHOOTDOWN_CPU_WORDS))

/**
 * Bytes of each CPU of an engine.
 */
#define SHOOTDOWN_CPU_SIZE 1600

/**
 * Words of a token.
 */
#define SHOOTDOWN_TOKEN_WORDS (32 + SHOOTDOWN_CPU_WORDS)

/**
 * Words of a gather.
 */
#define SHOOTDOWN_GATHER_WORDS 24

/**
 * Words of a batch.
 */
#define SHOOTDOWN_BATCH_WORDS (56 + SHOOTDOWN_CPU_WORDS)

/**
 * Words of a walk.
 */
#define SHOOTDOWN_WALK_WORDS 6

/**
 * Words of a deferral.
 */
#define SHOOTDOWN_DEFERRAL_WORDS 4

/**
 * What one local invalidation takes away.
 */
enum shootdown_what {
    /**
     * A page (of each page, in a broadcast) under one tag, with the paging-structure entries of that tag on the way to
     * it unless leaf_only is set.
     */
    SHOOTDOWN_PAGES = 0,
    /**
     * Every non-global entry under one tag.
     */
    SHOOTDOWN_TAG,
    /**
     * Pages under every tag, global entries included: kernel pages, and in a broadcast user pages of a space without a
     * system-wide tag, too. In a broadcast the paging-structure entries on the way go, too.
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
 * Why there is no engine.
 */
enum shootdown_status {
    /**
     * There is one.
     */
    SHOOTDOWN_OK = 0,
    /**
     * No design has that name, or the library is built for another design alone.
     */
    SHOOTDOWN_UNKNOWN_DESIGN,
    /**
     * No CPU, or more than 64 * SHOOTDOWN_CPU_WORDS; or cpu_words is not what the library was built for.
     */
    SHOOTDOWN_BAD_CPUS,
    /**
     * A required hook is null; or the machine broadcasts, and broadcast or broadcast_sync is; or pin or
     * unpin is, and the kernel does not say that it is not preemptible.
     */
    SHOOTDOWN_MISSING_HOOK,
    /**
     * A null pointer, or memory that is too small or not aligned.
     */
    SHOOTDOWN_BAD_MEMORY,
    /**
     * Policy and machine do not fit each other or the CPUs; each field says what it may be. Under designs that give
     * tags out system-wide only, tags must outnumber the CPUs. Where the library is built for one design, its policy
     * cannot be changed.
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
 * What the kernel may change of a design. shootdown_design gives the design's own.
 */
struct shootdown_policy {
    /**
     * Pages up to which a range is flushed page by page; above, the whole tag goes.
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
     * Samples in a row that must find a space better off without its tag before it gives it up; for "adaptive".
     */
    uint32_t demote_after;
    /**
     * Frames that unmaps on one CPU may keep waiting; for "deferred".
     */
    uint32_t defer_frames;
    /**
     * Wait in ns after which a CPU that has not answered is reported to the hook `stuck`; 0 reports never.
     */
    uint64_t stuck_ns;
};

/**
 * What the machine can do. shootdown_design gives x86 with PCIDs and the errata that are part of the design.
 */
struct shootdown_machine {
    /**
     * One past the last tag: 4096 with PCIDs, at most 65536. 1 or 0 where there are none: then every hook is given tag
     * 0 and load_root never `keep`, and both may be ignored.
     */
    uint32_t tag_limit;
    /**
     * First tag that the engine may use, from 1.
     */
    uint16_t first_tag;
    /**
     * User and kernel halves under pairs of tags that differ in SHOOTDOWN_USER_HALF (PTI). The hooks are asked for
     * both of every pair.
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
 * One invalidation. Fields that `what` has no use for are 0.
 */
struct shootdown_invalidation {
    /**
     * What goes.
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
     * Only leaf entries need go: no table page is being freed.
     */
    bool leaf_only;
};

/**
 * What a flush covers. First and last byte are rounded to pages.
 */
struct shootdown_range {
    /**
     * First byte.
     */
    uint64_t start;
    /**
     * One past the last; when it is not above start, the page at start is meant.
     */
    uint64_t end;
    /**
     * log2 of the smallest page that was withdrawn: 12, 21 or 30. Anything else is taken for 12, which flushes no
     * less.
     */
    uint32_t page_shift;
    /**
     * Whether table pages are being freed: then the CPUs' caches of upper levels go, too.
     */
    bool tables;
};

/**
 * A CPU that did not answer in time. The wait goes on after the report.
 */
struct shootdown_stuck {
    /**
     * Who waits.
     */
    uint32_t waiter;
    /**
     * Who has not answered.
     */
    uint32_t target;
    /**
     * Number of the space whose flush is waited for; 0 for kernel ranges and batches.
     */
    uint64_t space;
    /**
     * Generation asked for; 0 when the request has none.
     */
    uint64_t generation;
};

/**
 * What the kernel does for the engine. Each gets the pointer that is given with them. None may allocate, take a lock,
 * or call the engine. The first six are required; so are pin and unpin, unless the settings say that the kernel is not
 * preemptible. The others may be null.
 *
 * A library with the feature `instructions` executes them itself, on kernels. It uses none of interrupts_off,
 * interrupts_restore, interrupts_are_off, invalidate, load_root, local_sync, broadcast and broadcast_sync.
 */
struct shootdown_hooks {
    /**
     * The number of the CPU this runs on, from 0, dense. Called pinned or with interrupts off, from NMI context where
     * a call may be made there, and by waiters that may migrate, to which an answer that was true a moment ago is good
     * enough.
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
     * is bit n % 64 of word n / 64; never the sender). Their handlers call shootdown_on_ipi. Called pinned. By x2APIC:
     * mfence and lfence first, since what sends is no store.
     */
    void (*send_ipi)(void *kernel, const uint64_t *targets);
    /**
     * Carries out one local invalidation: complete on return, or at the latest when local_sync returns. Called pinned
     * or with interrupts off.
     */
    void (*invalidate)(void *kernel, const struct shootdown_invalidation *what);
    /**
     * Loads a top table under a tag. With keep, entries under the tag survive (x86 NOFLUSH); without, every non-global
     * entry under it is gone on return. Called with interrupts off.
     */
    void (*load_root)(void *kernel, uint64_t root, uint16_t tag, bool keep);
    /**
     * Whether interrupts are off on this CPU. Null: they may be.
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
     * Monotonic time, ns. Null: no reports of CPUs that are stuck, and promotion is left to few CPUs.
     */
    uint64_t (*now_ns)(void *kernel);
    /**
     * Asks the hypervisor to flush everything of a virtual CPU before it runs again; true when it will, because that
     * is descheduled. One atomic step (KVM: a compare-exchange), or a request is lost.
     */
    bool (*flush_at_entry)(void *kernel, uint32_t cpu);
    /**
     * Tells TLBs that belong to no CPU (an IOMMU) of a flush of the space with that top table, once for every flush
     * (twice where an unmap was to be deferred, and could not be); with a null range, that the space ends. Returns a
     * ticket for secondary_sync, never falling, or 0 when there is nothing to wait for. Called pinned, after a full
     * barrier.
     */
    uint64_t (*secondary)(void *kernel, uint64_t root, const struct shootdown_range *range);
    /**
     * Waits until all up to that ticket is carried out. It may not depend on another CPU.
     */
    void (*secondary_sync)(void *kernel, uint64_t ticket);
    /**
     * A CPU has not answered for a long time. Log it.
     */
    void (*stuck)(void *kernel, const struct shootdown_stuck *report);
};

/**
 * The machine, the design and the hooks. Zero what is not used.
 */
struct shootdown_settings {
    /**
     * The hooks; copied.
     */
    struct shootdown_hooks hooks;
    /**
     * What each hook gets. Shared by all CPUs; used for as long as the engine is.
     */
    void *kernel;
    /**
     * Name of the design, as in `shootdown list`: "ipi", "broadcast", "adaptive", "arm-local-first" and so on. Null for
     * the one that the library is built for (the variable SHOOTDOWN_DESIGN of its build).
     */
    const char *design;
    /**
     * The changes to its policy; null for none. shootdown_engine_init alone reads it, and the machine.
     */
    const struct shootdown_policy *policy;
    /**
     * The machine; null for x86 with PCIDs, not split, or for the one that a library with the feature `instructions`
     * finds.
     */
    const struct shootdown_machine *machine;
    /**
     * SHOOTDOWN_CPU_WORDS, so that a header that differs from the library is found out.
     */
    uint32_t cpu_words;
    /**
     * CPUs of the machine, those that are off included.
     */
    uint32_t cpus;
    /**
     * The kernel is never preempted: no thread is taken off its CPU but where it asks for it. Then pin and unpin may
     * be null.
     */
    bool not_preemptible;
    /**
     * Most 4 KiB pages in one broadcast instruction (CPUID 8000_0008, EDX bits 15 to 0, + 1); 0 where nothing can be
     * broadcast.
     */
    uint32_t broadcast_pages;
    /**
     * Most 2 MiB pages in one; 0 is taken for 1.
     */
    uint32_t broadcast_large_pages;
    /**
     * Whether a broadcast is carried out by interrupting every other CPU, as firmware of RISC-V does (SBI RFENCE).
     */
    bool broadcast_interrupts;
    /**
     * The top table that maps the kernel only.
     */
    uint64_t kernel_root;
};

/**
 * A flush that must be waited for before anything is freed, once. It may be waited for on another CPU.
 */
struct shootdown_token {
    uint64_t opaque[SHOOTDOWN_TOKEN_WORDS];
};

/**
 * An unmap that is being gathered. It stays where it is from its beginning to its end.
 */
struct shootdown_gather {
    uint64_t opaque[SHOOTDOWN_GATHER_WORDS];
};

/**
 * Frees frames: the flush that covers them is complete, on every CPU. Page-table pages are among them only when no
 * lockless walk can hold a link to them. Called in the context of the call that flushed.
 */
typedef void (*shootdown_free_frames)(void *context,
                                      const uint64_t *pages,
                                      size_t page_count,
                                      const uint64_t *tables,
                                      size_t table_count);

/**
 * Flushes of many spaces that are waited for once.
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
 * The deferrals that were over at some moment.
 */
struct shootdown_deferrals_over {
    uint64_t opaque[1];
};

/**
 * A grace period that table pages wait for.
 */
struct shootdown_grace {
    uint64_t opaque[1];
};

/**
 * The grace periods that were over at some moment.
 */
struct shootdown_graces_over {
    uint64_t opaque[1];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Writes what the design of that name comes to, for the kernel to change and to give in the settings. False when there
 * is no such design. Either pointer may be null. Any context.
 *
 * # Safety
 * The pointers are valid, or null; `name` is a string.
 */
bool shootdown_design(const char *name, struct shootdown_policy *policy, struct shootdown_machine *machine);

/**
 * Writes the machine that this CPU is part of, for the kernel to change and to give in the settings. False in a library
 * without the feature `instructions`. On a CPU that has loaded the kernel's top table.
 *
 * # Safety
 * The pointer is valid; kernel_root is the top table that maps the kernel only.
 */
bool shootdown_machine_found(uint64_t kernel_root, struct shootdown_machine *machine);

/**
 * Bytes that an engine of these settings needs: by its CPUs and, where its design has system-wide tags, by the tags of
 * the machine. 0 for settings of which no engine is made. The hooks may be missing. Any context.
 *
 * # Safety
 * The pointers are valid, or null.
 */
size_t shootdown_engine_size(const struct shootdown_settings *settings);

/**
 * To what the memory of engines and spaces must be aligned, bytes. Any context.
 */
size_t shootdown_alignment(void);

/**
 * Makes an engine in memory of that many bytes, with every CPU off. Before the second CPU starts. The memory is the
 * engine's for ever.
 *
 * # Safety
 * The pointers are valid, or null; the hooks do what they promise, on every CPU.
 */
enum shootdown_status shootdown_engine_init(void *memory,
                                            size_t size,
                                            const struct shootdown_settings *settings,
                                            struct shootdown_engine **engine);

/**
 * Measures what each way of reaching other CPUs costs: once, when all CPUs are up, for the design "adaptive". Does
 * nothing in a library without it. Some microseconds. Context: as shootdown_flush.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_calibrate(const struct shootdown_engine *engine);

/**
 * The shootdown interrupt has arrived. In its handler, interrupts off, on a CPU that does not change meanwhile, after
 * it was acknowledged where the controller wants that. By hand, to poll, only outside of walks and of other calls.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_on_ipi(const struct shootdown_engine *engine);

/**
 * Bytes that a space needs. Any context.
 */
size_t shootdown_space_size(void);

/**
 * Makes an address space in memory of that size and alignment; null when it is not aligned. Nothing is to be undone:
 * after shootdown_retire the memory may be reused.
 *
 * # Safety
 * The memory is the space's until it is retired.
 */
struct shootdown_space *shootdown_space_init(const struct shootdown_engine *engine, void *memory, uint64_t root);

/**
 * The space ends, no CPU has it loaded but lazily, and nobody walks its tables: those CPUs leave it. Then its memory
 * and its tables may be freed. As shootdown_flush.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_retire(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * This CPU is coming up, with the kernel's top table loaded: before it loads a space, or uses kernel mappings that may
 * change. Interrupts off, and on soon after. A library with the feature `instructions` switches on what it uses of the
 * processor (x86: PCIDs, global pages).
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_cpu_online(const struct shootdown_engine *engine);

/**
 * This CPU is going down: after its last use of user translations and its last walk. From here on nobody waits for it.
 * Interrupts off.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_cpu_offline(const struct shootdown_engine *engine);

/**
 * Loads a space on this CPU, or ends its laziness when it is loaded already. From the scheduler.
 *
 * # Safety
 * The space stays until every CPU has left it: by switching to another or to the kernel, going off, or
 * shootdown_retire.
 */
void shootdown_switch_to(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * Loads the kernel's own top table: this CPU leaves its space.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_switch_to_kernel(const struct shootdown_engine *engine);

/**
 * The loaded space stays loaded, but no user address is touched until shootdown_leave_lazy or shootdown_switch_to.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_enter_lazy(const struct shootdown_engine *engine);

/**
 * Ends laziness, or loads the space if it was unloaded meanwhile. Before any user address is touched.
 *
 * # Safety
 * As shootdown_switch_to.
 */
void shootdown_leave_lazy(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * User code of the loaded space has entered the kernel. When true, shootdown_leave_lazy is owed before any user
 * address is touched, copying routines included, and before the return. Optional; worth it under "adaptive".
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
bool shootdown_enter_kernel(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * Does what other CPUs ask of this CPU, and says whether there was anything: in every loop that waits with interrupts
 * off for something that a CPU may hold while it flushes, as a spin lock. Does nothing inside a walk. Not from NMI
 * context. One load or two when nothing is asked.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
bool shootdown_poll(const struct shootdown_engine *engine);

/**
 * Whether an NMI handler may touch user addresses of the space now. In NMI context.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
bool shootdown_user_access_ok(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * The timer's tick on this CPU, which is in no walk: deferrals and grace periods end by it. Any context with a CPU
 * that cannot change. A load and a compare when nothing waits.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_tick(const struct shootdown_engine *engine);

/**
 * This CPU takes no ticks from now on, although it runs user code: no deferral waits for it, and unmaps that concern
 * it are synchronous. Not in the shootdown handler. CPUs that are idle need not call it.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_tick_stops(const struct shootdown_engine *engine);

/**
 * This CPU takes ticks again.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_tick_resumes(const struct shootdown_engine *engine);

/**
 * Page-table entries of the space were cleared or weakened: on return no CPU uses the old ones, and the frames behind
 * them may be freed. Interrupts on, or requests of others are served while waiting. Hold no lock that another CPU may
 * be spinning for with interrupts off, unless that loop calls shootdown_poll. Not from the shootdown handler, nor in a
 * walk.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_flush(const struct shootdown_engine *engine,
                     const struct shootdown_space *space,
                     struct shootdown_range range);

/**
 * As shootdown_flush, and calls meanwhile(argument) while the others answer: it may let go of the lock that protects
 * the page tables, but not free, sleep, switch or flush.
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
 * Asks for a flush without waiting: fills the token. shootdown_wait is owed before anything is freed. Designs whose
 * requests are on the stack wait inside. Context: as shootdown_flush; above all not in the shootdown handler.
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
 * Whether every CPU has answered a dispatched flush, so that shootdown_wait waits for devices at most. Serves what is
 * asked of this CPU. Context: as shootdown_wait.
 *
 * # Safety
 * The token was filled and not waited for.
 */
bool shootdown_token_poll(const struct shootdown_token *token);

/**
 * Waits for a dispatched flush; with preemption on where the design's waits are preemptible. Not in the handler, nor
 * in a walk.
 *
 * # Safety
 * The token was filled by shootdown_dispatch and not waited for before.
 */
void shootdown_wait(struct shootdown_token *token);

/**
 * As shootdown_flush with range.tables, and waits for lockless walks too: on return table pages that were unlinked
 * before may be freed.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_flush_tables(const struct shootdown_engine *engine,
                            const struct shootdown_space *space,
                            struct shootdown_range range);

/**
 * Kernel mappings were cleared or weakened: as shootdown_flush, on every CPU.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_flush_kernel(const struct shootdown_engine *engine, struct shootdown_range range);

/**
 * Begins to gather an unmap of a space. Frames wait in buffer, which has room for capacity of them, at least one.
 * shootdown_gather_finish is owed.
 *
 * # Safety
 * The gather and the buffer are valid memory, which nobody else uses and which stays where it is until
 * shootdown_gather_finish, as do engine and space. release is not null.
 */
void shootdown_gather_begin(const struct shootdown_engine *engine,
                            const struct shootdown_space *space,
                            struct shootdown_gather *gather,
                            uint64_t *buffer,
                            size_t capacity,
                            shootdown_free_frames release,
                            void *context);

/**
 * Adds the page at address, of 2^page_shift bytes, whose entry was cleared, and the frame that it named. When it
 * returns true the buffer is full: call shootdown_gather_flush where waiting is allowed, before the next frame. The
 * next frame does so otherwise, in the context of shootdown_flush.
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
 * Adds entries that were changed and free nothing. Any context.
 *
 * # Safety
 * The gather was begun and is not finished.
 */
void shootdown_gather_changed(struct shootdown_gather *gather, struct shootdown_range range);

/**
 * Flushes what was gathered, waits, and releases the frames; the gather may be used again. Context: as
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
 * Begins a batch of flushes, as reclaim needs them. shootdown_batch_finish is owed.
 *
 * # Safety
 * The batch is valid memory.
 */
void shootdown_batch_begin(const struct shootdown_engine *engine, struct shootdown_batch *batch);

/**
 * Adds a range of a space whose entries were cleared, under the lock that protects its page table. May wait, as
 * shootdown_flush does, and has its context.
 *
 * # Safety
 * The batch was begun and is not finished.
 */
void shootdown_batch_add(struct shootdown_batch *batch,
                         const struct shootdown_space *space,
                         struct shootdown_range range);

/**
 * Tells everybody concerned, and waits: then all that was added may be freed. Context: as shootdown_flush.
 *
 * # Safety
 * The batch was begun and is not finished.
 */
void shootdown_batch_finish(struct shootdown_batch *batch);

/**
 * Makes sure that no batched unmap of the space is still to be flushed: before relying on an entry that is already
 * clear. Context: as shootdown_flush.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
void shootdown_flush_pending(const struct shootdown_engine *engine, const struct shootdown_space *space);

/**
 * Begins a lockless walk of the space's tables: masks interrupts, and no table page that it can reach is freed until
 * it ends. Nothing may wait meanwhile. Under a design that says that there are such walks ("adaptive", "walk-sticky"
 * and so on).
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
 * Ends a walk, on the CPU where it began. Walks that nest may end in any order.
 *
 * # Safety
 * The walk was begun and has not ended.
 */
void shootdown_walk_end(struct shootdown_walk *walk);

/**
 * For an unmap of private memory that nobody can rely on until somebody maps the range again, for which so many frames
 * wait. False when it was flushed, as by shootdown_flush: range and frames are free. True when it is deferred
 * ("deferred" only): nobody was interrupted, and the range may not be mapped again nor the frames freed before the
 * deferral is released.
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
 * Which deferrals are over, and the next epoch, where the last is over: what was deferred just now takes two calls,
 * with a tick on every CPU that runs user code between them. Reads a line of every CPU: for one CPU now and then, at
 * its tick. Any context with a CPU that cannot change.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
struct shootdown_deferrals_over shootdown_deferrals_over(const struct shootdown_engine *engine);

/**
 * Whether the deferral is over: then it is spent, and what waited for it is free. Any context.
 *
 * # Safety
 * The deferral was filled by a call that returned true, and is not spent; over is valid.
 */
bool shootdown_release(const struct shootdown_engine *engine,
                       struct shootdown_deferral *deferral,
                       const struct shootdown_deferrals_over *over);

/**
 * Ends a deferral at once, for a caller that wants range or frames now: flushes the range. As shootdown_flush. False:
 * the deferral is of another space; it stays as it is, and nothing may be freed.
 *
 * # Safety
 * The deferral was filled for that range, by a call that returned true, and is not spent.
 */
bool shootdown_release_now(const struct shootdown_engine *engine,
                           const struct shootdown_space *space,
                           struct shootdown_range range,
                           struct shootdown_deferral *deferral);

/**
 * As shootdown_flush_tables, for table pages that can wait. False: they may be freed. True ("walk-grace",
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
 * Which grace periods are over. Reads a word of every CPU: at ticks, not for spinning. Not in a walk. A CPU that
 * idles, or runs user code, without ticks holds up all that began since; shootdown_flush_tables interrupts everybody,
 * which ends them.
 *
 * # Safety
 * The pointers were made by this library's init functions, and what they point to still lives.
 */
struct shootdown_graces_over shootdown_graces_over(const struct shootdown_engine *engine);

/**
 * Whether the grace period is over: then the table pages that waited for it may be freed. Any context; it may be asked
 * again.
 *
 * # Safety
 * Grace was filled by a call that returned true; over is valid.
 */
bool shootdown_grace_is_over(const struct shootdown_grace *grace, const struct shootdown_graces_over *over);

/**
 * Supplied by the kernel where this library is built without `std`: a rule of an interface was broken. The text,
 * which has no zero at its end, names it and the place. Must not return.
 */
extern void shootdown_panic(const char *text, size_t length);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SHOOTDOWN_H */
