//! The facade: atomics, barriers and waiting, as one environment provides them.
//!
//! The engine never names `core::sync::atomic`, except for flags that only their own CPU accesses
//! (`cpu/local_flag.rs`). It runs on any [`Facade`]: the processor's own atomics (`Native`), the simulated machine's
//! (every operation is charged to a cache line), or a model checker's. Barriers are named after their purpose, because
//! "full barrier" differs between instruction sets. Each use in the engine names the barrier that it pairs with.

use core::sync::atomic::Ordering;
#[cfg(target_has_atomic = "64")]
use core::sync::atomic::{AtomicU64, fence};

/// A 64-bit atomic word.
///
/// `load` and `store` take an [`Ordering`] with the C11 meaning. The read-modify-write operations named `*_full` order
/// everything before them with everything after them, for every other CPU *and for this CPU's table walker*. C11
/// promises less: a `SeqCst` read-modify-write is not a fence for its relaxed neighbours. They need not order
/// invalidation instructions (Arm `dmb` does not); that is [`Facade::publish_tables_before_full`].
///
/// # Safety
/// All operations are those of one atomic variable: a load returns what was stored last, or an older value only as C11
/// allows, and never a value that was not stored. The engine keeps addresses in such words.
pub unsafe trait Word: Send + Sync {
    /// A word that holds `value`.
    fn new(value: u64) -> Self;
    /// Reads the word (`Relaxed` or `Acquire`).
    fn load(&self, order: Ordering) -> u64;
    /// Writes the word (`Relaxed` or `Release`).
    fn store(&self, value: u64, order: Ordering);
    /// Writes the word while no other CPU can access it.
    #[inline]
    fn set(&mut self, value: u64) {
        self.store(value, Ordering::Relaxed);
    }
    /// Adds, wrapping; a full barrier. Returns the old value.
    fn fetch_add_full(&self, value: u64) -> u64;
    /// Sets bits; a full barrier. Returns the old value.
    fn fetch_or_full(&self, bits: u64) -> u64;
    /// Keeps only `bits`; a full barrier. Returns the old value.
    fn fetch_and_full(&self, bits: u64) -> u64;
    /// Replaces the value; a full barrier. Returns the old value.
    fn swap_full(&self, value: u64) -> u64;
    /// Replaces `current` by `new`; a full barrier when it succeeds. `Err` carries the value found.
    fn compare_exchange_full(&self, current: u64, new: u64) -> Result<u64, u64>;
}

/// Atomics and barriers of one environment. All functions may be called in any context, interrupts on or off.
///
/// # Safety
/// Each barrier has at least the strength stated here; a stronger one is always correct. The engine relies on them to
/// keep memory from being used after it is freed.
pub unsafe trait Facade: 'static {
    /// The atomic word.
    type U64: Word;

    /// Full barrier: every earlier load and store of this CPU before every later one (x86 `mfence` or a locked
    /// operation, Arm `dmb ish`, RISC-V `fence rw,rw`).
    fn full_barrier();

    /// Makes earlier page-table writes visible to every table walker before any later invalidation, and orders all
    /// earlier stores before that. Arm `dsb ishst`; x86 a full barrier, since INVLPGB is weakly ordered; RISC-V
    /// `fence rw,rw`.
    fn publish_tables();

    /// As [`publish_tables`](Facade::publish_tables), where a `*_full` read-modify-write or a full barrier follows.
    /// Nothing on x86, where the latter is enough. Arm `dsb ishst`, because neither orders a walk or a TLBI. It must
    /// come first: another CPU, or an interrupt on this one, may act at once on what the read-modify-write announces.
    #[inline]
    fn publish_tables_before_full() {
        Self::publish_tables();
    }

    /// [`publish_tables`](Facade::publish_tables) and [`full_barrier`](Facade::full_barrier) in one: earlier
    /// page-table writes are visible to every table walker before any later invalidation, and every earlier load and
    /// store of this CPU comes before every later one. Arm `dsb ish`; x86 a full barrier; RISC-V `fence rw,rw`.
    #[inline]
    fn publish_tables_full() {
        Self::publish_tables();
        Self::full_barrier();
    }

    /// Orders earlier stores before the interrupt that the next `send_ipi` raises. Arm `dsb ishst`: a data *memory*
    /// barrier does not order stores against a write to the interrupt controller. x2APIC `mfence; lfence`.
    fn before_ipi();

    /// Orders the acknowledgement of an interrupt at its controller before every later load. Counterpart of
    /// [`before_ipi`](Facade::before_ipi). Without it, a handler may load its posts too early, find no request, and
    /// lose the request whose interrupt it has just acknowledged. Arm: `dsb` after the read of ICC_IAR1_EL1. RISC-V:
    /// `fence iorw, iorw` after SSIP is cleared. x86: nothing, because an interrupt is taken between two instructions
    /// and has left the controller by then.
    fn after_ipi();

    /// Orders earlier stores and loads before the root load that follows, and so before any fill from the new tables.
    /// Nothing on x86, where a root load is serialising. Arm needs `dsb ish`: not every use follows a full
    /// read-modify-write (the handler moves to a system-wide tag after a plain read of the mode).
    fn before_root_load();

    /// Prefetches the line of `word` for reading, without waiting (x86 `prefetcht0`, Arm `prfm pldl1keep`). A hint: it
    /// orders nothing and may do nothing. The engine issues it before it reads several lines that other CPUs have
    /// written, so that the transfers overlap.
    #[inline]
    fn prefetch(word: &Self::U64) {
        let _ = word;
    }

    /// The same for writing (x86 `prefetchw`, Arm `prfm pstl1keep`): every other copy of the line is invalidated. The
    /// engine issues it before it changes words of several CPUs.
    #[inline]
    fn prefetch_to_write(word: &Self::U64) {
        let _ = word;
    }

    /// Waits until `condition` returns true. Calls it again whenever a word that it read may have changed or an
    /// interrupt was raised for this CPU. Spins politely (`pause`, `yield`). The condition may itself serve requests.
    /// It must also be called occasionally when nothing changes: the condition reads the clock at one call in 256 to
    /// notice a CPU that does not answer (C7). So an implementation that sleeps until a word changes must wake up at
    /// intervals.
    ///
    /// Between two calls of the condition, with interrupts on and no pin held, the caller may be preempted and may
    /// migrate. A kernel that does not preempt may yield there.
    fn wait_until(condition: impl FnMut() -> bool);
}

