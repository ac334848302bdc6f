//! The engine: all its state, and how it is built. It knows nothing of the protocol: its operations are implemented in
//! folders above it, named after what they do.

use crate::adaptive::costs::CostWords;
use crate::cache_padded::CachePadded;
use crate::cpu::state::{Cpus, PerCpu};
use crate::cpuset::{CpuMask, CpuSet};
use crate::design::{Design, Machine, OneInstruction, Policy, Tags, tags_on};
use crate::facade::{Facade, Word};
use crate::flush::state::Straight;
use crate::hooks::{CpuId, Kernel, Root, Tag};
use crate::space::log::FlushLog;
use crate::space::{Mode, Space};
use crate::stuck::Stuck;
use crate::tags::pool::TagPool;
use crate::tags::state::RollOver;
use core::sync::atomic::Ordering;

/// Memory that the kernel supplies for the lifetime of the engine. It belongs to that engine alone.
pub struct Storage<'a, F: Facade> {
    /// One per CPU, indexed by CPU id.
    pub cpus: &'a mut [PerCpu<F>],
    /// Bitmaps of system-wide tags: [`tag_words`] zeroed words for the machine's `tag_limit`. May be empty if the
    /// policy has only per-CPU tags.
    pub tags: &'a mut [F::U64],
}

/// Words of tag bitmaps for tags below `limit`.
pub const fn tag_words(limit: u32) -> usize {
    3 * (limit as usize).div_ceil(64)
}

/// TLB coherence for one machine.
///
/// Built once, before the second CPU starts, and then shared. `W` is the number of words in a CPU set.
///
/// # Example
/// ```
/// # mod stub { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/stub.rs")); }
/// # use stub::*;
/// let engine = start(); // Engine::new, and cpu_online on each CPU
/// let space = engine.space(Root(0x2000));
/// // SAFETY: the space is retired before it is dropped.
/// unsafe { engine.switch_to(&space) };
/// // The kernel has cleared two entries.
/// let flushed = engine.flush(&space, Range::pages(0x7000, 0x9000, Stride::Size4K));
/// drop(flushed); // the proof: both frames may be freed
/// let _ = engine.retire(&space);
/// ```
pub struct Engine<'a, K: Kernel<W>, const W: usize> {
    pub(crate) kernel: K,
    pub(crate) design: Design,
    /// How the common flush of a space on slots goes under it.
    straight: Straight,
    /// Whether one instruction is enough for a page on its machine.
    pub(crate) one_instruction: OneInstruction,
    pub(crate) cpus: Cpus<'a, K, W>,
    pub(crate) kernel_root: Root,
    pub(crate) online: CpuSet<K::Facade, W>,
    pub(crate) next_space: CachePadded<<K::Facade as Facade>::U64>,
    /// Kernel ranges have their own generation and log.
    pub(crate) kernel_log: FlushLog<K::Facade>,
    pub(crate) tags: TagPool<'a, K::Facade>,
    pub(crate) rollover: RollOver<K::Facade>,
    /// CPUs in a walk from NMI context.
    pub(crate) nmi_walkers: CpuSet<K::Facade, W>,
    /// Number of grace periods requested.
    pub(crate) grace: CachePadded<<K::Facade as Facade>::U64>,
    /// Epoch of deferred unmaps, from 1: CPUs flush for it at their ticks.
    pub(crate) deferral_epoch: CachePadded<<K::Facade as Facade>::U64>,
    /// CPUs that run user code without ticks.
    pub(crate) tickless: CpuSet<K::Facade, W>,
    /// What each way of reaching other CPUs costs; read by `Reach::Adaptive` only.
    pub(crate) costs: CostWords<K::Facade>,
    /// 1 after a promotion found no free tag, until a space gives one up.
    pub(crate) tag_shortage: CachePadded<<K::Facade as Facade>::U64>,
}

impl<'a, K: Kernel<W>, const W: usize> Engine<'a, K, W> {
    /// An engine with every CPU offline. `kernel_root` is the top table that maps only the kernel.
    ///
    /// # Panics
    /// If the storage does not fit: no CPU, more CPUs than `64 * W`, or too few tag words.
    ///
    /// If policy and machine do not fit:
    /// * slots outside 1 to [`MAX_SLOTS`](crate::MAX_SLOTS);
    /// * a first tag of 0, because the kernel's root is loaded under it;
    /// * slots whose tags reach the end of tags (with split tags, the other half's);
    /// * more tags than 65,536;
    /// * a sampling window of length 0 where spaces are promoted;
    /// * a sampling rate that is not a power of two;
    /// * a pool of system-wide tags that does not exceed the number of CPUs (C4 could not be kept).
    ///
    /// If the policy differs from [`Kernel::POLICY`], or the kernel is [`Kernel::SCATTERED`].
    // Always inlined: otherwise the caller copies the engine on its stack first (`cargo xtask stack`).
    #[inline]
    pub fn new(kernel: K, design: Design, kernel_root: Root, storage: Storage<'a, K::Facade>) -> Self {
        assert!(!K::SCATTERED, "the kernel is SCATTERED: call Engine::scattered");
        Self::build(kernel, design, kernel_root, Cpus::together(storage.cpus), storage.tags)
    }

