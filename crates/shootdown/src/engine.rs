//! The engine: what it owns, and how it is built. The calls are in the modules named for what they do.

use crate::adaptive::costs::CostWords;
use crate::cpu::state::PerCpu;
use crate::cpuset::{CpuMask, CpuSet};
use crate::design::{Design, MAX_SLOTS, Tags};
use crate::facade::{Facade, Word};
use crate::hooks::{CpuId, Kernel, Root, Tag};
use crate::space::log::FlushLog;
use crate::space::{Line, Space};
use crate::tags::pool::TagPool;
use crate::tags::rollover::RollOver;

/// Memory that the kernel supplies, for as long as the engine lives; it belongs to that engine alone.
pub struct Storage<'a, F: Facade> {
    /// One per CPU, indexed by CPU id.
    pub cpus: &'a mut [PerCpu<F>],
    /// Bitmaps of system-wide tags: [`tag_words`] words of zero for the design's `tag_limit`; may be empty when the
    /// design has per-CPU tags only.
    pub tags: &'a mut [F::U64],
}

/// Words of tag bitmaps for tags below `limit`.
pub const fn tag_words(limit: u16) -> usize {
    3 * (limit as usize).div_ceil(64)
}

/// TLB coherence for one machine.
///
/// Built once, before the second CPU starts; then shared. `W` is the number of words in a CPU set.
pub struct Engine<'a, K: Kernel<W>, const W: usize> {
    pub(crate) kernel: K,
    pub(crate) design: Design,
    pub(crate) cpus: &'a [PerCpu<K::Facade>],
    pub(crate) kernel_root: Root,
    pub(crate) online: CpuSet<K::Facade, W>,
    pub(crate) next_space: Line<<K::Facade as Facade>::U64>,
    /// Kernel ranges have a generation and a log of their own.
    pub(crate) kernel_log: FlushLog<K::Facade>,
    pub(crate) tags: TagPool<'a, K::Facade>,
    pub(crate) rollover: RollOver<K::Facade>,
    /// CPUs in a walk from NMI context.
    pub(crate) nmi_walkers: CpuSet<K::Facade, W>,
    /// Count of grace periods asked for.
    pub(crate) grace: Line<<K::Facade as Facade>::U64>,
    /// Epoch of deferred unmaps, from 1: CPUs flush for it at their ticks.
    pub(crate) deferral_epoch: Line<<K::Facade as Facade>::U64>,
    /// CPUs that run user code without ticks.
    pub(crate) tickless: CpuSet<K::Facade, W>,
    /// What each way of reaching other CPUs costs; read by `Reach::Adaptive` only.
    pub(crate) costs: CostWords<K::Facade>,
    /// 1 after a promotion found no tag, until some space has given one up.
    pub(crate) tag_shortage: Line<<K::Facade as Facade>::U64>,
}

impl<'a, K: Kernel<W>, const W: usize> Engine<'a, K, W> {
    /// An engine with every CPU off. `kernel_root` is the top table that maps the kernel only.
    ///
    /// # Panics
    /// When the storage does not fit the design: no CPU, more CPUs than `64 * W`, too few tag words. When the design
    /// does not fit itself: slots outside 1 to [`MAX_SLOTS`], a first tag of 0 (the kernel's root is loaded under it),
    /// slots whose tags reach the end of tags (with split tags, the other half's), a sampling window of no length where
    /// spaces are promoted, sampling one in a number that is no power of two, a pool of system-wide tags that does not
    /// exceed the number of CPUs (C4 could not be kept). When it is another than [`Kernel::DESIGN`].
    pub fn new(kernel: K, design: Design, kernel_root: Root, storage: Storage<'a, K::Facade>) -> Self {
        assert!(
            K::DESIGN.is_none_or(|compiled| compiled == design),
            "the kernel is compiled for another design (Kernel::DESIGN)"
        );
        let cpus = storage.cpus.len();
        assert!(cpus >= 1 && cpus <= 64 * W, "{cpus} CPUs do not fit a set of {W} words");
        assert!(
            (1..=MAX_SLOTS as u8).contains(&design.slots),
            "slots must be 1 to {MAX_SLOTS}"
        );
        assert!(design.first_tag >= 1, "tag 0 is the kernel's root's");
        let end = design.end_of_tags();
        if design.tags != Tags::System {
            assert!(
                u32::from(design.first_tag) + u32::from(design.slots) <= u32::from(end),
                "the slots' tags must lie below the end of tags, {end}"
            );
        }
        if let Tags::Hybrid { .. } = design.tags {
            assert!(design.consider_window_ns > 0, "a sampling window has a length");
        }
        assert!(design.sample_one_in.is_power_of_two(), "sampling one in a power of two");
        let first = design.first_system_tag();
        if design.tags != Tags::PerCpu {
            assert!(
                storage.tags.len() >= tag_words(end),
                "{} tag words needed",
                tag_words(end)
            );
        }
        if design.tags == Tags::System {
            assert!(
                usize::from(end.saturating_sub(first)) > cpus,
                "system-wide tags must outnumber the CPUs"
            );
        }
        Engine {
            kernel,
            design,
            cpus: storage.cpus,
            kernel_root,
            online: CpuSet::new(),
            next_space: Line(Word::new(1)),
            kernel_log: FlushLog::new(),
            tags: TagPool::new(storage.tags, first, end),
            rollover: RollOver::new(),
            nmi_walkers: CpuSet::new(),
            grace: Line(Word::new(0)),
            deferral_epoch: Line(Word::new(1)),
            tickless: CpuSet::new(),
            costs: CostWords::new(),
            tag_shortage: Line(Word::new(0)),
        }
    }

    /// The design.
    #[inline(always)]
    pub fn design(&self) -> &Design {
        match const { &K::DESIGN } {
            Some(design) => design,
            None => &self.design,
        }
    }

    /// The kernel's hooks.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// CPUs that are on, as they are found one after the other. Any context.
    pub fn online(&self) -> CpuMask<W> {
        let mut online = CpuMask::EMPTY;
        self.online.for_each(|cpu| online.insert(cpu));
        online
    }

    /// A new address space with `root` as its top table. Any context. It gets no tag before it is first loaded.
    pub fn space(&self, root: Root) -> Space<K::Facade, W> {
        Space::new(self.next_space.0.fetch_add_full(1), root)
    }

    /// Runs `body` with interrupts masked.
    #[inline]
    pub(crate) fn masked<T>(&self, body: impl FnOnce() -> T) -> T {
        let saved = self.kernel.interrupts_off();
        let result = body();
        self.kernel.interrupts_restore(saved);
        result
    }

    /// Forbids migration until the guard is dropped.
    #[inline]
    pub(crate) fn pinned(&self) -> Pinned<'_, K, W> {
        self.kernel.pin();
        Pinned {
            kernel: &self.kernel,
            cpu: self.kernel.cpu(),
        }
    }

    /// The tags to treat for `tag`: itself, and the user half when tags are split (regression 30).
    #[inline]
    pub(crate) fn halves(&self, tag: Tag) -> impl Iterator<Item = Tag> + use<K, W> {
        [Some(tag), self.user_half(tag)].into_iter().flatten()
    }

    /// The user half of `tag`, where tables are split.
    #[inline]
    pub(crate) fn user_half(&self, tag: Tag) -> Option<Tag> {
        self.design().split.then_some(Tag(tag.0 | crate::design::USER_HALF))
    }
}

/// Proof that migration is pinned, and to which CPU.
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
    fn spaces_that_are_made_at_once_have_numbers_of_their_own() {
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
