/* One iteration of a wait loop, for the processor. */
#ifndef PAUSE_LOOP_H
#define PAUSE_LOOP_H

static inline void pause_loop(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#elif defined(__riscv)
    __asm__ volatile(".insn i 0x0f, 0, x0, x0, 0x010" ::: "memory"); /* PAUSE: older assemblers lack its name */
#endif
}

#endif