    /// [`new`](Self::new) for a kernel that is [`Kernel::SCATTERED`]: the state of each CPU lies where that CPU is near
    /// its memory. `cpus` is indexed by CPU id, `tags` is [`Storage::tags`]. Costs one load each time the engine looks
    /// at a CPU.
    ///
    /// # Panics
    /// As [`new`](Self::new). If the kernel is not [`Kernel::SCATTERED`].
    #[inline]
    pub fn scattered(
        kernel: K,
        design: Design,
        kernel_root: Root,
        cpus: &'a mut [&'a mut PerCpu<K::Facade>],
        tags: &'a mut [<K::Facade as Facade>::U64],
    ) -> Self {
        assert!(K::SCATTERED, "the kernel is not SCATTERED: call Engine::new");
        Self::build(kernel, design, kernel_root, Cpus::scattered(cpus), tags)
    }

    #[inline]
    fn build(
        kernel: K,
        design: Design,
        kernel_root: Root,
        cpus: Cpus<'a, K, W>,
        tags: &'a [<K::Facade as Facade>::U64],
    ) -> Self {
        assert!(
            K::POLICY.is_none_or(|compiled| compiled == design.policy),
            "the kernel is compiled for another policy (Kernel::POLICY)"
        );
        let count = cpus.len();
        assert!(
            count >= 1 && count <= 64 * W,
            "1 to 64 CPUs for each of the W words of a CPU set"
        );
        if let Err(why) = design.fits(count) {
            panic!("{}", Unpadded(why));
        }
        let pool = design.pool();
        if design.tags() != Tags::PerCpu {
            let words = tag_words(pool.end);
            assert!(tags.len() >= words, "more tag words needed: see tag_words");
        }
        let machine = design.machine.normalised();
        Engine {
            kernel,
            straight: Straight::of(&design.policy),
            one_instruction: OneInstruction::on(&machine),
            design: Design {
                policy: design.policy,
                machine,
            },
            cpus,
            kernel_root,
            online: CpuSet::new(),
            next_space: CachePadded(Word::new(1)),
            kernel_log: FlushLog::new(),
            tags: TagPool::new(tags, pool),
            rollover: RollOver::new(),
            nmi_walkers: CpuSet::new(),
            grace: CachePadded(Word::new(0)),
            deferral_epoch: CachePadded(Word::new(1)),
            tickless: CpuSet::new(),
            costs: CostWords::new(),
            tag_shortage: CachePadded(Word::new(0)),
        }
    }

    /// The kernel's policy.
    #[inline]
    pub fn policy(&self) -> &Policy {
        match const { &K::POLICY } {
            Some(policy) => policy,
            None => &self.design.policy,
        }
    }

    /// The limits and errata of the machine.
    #[inline]
    pub fn machine(&self) -> &Machine {
        &self.design.machine
    }

    /// How spaces get tags: as the policy says, if the machine has tags.
    #[inline]
    pub(crate) fn tags(&self) -> Tags {
        tags_on(self.policy(), self.machine())
    }

    /// How the common flush goes.
    #[inline]
    pub(crate) fn straight(&self) -> Straight {
        match const { &K::POLICY } {
            Some(policy) => Straight::of(policy),
            None => self.straight,
        }
    }

    /// The kernel's hooks.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// The kernel's hooks, before the engine is shared: for a kernel that fills them in where they lie, because a value
    /// of them would first lie on the stack.
    pub fn kernel_mut(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// The online CPUs, read one after the other. Any context.
    pub fn online(&self) -> CpuMask<W> {
        let mut online = CpuMask::EMPTY;
        self.online.for_each(|cpu| online.insert(cpu));
        online
    }

    /// A new address space with `root` as its top table. Any context. It gets no tag until it is first loaded.
    pub fn space(&self, root: Root) -> Space<K::Facade, W> {
        Space::new(self.next_space.0.fetch_add_full(1), root)
    }

    /// Runs `body` with interrupts masked.
    #[inline]
    pub(crate) fn masked<T>(&self, body: impl FnOnce() -> T) -> T {
        let saved = self.mask();
        let result = body();
        self.kernel.interrupts_restore(saved);
        result
    }

    /// Masks interrupts until [`Kernel::interrupts_restore`] is called with the result. For where a closure with
    /// several callers would become a function.
    #[inline]
    pub(crate) fn mask(&self) -> u64 {
        let was_off = self.interrupts_were_off();
        let saved = self.kernel.interrupts_off();
        self.note_mask(was_off);
        saved
    }

    /// For [`note_mask`](Self::note_mask): whether interrupts are off. Asks the kernel in debug builds only.
    #[inline]
    pub(crate) fn interrupts_were_off(&self) -> bool {
        cfg!(debug_assertions) && self.kernel.interrupts_are_off()
    }

    /// Notes for [`Stuck`] whether this CPU had interrupts off. Debug builds only.
    #[inline]
    pub(crate) fn note_mask(&self, off: bool) {
        if cfg!(debug_assertions) {
            self.cpus[self.kernel.cpu()].own.mask_seen.note(off);
        }
    }

    /// Reports that `target` has not answered `waiter`; `space` and `generation` as in [`Stuck`]. Not inlined: the
    /// report would take stack in every wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn report_stuck(&self, waiter: CpuId, target: CpuId, (space, generation): (u64, u64)) {
        self.kernel.stuck(Stuck {
            waiter,
            target,
            space,
            generation,
            masked: self.cpus[target].own.mask_seen.get(),
        });
    }

    /// Forbids migration until the guard is dropped.
    #[inline]
    pub(crate) fn pinned(&self) -> Pinned<'_, K, W> {
        self.kernel.pin();
        self.still_pinned()
    }

    /// Takes over a pin from the caller, which [handed it over](Pinned::hand_over).
    #[inline]
    pub(crate) fn still_pinned(&self) -> Pinned<'_, K, W> {
        Pinned {
            kernel: &self.kernel,
            cpu: self.kernel.cpu(),
        }
    }

    /// The tag mode of a space (acquire). A flush reads it *after* it increments the generation. Pairs with the full
    /// compare-exchange that publishes a promotion.
    #[inline]
    pub(crate) fn mode(&self, space: &Space<K::Facade, W>) -> Mode {
        self.unpack_mode(self.mode_word(space, Ordering::Acquire))
    }

    /// The word of the mode. Not read where the policy, fixed at compile time, has per-CPU tags only.
    #[inline]
    pub(crate) fn mode_word(&self, space: &Space<K::Facade, W>, ordering: Ordering) -> u64 {
        match const { &K::POLICY } {
            Some(Policy { tags: Tags::PerCpu, .. }) => Mode::PerCpu.pack(),
            _ => space.mode.0.load(ordering),
        }
    }

    /// The mode in a space's word. With a policy fixed at compile time, the compiler removes modes that it never uses.
    #[inline]
    pub(crate) fn unpack_mode(&self, word: u64) -> Mode {
        let Some(policy) = (const { &K::POLICY }) else {
            return Mode::unpack(word);
        };
        match (policy.tags, Mode::unpack(word)) {
            (Tags::PerCpu, _) => Mode::PerCpu,
            (Tags::System, mode @ Mode::Rolled { .. }) => mode,
            (Tags::System, _) | (_, Mode::Rolled { .. }) => Mode::PerCpu,
            (_, mode) => mode,
        }
    }

    /// Whether a space's word says per-CPU slots: [`unpack_mode`](Self::unpack_mode), in one test.
    #[inline]
    pub(crate) fn is_per_cpu(&self, word: u64) -> bool {
        match const { &K::POLICY } {
            Some(Policy { tags: Tags::PerCpu, .. }) => true,
            _ => Mode::is_per_cpu(word),
        }
    }

    /// The tags to invalidate for `tag`: the tag itself, and the user half if tags are split (regression 30).
    #[inline]
    pub(crate) fn halves(&self, tag: Tag) -> impl Iterator<Item = Tag> + use<K, W> {
        [Some(tag), self.user_half(tag)].into_iter().flatten()
    }

    /// The user half of `tag`, where tables are split.
    #[inline]
    pub(crate) fn user_half(&self, tag: Tag) -> Option<Tag> {
        self.machine().split.then_some(Tag(tag.0 | crate::design::USER_HALF))
    }
}

