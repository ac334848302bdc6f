//! The facade of the engine's atomics: the processor's own. Only waiting is this kernel's.

use crate::arch::{cpu, interrupts};
use crate::time;
use core::sync::atomic::AtomicU64;
use shootdown::Facade;
use shootdown_cpu::BareMetal;

/// [`BareMetal`], with waits that yield the emulator's turn and carry out emulated broadcasts.
pub struct Bare;

// SAFETY: the processor's own atomics and barriers.
unsafe impl Facade for Bare {
    type U64 = AtomicU64;

    #[inline]
    fn full_barrier() {
        BareMetal::full_barrier();
    }
    #[inline]
    fn publish_tables() {
        BareMetal::publish_tables();
    }
    #[inline]
    fn publish_tables_before_full() {
        BareMetal::publish_tables_before_full();
    }
    #[inline]
    fn publish_tables_full() {
        BareMetal::publish_tables_full();
    }
    #[inline]
    fn after_ipi() {
        BareMetal::after_ipi();
    }
    #[inline]
    fn before_ipi() {
        BareMetal::before_ipi();
    }
    #[inline]
    fn before_root_load() {
        BareMetal::before_root_load();
    }

    #[inline(always)]
    fn prefetch(word: &AtomicU64) {
        BareMetal::prefetch(word);
    }
    #[inline(always)]
    fn prefetch_to_write(word: &AtomicU64) {
        BareMetal::prefetch_to_write(word);
    }
    fn wait_until(mut condition: impl FnMut() -> bool) {
        let mut looks = 0_u32;
        while !condition() {
            let chores = time::chores();
            if chores == 0 {
                interrupts::pause();
                continue;
            }
            // Not at the first check: most waits are over at the second.
            if chores & time::MAIL != 0 && looks != 0 {
                cpu::poll();
            }
            looks = looks.wrapping_add(1);
            if chores & time::COSTLY_PAUSE == 0 || looks.is_multiple_of(time::LOOKS) {
                time::relax_with(chores);
            }
        }
    }
}
