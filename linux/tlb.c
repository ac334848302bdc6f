// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * TLB coherence of x86-64 by the engine of Shootdown, in place of arch/x86/mm/tlb.c.
 *
 * The engine keeps, for each mm, its generation, the CPUs that may hold its translations, and their PCIDs. Linux keeps
 * cpu_tlbstate.loaded_mm and cpu_tlbstate_shared.is_lazy, which other files read. Only this file writes them.
 */
#include <linux/cpumask.h>
#include <linux/export.h>
#include <linux/init.h>
#include <linux/irqflags.h>
#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/vmstat.h>

#include <asm/apic.h>
#include <asm/cpufeature.h>
#include <asm/hardirq.h>
#include <asm/idtentry.h>
#include <asm/mmu_context.h>
#include <asm/nospec-branch.h>
#include <asm/perf_event.h>
#include <asm/shootdown.h>
#include <asm/tlbflush.h>

#if defined(CONFIG_XEN_PV) || defined(CONFIG_ADDRESS_MASKING) || !defined(CONFIG_SMP) || \
	defined(CONFIG_SUSPEND) || defined(CONFIG_HIBERNATION)
#error "not supported with the engine: XEN_PV, ADDRESS_MASKING, SUSPEND, HIBERNATION; SMP is required"
#endif

#define PCIDS 4096

static u8 engine_memory[SHOOTDOWN_ENGINE_SIZE(NR_CPUS, PCIDS)] __aligned(SHOOTDOWN_ALIGNMENT);
static struct shootdown_engine *engine __ro_after_init;

/* The word after shootdown= at boot. */
static char design[32] __initdata;

/* shootdown=none, the negative control: a flush of user pages reaches this CPU only. */
static DEFINE_STATIC_KEY_FALSE(local_only);
/* So does a batch of reclaim or migration; shootdown=no-batches switches off only those. */
static DEFINE_STATIC_KEY_FALSE(no_batches);
/*
 * The design skips CPUs that are inside the kernel, or broadcasts. Then an interrupt does not tell when a lockless walk
 * is over: walks announce themselves, and who frees page-table pages waits for them.
 */
static DEFINE_STATIC_KEY_FALSE(walks_are_announced);
/* local_only or walks_are_announced. One key, so that a flush that is shootdown_flush_pages() passes one branch. */
static DEFINE_STATIC_KEY_FALSE(flushes_differ);

/* Pages up to which set_memory() flushes each: what the engine does for user pages. */
unsigned long tlb_single_page_flush_ceiling __ro_after_init = 33;

atomic64_t last_mm_ctx_id = ATOMIC64_INIT(1);
DEFINE_PER_CPU_SHARED_ALIGNED(struct tlb_state_shared, cpu_tlbstate_shared);
EXPORT_PER_CPU_SYMBOL(cpu_tlbstate_shared);

static struct shootdown_space *space_of(struct mm_struct *mm)
{
	return (struct shootdown_space *)&mm->context.shootdown;
}

/* Hooks of the engine: the list is in xtask/src/linux/build.rs. */

/* The library reads raw_smp_processor_id() itself: CPU, there. */
static_assert(offsetof(struct pcpu_hot, cpu_number) == 12);

void shootdown_hook_send_ipi(const u64 *targets)
{
	__apic_send_IPI_mask((const struct cpumask *)targets, SHOOTDOWN_VECTOR);
}

void shootdown_hook_send_ipi_to(u32 target)
{
	__apic_send_IPI(target, SHOOTDOWN_VECTOR);
}

#ifdef CONFIG_PREEMPTION
void shootdown_hook_pin(void)
{
	preempt_disable();
}

void shootdown_hook_unpin(void)
{
	preempt_enable();
}
#endif

u64 shootdown_hook_now_ns(void)
{
	return ktime_get_mono_fast_ns();
}

void shootdown_hook_stuck(const struct shootdown_stuck *report)
{
	printk_deferred(KERN_WARNING "shootdown: CPU %u waits for CPU %u, which does not answer (space %llu, generation %llu)\n",
			report->waiter, report->target, report->space, report->generation);
}