/// A message of a panic, without the code that pads text.
struct Unpadded(&'static str);

impl core::fmt::Display for Unpadded {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0)
    }
}

impl<K: Kernel<W>, const W: usize> Pinned<'_, K, W> {
    /// Ends the guard and keeps the pin. A callee [takes it over](Engine::still_pinned), so that the caller's frame is
    /// not on the stack below it.
    #[inline]
    pub(crate) fn hand_over(self) {
        core::mem::forget(self);
    }
}

/// Proof that migration is pinned, and on which CPU.
pub(crate) struct Pinned<'k, K: Kernel<W>, const W: usize> {
    kernel: &'k K,
    pub(crate) cpu: CpuId,
}

impl<K: Kernel<W>, const W: usize> Drop for Pinned<'_, K, W> {
    #[inline]
    fn drop(&mut self) {
        self.kernel.unpin();
    }
}

#[cfg(test)]
mod tests {
    use crate::hooks::Root;
    use crate::testing::interleave;
    use crate::testing::mock_kernel::{DESIGN, on, three};
    use core::cell::Cell;
    use std::boxed::Box;

    #[test]
    fn simultaneously_created_spaces_have_distinct_ids() {
        let (engine, _) = three(DESIGN);
        for moment in 0..4 {
            let theirs: &'static Cell<u64> = Box::leak(Box::default());
            interleave::after(moment, || theirs.set(on(1, || engine.space(Root(2)).id())));
            let mine = engine.space(Root(1)).id();
            interleave::never();
            assert_ne!(mine, theirs.get(), "at operation {moment}");
        }
    }
}
