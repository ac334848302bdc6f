/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the rest of x86 sees of tlb.c: <asm/shootdown.h>. */
#ifndef _ASM_X86_SHOOTDOWN_H
#define _ASM_X86_SHOOTDOWN_H

/* One word of CPUs for every 64. The library is built with the same value. */
#define SHOOTDOWN_CPU_WORDS ((CONFIG_NR_CPUS + 63) / 64)

#include <asm/shootdown_library.h>

/* An address space of the engine, in mm_context_t. */
struct mm_shootdown {
	u8 memory[SHOOTDOWN_SPACE_SIZE];
} __attribute__((aligned(SHOOTDOWN_ALIGNMENT)));

struct mm_struct;

/* Makes the engine, with the boot CPU online. Before the first mm. */
void shootdown_boot(void);
/* This CPU comes online, or is about to leave. Interrupts are off. */
void shootdown_cpu_up(void);
void shootdown_cpu_down(void);

/* An mm begins, with its top table; ends, before that is freed. */
void shootdown_mm_init(struct mm_struct *mm);
void shootdown_mm_end(struct mm_struct *mm);

/* Calls func(info) on every CPU that may have the mm loaded, and waits. In place of on_each_cpu_mask(mm_cpumask(mm)). */
void shootdown_on_mm_cpus(struct mm_struct *mm, void (*func)(void *info), void *info);

/* A lockless walk of the current mm's tables begins: interrupts are masked until it ends. */
void shootdown_gup_begin(struct shootdown_walk *walk);
void shootdown_gup_end(struct shootdown_walk *walk);

#endif