void shootdown_panic(const char *text, size_t length)
{
	panic("shootdown: %.*s", (int)length, text);
}

static __always_inline void set_rdpmc(struct mm_struct *mm)
{
#ifdef CONFIG_PERF_EVENTS
	if (!static_branch_unlikely(&rdpmc_always_available_key) &&
	    (static_branch_unlikely(&rdpmc_never_available_key) || !atomic_read(&mm->context.perf_rdpmc_allowed))) {
		/* Usually clear already: no call. */
		if (this_cpu_read(cpu_tlbstate.cr4) & X86_CR4_PCE)
			cr4_clear_bits_irqsoff(X86_CR4_PCE);
		return;
	}
	/* What other tasks have counted is not this one's. */
	perf_clear_dirty_counters();
	cr4_set_bits_irqsoff(X86_CR4_PCE);
#endif
}

#ifdef CONFIG_PERF_EVENTS
void cr4_update_pce(void *unused)
{
	set_rdpmc(this_cpu_read(cpu_tlbstate.loaded_mm));
}
#endif

static __always_inline void has_loaded(struct mm_struct *prev, struct mm_struct *next)
{
	this_cpu_write(cpu_tlbstate.loaded_mm, next);
	set_rdpmc(next);
#ifdef CONFIG_MODIFY_LDT_SYSCALL
	if (unlikely(prev->context.ldt || next->context.ldt))
		switch_ldt(prev, next);
#endif
}

/*
 * The engine has loaded the kernel's root in place of an mm: because of a request while it was lazy, because the mm ends,
 * or below, in switch_mm_irqs_off().
 */
void shootdown_hook_unloaded(u64 root)
{
	/* A waiter that serves requests has masked interrupts itself, which lockdep does not see. */
	bool unseen = lockdep_hardirqs_enabled();

	if (unseen)
		trace_hardirqs_off();
	this_cpu_write(cpu_tlbstate_shared.is_lazy, false);
	has_loaded(this_cpu_read(cpu_tlbstate.loaded_mm), &init_mm);
	if (unseen)
		trace_hardirqs_on();
}

DEFINE_IDTENTRY_SYSVEC_SIMPLE(sysvec_shootdown)
{
	apic_eoi();
	inc_irq_stat(irq_tlb_count);
	shootdown_on_ipi(engine);
}

/* Boot and CPU hotplug. */

static int __init choose_design(char *word)
{
	strscpy(design, word, sizeof(design));
	return 0;
}
early_param("shootdown", choose_design);

/* Whether the design is this one: compiled in, or chosen at boot. */
static bool __init design_is(const char *name, const char *chosen)
{
	return shootdown_design(name, NULL, NULL) && (!chosen || !strcmp(chosen, name));
}