/// How many lines of CPUs, their states or their answers, are prefetched ahead: no more than most processors are
/// assumed to have in flight (`costs.prefetches` of the machine models). More would be written again before they are
/// read, by CPUs that alternate between user code and kernel. A judgement, not fitted: tried by hand, compared with all
/// at once, `tlb_flush2` without broadcast on eight machine models changed by -1 to +3 %.
pub(crate) const AHEAD: usize = 8;

/// The processor's own atomics: complete on x86. Elsewhere only for host threads, which have no table walker to order
/// against: a `SeqCst` fence on Arm is a `dmb`, not the `dsb` that TLBI and interrupt-register writes need. A kernel
/// there needs its own facade, so this one does not exist on bare metal other than x86.
#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
#[derive(Debug, Clone, Copy)]
pub struct Native;

// SAFETY: the processor's own atomics, with a full barrier on either side where they are not full barriers themselves.
#[cfg(target_has_atomic = "64")]
unsafe impl Word for AtomicU64 {
    fn new(value: u64) -> Self {
        AtomicU64::new(value)
    }
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order)
    }
    #[inline]
    fn set(&mut self, value: u64) {
        *self.get_mut() = value;
    }
    #[inline]
    fn fetch_add_full(&self, value: u64) -> u64 {
        around_rmw(|| self.fetch_add(value, Ordering::SeqCst))
    }
    #[inline]
    fn fetch_or_full(&self, bits: u64) -> u64 {
        around_rmw(|| self.fetch_or(bits, Ordering::SeqCst))
    }
    #[inline]
    fn fetch_and_full(&self, bits: u64) -> u64 {
        around_rmw(|| self.fetch_and(bits, Ordering::SeqCst))
    }
    #[inline]
    fn swap_full(&self, value: u64) -> u64 {
        around_rmw(|| self.swap(value, Ordering::SeqCst))
    }
    #[inline]
    fn compare_exchange_full(&self, current: u64, new: u64) -> Result<u64, u64> {
        let old = around_rmw(|| self.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst));
        if cfg!(target_arch = "riscv64") {
            // LR and SC: the release of the SC does not order its store before later loads.
            fence(Ordering::SeqCst);
        }
        old
    }
}

/// A locked instruction is a full barrier on x86. So is an AMO with `aqrl` on RISC-V: every earlier access precedes it,
/// and it precedes every later one (the unprivileged manual, RVWMO, preserved program order, rules 5 and 6). Elsewhere
/// the read-modify-write needs a fence on either side.
#[cfg(target_has_atomic = "64")]
#[inline]
fn around_rmw<T>(rmw: impl FnOnce() -> T) -> T {
    if cfg!(any(
        target_arch = "x86_64",
        target_arch = "x86",
        target_arch = "riscv64"
    )) {
        rmw()
    } else {
        fence(Ordering::SeqCst);
        let old = rmw();
        fence(Ordering::SeqCst);
        old
    }
}

// SAFETY: the processor's own atomics; see the type for where it is complete.
#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
unsafe impl Facade for Native {
    type U64 = AtomicU64;

    #[inline]
    fn full_barrier() {
        fence(Ordering::SeqCst);
    }
    #[inline]
    fn publish_tables() {
        fence(Ordering::SeqCst);
    }
    #[inline]
    fn publish_tables_before_full() {}
    #[inline]
    fn publish_tables_full() {
        fence(Ordering::SeqCst);
    }
    #[inline]
    fn after_ipi() {}
    #[inline]
    fn before_ipi() {
        fence(Ordering::SeqCst);
    }
    #[inline]
    fn before_root_load() {
        if !cfg!(any(target_arch = "x86_64", target_arch = "x86")) {
            fence(Ordering::SeqCst);
        }
    }
    #[inline]
    fn prefetch(word: &AtomicU64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has the instruction, and it is harmless for any address.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(word).cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a hint, harmless for any address.
        unsafe {
            core::arch::asm!(
                "prfm pldl1keep, [{}]",
                in(reg) core::ptr::from_ref(word),
                options(nostack, readonly, preserves_flags)
            );
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = word;
    }
    #[inline]
    fn prefetch_to_write(word: &AtomicU64) {
        // Named explicitly: without the feature the compiler turns its own hint into a prefetch for reading. Processors
        // without the instruction execute it as a no-op.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, harmless for any address.
        unsafe {
            core::arch::asm!(
                "prefetchw [{}]",
                in(reg) core::ptr::from_ref(word),
                options(nostack, readonly, preserves_flags)
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a hint, harmless for any address.
        unsafe {
            core::arch::asm!(
                "prfm pstl1keep, [{}]",
                in(reg) core::ptr::from_ref(word),
                options(nostack, readonly, preserves_flags)
            );
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = word;
    }
    // Always: a condition that is called through a reference keeps all that it uses on the stack.
    #[inline(always)]
    fn wait_until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            core::hint::spin_loop();
        }
    }
}
