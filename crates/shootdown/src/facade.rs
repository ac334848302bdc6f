//! The facade: atomics, barriers and waiting, as one world provides them.
//!
//! The engine never names `core::sync::atomic`, but for flags that nobody but their own CPU looks at
//! (`cpu/local_flag.rs`). It runs on whatever a [`Facade`] supplies: the processor's own atomics (`Native`), the
//! simulated machine's (every operation is charged to a cache line), or a model checker's. Barriers carry the name of
//! what they are for, because "full barrier" means something else on every instruction set; each use in the engine
//! names the barrier it pairs with.

use core::sync::atomic::Ordering;
#[cfg(target_has_atomic = "64")]
use core::sync::atomic::{AtomicU64, fence};

/// A 64-bit atomic word of one world.
///
/// `load`/`store` take an [`Ordering`] with the C11 meaning. The read-modify-write operations named `*_full` order
/// everything before them with everything after them, for every other CPU *and for this CPU's table walker*: more than
/// C11 promises for a `SeqCst` read-modify-write, which is not a fence for its relaxed neighbours. They need not order
/// invalidation instructions (Arm `dmb` does not): that is [`Facade::publish_tables_before_full`].
///
/// # Safety
/// All operations are those of one atomic variable: a load returns what was stored last, or something older only as C11
/// allows, and never anything that was not stored. The engine keeps addresses in such words.
pub unsafe trait Word: Send + Sync {
    /// A word that holds `value`.
    fn new(value: u64) -> Self;
    /// Reads the word (`Relaxed` or `Acquire`).
    fn load(&self, order: Ordering) -> u64;
    /// Writes the word (`Relaxed` or `Release`).
    fn store(&self, value: u64, order: Ordering);
    /// Writes the word while nobody else can know of it.
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
    /// Replaces `current` by `new`; a full barrier when it succeeds. `Err` carries what was found.
    fn compare_exchange_full(&self, current: u64, new: u64) -> Result<u64, u64>;
}

/// Atomics and barriers of one world. All functions may be called in any context, interrupts on or off.
///
/// # Safety
/// Each barrier has at least the strength stated here; stronger is always right. That memory is not used after it was
/// freed rests on them.
pub unsafe trait Facade: 'static {
    /// The atomic word.
    type U64: Word;

    /// Full barrier: every earlier load and store of this CPU before every later one (x86 `mfence` or a locked
    /// operation, Arm `dmb ish`, RISC-V `fence rw,rw`).
    fn full_barrier();

    /// Makes earlier page-table writes visible to every table walker before any later invalidation, and orders all
    /// earlier stores before that (Arm `dsb ishst`, x86 a full barrier since INVLPGB is weakly ordered, RISC-V `fence
    /// rw,rw`).
    fn publish_tables();

    /// As [`publish_tables`](Facade::publish_tables), where a `*_full` read-modify-write or a full barrier follows:
    /// nothing on x86, where that is enough; Arm `dsb ishst`, for neither orders a walk or a TLBI. It comes first, and
    /// not after: what the read-modify-write announces, somebody else, or an interrupt here, may act upon at once.
    #[inline]
    fn publish_tables_before_full() {
        Self::publish_tables();
    }

    /// Orders earlier stores before the interrupt that the next `send_ipi` raises (Arm `dsb ishst`: a data *memory*
    /// barrier does not order stores against a write to the interrupt controller; x2APIC `mfence; lfence`).
    fn before_ipi();

    /// Orders the acknowledgement of an interrupt at its controller before every later load: the other side of
    /// [`before_ipi`](Facade::before_ipi). A handler that decided that nothing is asked of it by a load from before
    /// could lose a request whose interrupt it has just acknowledged (Arm: `dsb` after the read of ICC_IAR1_EL1; RISC-V
    /// `fence iorw, iorw` after SSIP is cleared; nothing on x86, where an interrupt is taken between two instructions
    /// and is gone from the controller by then).
    fn after_ipi();

    /// Orders earlier stores and loads before the root load that follows, and so before any fill from the new tables. A
    /// root load is serialising on x86, so nothing is needed there; Arm needs `dsb ish`: not every use comes after a
    /// full read-modify-write (the handler moves to a system-wide tag after a plain read of the mode).
    fn before_root_load();

    /// Begins to bring the line of `word` here to be read, and does not wait for it (x86 `prefetcht0`, Arm `prfm
    /// pldl1keep`). A hint: it orders nothing and may do nothing. The engine gives it where it is about to read several
    /// lines that others have written, so that they travel together.
    #[inline(always)]
    fn prefetch(word: &Self::U64) {
        let _ = word;
    }

    /// The same to be written (x86 `prefetchw`, Arm `prfm pstl1keep`): every other copy of the line goes. The engine
    /// gives it where it is about to change words of several CPUs.
    #[inline(always)]
    fn prefetch_to_write(word: &Self::U64) {
        let _ = word;
    }

    /// Waits until `condition` returns true, calling it again whenever a word that it read may have changed or an
    /// interrupt was raised for this CPU. Spins politely (`pause`, `yield`). The condition may itself serve requests.
    /// It is called from time to time also when nothing changes: a CPU that does not answer is noticed by a clock that
    /// the condition reads, at one call in 256 (C7), so who sleeps until a word changes wakes up at times.
    ///
    /// Between two calls of the condition, with interrupts on and no pin held, the caller may be preempted and go on
    /// with another CPU; a kernel that does not preempt may yield there.
    fn wait_until(condition: impl FnMut() -> bool);
}

/// The processor's own atomics: complete on x86. Elsewhere they are for host threads, which have no table walker to
/// order against: a `SeqCst` fence on Arm is a `dmb`, not the `dsb` that TLBI and interrupt-register writes need. A
/// kernel there needs a facade of its own, so this one does not exist on bare metal that is not x86.
#[cfg(any(target_arch = "x86_64", target_arch = "x86", not(target_os = "none")))]
#[derive(Debug, Clone, Copy)]
pub struct Native;

// SAFETY: the processor's own atomics, with a full barrier on either side where they are none themselves.
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
        around_rmw(|| self.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst))
    }
}

/// A locked instruction is a full barrier on x86; elsewhere the read-modify-write needs one on either side.
#[cfg(target_has_atomic = "64")]
#[inline]
fn around_rmw<T>(rmw: impl FnOnce() -> T) -> T {
    if cfg!(any(target_arch = "x86_64", target_arch = "x86")) {
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
    #[inline(always)]
    fn prefetch(word: &AtomicU64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction is part of every x86-64 processor, and harms nothing whatever the address.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(word).cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a hint, which harms nothing whatever the address.
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
    #[inline(always)]
    fn prefetch_to_write(word: &AtomicU64) {
        // By its name: what the compiler makes of its own hint without the feature is a prefetch to read. Processors
        // without the instruction take it for none.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which harms nothing whatever the address.
        unsafe {
            core::arch::asm!(
                "prefetchw [{}]",
                in(reg) core::ptr::from_ref(word),
                options(nostack, readonly, preserves_flags)
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a hint, which harms nothing whatever the address.
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
    fn wait_until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            core::hint::spin_loop();
        }
    }
}