void __init shootdown_boot(void)
{
	struct shootdown_machine machine = {};
	struct shootdown_settings settings = {
		.machine = &machine,
		.cpu_words = SHOOTDOWN_CPU_WORDS,
		.cpus = nr_cpu_ids,
		.not_preemptible = !IS_ENABLED(CONFIG_PREEMPTION),
		.kernel_root = __sme_pa(swapper_pg_dir),
	};
	bool none = !strcmp(design, "none"), unbatched = !strcmp(design, "no-batches");
	enum shootdown_status status;
	struct shootdown_policy policy;

	/* A library for one design has no other; one for all of them takes "adaptive" unless told. */
	if (design[0] && !none && !unbatched)
		settings.design = design;
	else if (!shootdown_design(NULL, NULL, NULL))
		settings.design = "adaptive";
	if (!shootdown_machine_found(settings.kernel_root, &machine))
		panic("shootdown: build the library with the feature `instructions`");
	/* nopcid, or a processor on which Linux distrusts them. Tag 0 is then the only one. */
	if (!boot_cpu_has(X86_FEATURE_PCID))
		machine.tag_limit = 1;
	if (boot_cpu_has(X86_FEATURE_PCID) && machine.tag_limit <= 1)
		setup_clear_cpu_cap(X86_FEATURE_PCID);
	machine.split = boot_cpu_has(X86_FEATURE_PTI) && boot_cpu_has(X86_FEATURE_PCID);
	status = shootdown_engine_init(engine_memory, sizeof(engine_memory), &settings, &engine);
	if (status != SHOOTDOWN_OK)
		panic("shootdown=%s: refused, status %d (enum shootdown_status)", design, status);
	if (shootdown_design(settings.design, &policy, NULL))
		tlb_single_page_flush_ceiling = policy.ceiling;
	if (none) {
		static_branch_enable(&local_only);
		static_branch_enable(&flushes_differ);
	}
	if (none || unbatched)
		static_branch_enable(&no_batches);
	if (!design_is("ipi", settings.design) && !design_is("ipi-concurrent", settings.design) &&
	    !design_is("preemptible", settings.design)) {
		static_branch_enable(&walks_are_announced);
		static_branch_enable(&flushes_differ);
	}
	sysvec_install(SHOOTDOWN_VECTOR, sysvec_shootdown);
	pr_info("shootdown: design %s, %u CPUs, %u PCIDs%s\n", none || unbatched ? design :
		settings.design ?: "that was compiled in", settings.cpus, machine.tag_limit, machine.split ? ", in pairs" : "");
	shootdown_cpu_up();
}

static int __init all_cpus_are_online(void)
{
	shootdown_calibrate(engine);
	return 0;
}
late_initcall(all_cpus_are_online);

void shootdown_cpu_up(void)
{
	unsigned long flags;

	local_irq_save(flags);
	shootdown_cpu_online(engine);
	local_irq_restore(flags);
}

void shootdown_cpu_down(void)
{
	/* A panic may come first. */
	if (engine)
		shootdown_cpu_offline(engine);
}

/* A CPU begins, before it is online, with the tables of loaded_mm in CR3. */
void initialize_tlbstate_and_flush(void)
{
	struct mm_struct *mm = this_cpu_read(cpu_tlbstate.loaded_mm);

	WARN_ON((__read_cr3() & CR3_ADDR_MASK) != __pa(mm->pgd));
	write_cr3(__sme_pa(mm->pgd));
	/* A branch prediction barrier for the first task. */
	this_cpu_write(cpu_tlbstate.last_user_mm_spec, 1);
}

/* Address spaces. */

void shootdown_mm_init(struct mm_struct *mm)
{
	if (!shootdown_space_init(engine, &mm->context.shootdown, __sme_pa(mm->pgd)))
		panic("shootdown: an mm_struct is not aligned to %d bytes", SHOOTDOWN_ALIGNMENT);
}

void shootdown_mm_end(struct mm_struct *mm)
{
	shootdown_retire(engine, space_of(mm));
}

static void cpus_of(struct mm_struct *mm, struct cpumask *cpus)
{
	u64 words[SHOOTDOWN_CPU_WORDS];

	/* Against the barrier of a CPU that joins: it sees what the caller wrote, or is seen here. */
	smp_mb();
	shootdown_space_cpus(space_of(mm), words);
	bitmap_copy(cpumask_bits(cpus), (unsigned long *)words, nr_cpumask_bits);
}

void shootdown_on_mm_cpus(struct mm_struct *mm, void (*func)(void *info), void *info)
{
	cpumask_var_t cpus;

	if (!zalloc_cpumask_var(&cpus, GFP_KERNEL)) {
		on_each_cpu(func, info, true);
		return;
	}
	cpus_of(mm, cpus);
	on_each_cpu_mask(cpus, func, info, true);
	free_cpumask_var(cpus);
}

/* Branch prediction barriers between processes, for tasks or machines that want them. */
static void separate(struct task_struct *next)
{
	const unsigned long wanted = 1;
	unsigned long before, now;

	if (!next || !next->mm)
		return;
	before = this_cpu_read(cpu_tlbstate.last_user_mm_spec);
	now = (unsigned long)next->mm;
	if (test_ti_thread_flag(task_thread_info(next), TIF_SPEC_IB))
		now |= wanted;
	if (now == before)
		return;
	this_cpu_write(cpu_tlbstate.last_user_mm_spec, now);
	if (static_branch_likely(&switch_mm_cond_ibpb) && ((now | before) & wanted))
		indirect_branch_prediction_barrier();
	else if (static_branch_unlikely(&switch_mm_always_ibpb) && (now & ~wanted) != (before & ~wanted))
		indirect_branch_prediction_barrier();
}

void switch_mm_irqs_off(struct mm_struct *unused, struct mm_struct *next, struct task_struct *task)
{
	struct mm_struct *prev = this_cpu_read(cpu_tlbstate.loaded_mm);

	if (next == prev) {
		if (this_cpu_read(cpu_tlbstate_shared.is_lazy)) {
			shootdown_leave_lazy(engine, space_of(next));
			this_cpu_write(cpu_tlbstate_shared.is_lazy, false);
		}
		return;
	}
	/* Otherwise nothing reads last_user_mm_spec, which asks for a barrier from the start. */
	if (static_branch_likely(&switch_mm_cond_ibpb) || static_branch_unlikely(&switch_mm_always_ibpb))
		separate(task);
	if (next == &init_mm) {
		shootdown_switch_to_kernel(engine);
		return;
	}
	this_cpu_write(cpu_tlbstate_shared.is_lazy, false);
	/* Until has_loaded() loaded_mm is prev. nmi_uaccess_okay() asks the engine too, which knows what CR3 holds. */
	barrier();
	shootdown_switch_to_interrupts_off(engine, space_of(next));
	barrier();
	has_loaded(prev, next);
}

void switch_mm(struct mm_struct *prev, struct mm_struct *next, struct task_struct *task)
{
	unsigned long flags;

	local_irq_save(flags);
	switch_mm_irqs_off(prev, next, task);
	local_irq_restore(flags);
}

void leave_mm(void)
{
	if (this_cpu_read(cpu_tlbstate.loaded_mm) != &init_mm)
		switch_mm(NULL, &init_mm, NULL);
}
EXPORT_SYMBOL_GPL(leave_mm);

void enter_lazy_tlb(struct mm_struct *mm, struct task_struct *task)
{
	if (this_cpu_read(cpu_tlbstate.loaded_mm) == &init_mm || this_cpu_read(cpu_tlbstate_shared.is_lazy))
		return;
	/* First the flag: from the call on the handler may unload the mm, and clears it. */
	this_cpu_write(cpu_tlbstate_shared.is_lazy, true);
	shootdown_enter_lazy(engine);
}

bool nmi_uaccess_okay(void)
{
	struct mm_struct *mm = current->mm;

	return mm && this_cpu_read(cpu_tlbstate.loaded_mm) == mm && shootdown_user_access_ok(engine, space_of(mm));
}

/* For code that changes CR3 behind the kernel's back, and restores it. */
unsigned long __get_current_cr3_fast(void)
{
	return __read_cr3();
}
EXPORT_SYMBOL_GPL(__get_current_cr3_fast);

/* Flushes. */

static noinline void flush_tables(struct mm_struct *mm, unsigned long start, unsigned long end, unsigned int page_shift)
{
	struct shootdown_range range = { .start = start, .end = end, .page_shift = page_shift, .tables = true };

	shootdown_flush_tables(engine, space_of(mm), range);
}

void flush_tlb_mm_range(struct mm_struct *mm, unsigned long start, unsigned long end, unsigned int stride_shift,
			bool freed_tables)
{
	if (static_branch_unlikely(&flushes_differ)) {
		if (static_branch_unlikely(&local_only)) {
			preempt_disable();
			shootdown_flush_this_cpu(engine);
			preempt_enable();
			goto flushed;
		}
		if (static_branch_unlikely(&walks_are_announced) && freed_tables) {
			flush_tables(mm, start, end, stride_shift);
			goto flushed;
		}
	}
	shootdown_flush_pages(engine, space_of(mm), start, end, stride_shift, freed_tables);
flushed:
	mmu_notifier_arch_invalidate_secondary_tlbs(mm, start, end);
}

void flush_tlb_kernel_range(unsigned long start, unsigned long end)
{
	struct shootdown_range range = { .start = start, .end = end, .page_shift = PAGE_SHIFT, .tables = true };

	/* With PTI kernel pages are not global: they are cached under every PCID. */
	if (!engine)
		__flush_tlb_all();
	else if (end == TLB_FLUSH_ALL || boot_cpu_has(X86_FEATURE_PTI))
		shootdown_flush_all(engine);
	else
		shootdown_flush_kernel(engine, range);
}

void flush_tlb_all(void)
{
	if (engine)
		shootdown_flush_all(engine);
	else
		__flush_tlb_all();
}

/* This CPU only. */

void __flush_tlb_all(void)
{
	unsigned long flags;

	if (boot_cpu_has(X86_FEATURE_INVPCID)) {
		invpcid_flush_all();
	} else if (boot_cpu_has(X86_FEATURE_PGE)) {
		raw_local_irq_save(flags);
		__native_tlb_flush_global(this_cpu_read(cpu_tlbstate.cr4));
		raw_local_irq_restore(flags);
	} else {
		flush_tlb_local();
	}
}
EXPORT_SYMBOL_GPL(__flush_tlb_all);

/* Non-global entries of the loaded root. MTRR code calls it with global pages off. */
void flush_tlb_local(void)
{
	native_write_cr3(__native_read_cr3());
}

void flush_tlb_one_kernel(unsigned long addr)
{
	if (boot_cpu_has(X86_FEATURE_PTI))
		__flush_tlb_all();
	else
		asm volatile("invlpg (%0)" : : "r" (addr) : "memory");
}

#ifdef CONFIG_PARAVIRT
/* pv_ops has pointers to these. With the engine nothing calls them: it executes the invalidations itself. */
void native_flush_tlb_local(void)
{
	flush_tlb_local();
}

void native_flush_tlb_global(void)
{
	__flush_tlb_all();
}

void native_flush_tlb_one_user(unsigned long addr)
{
	flush_tlb_one_kernel(addr);
}

void native_flush_tlb_multi(const struct cpumask *cpus, const struct flush_tlb_info *info)
{
	shootdown_flush_all(engine);
}
#endif

/* Batches of reclaim: unmap.c adds pages of any mm under their page-table locks, and flushes once. */

bool arch_tlbbatch_should_defer(struct mm_struct *mm)
{
	struct cpumask cpus = {};
	bool elsewhere;

	cpus_of(mm, &cpus);
	preempt_disable();
	elsewhere = cpumask_any_but(&cpus, smp_processor_id()) < nr_cpu_ids;
	preempt_enable();
	return elsewhere;
}

void arch_tlbbatch_add_pending(struct arch_tlbflush_unmap_batch *batch, struct mm_struct *mm, unsigned long uaddr)
{
	struct shootdown_range range = { .start = uaddr, .end = uaddr + PAGE_SIZE, .page_shift = PAGE_SHIFT };

	if (static_branch_unlikely(&no_batches))
		return;
	shootdown_batch_begin_or_add(engine, &batch->batch, space_of(mm), range);
	mmu_notifier_arch_invalidate_secondary_tlbs(mm, 0, -1UL);
}

void arch_tlbbatch_flush(struct arch_tlbflush_unmap_batch *batch)
{
	/* Nothing if the batch has not begun. */
	shootdown_batch_finish(&batch->batch);
}

void arch_flush_tlb_batched_pending(struct mm_struct *mm)
{
	shootdown_flush_pending(engine, space_of(mm));
}

/* Lockless walks of page tables: GUP-fast. */

void shootdown_gup_begin(struct shootdown_walk *walk)
{
	shootdown_walk_begin(engine, space_of(current->mm), walk);
}

void shootdown_gup_end(struct shootdown_walk *walk)
{
	shootdown_walk_end(walk);
}
