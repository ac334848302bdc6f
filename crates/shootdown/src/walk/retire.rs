//! The freeing side: which CPUs must answer before a page-table page may be freed or reused, and the proof.
//!
//! In order: unlink the page; flush with tables; wait for every walk that could hold a pointer to it; free.
//! [`flush_tables`] does the middle two in one request if invalidation uses interrupts; [`retire_tables`] does the
//! third alone.
//!
//! [`flush_tables`]: Engine::flush_tables
//! [`retire_tables`]: Engine::retire_tables

use super::policy;
use super::slots::ANY;
use crate::cpu::state::PerCpu;
use crate::cpuset::CpuMask;
use crate::design::Walkers;
use crate::engine::Engine;
use crate::facade::Word;
use crate::flush::token::{Flushed, Token};
use crate::hooks::{CpuId, Kernel};
use crate::range::Range;
use crate::space::Space;
use crate::transport::request::Asked;
use core::sync::atomic::Ordering;

/// Proof that page-table pages unlinked before the flush may be freed, or reused at once. Paging-structure caches are
/// purged on every CPU, and every lockless walk that could hold a pointer to them has ended (C3). Data frames of the
/// range may be freed too.
#[derive(Debug)]
#[must_use = "page-table pages may only be freed with this proof"]
pub struct TablesFree(pub(super) ());

/// CPUs that may hold a pointer to an unlinked page.
pub(crate) struct ActiveWalkers<const W: usize> {
    cpus: CpuMask<W>,
    /// Whether members of the walker set are among them: their registrations are to be removed.
    registered: bool,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Flushes `range` of `space`, page-table pages included, and waits for lockless walks. With the proof, page-table
    /// pages that were unlinked before the call may be freed or reused at once. If the flush uses interrupts, each CPU
    /// is interrupted at most once for both.
    ///
    /// Context as for [`flush`](Self::flush).
    ///
    /// # Panics
    /// While this CPU holds a walk guard: it would wait for itself.
    pub fn flush_tables(&self, space: &Space<K::Facade, W>, range: Range) -> TablesFree {
        if self.policy().walkers == Walkers::None {
            let _flushed = self.flush(space, range.with_tables());
            return TablesFree(());
        }
        let token = self.dispatch_with_walkers(space, range.with_tables());
        let interrupted = token.interrupted_walkers();
        let flushed = token.wait();
        let Some(interrupted) = interrupted else {
            return self.retire_tables(space, &flushed);
        };
        self.review_walks(space, interrupted);
        TablesFree(())
    }

    /// Waits until every lockless walk that could hold a pointer to page-table pages of `space` has ended. Those pages
    /// were unlinked before the flush that `flushed` proves. That flush must be [with tables](Range::with_tables), or
    /// it has skipped CPUs in lazy TLB mode. Under [`Walkers::GracePeriod`] this interrupts every CPU, because the
    /// pages may be reused at once; [`flush_tables_later`](Self::flush_tables_later) does not.
    ///
    /// Context as for [`flush`](Self::flush).
    ///
    /// # Panics
    /// While this CPU holds a walk guard: it would wait for itself. In debug builds, if the flush was of another space,
    /// or not with tables; a release build then flushes the whole space first. Every build does so if the proof is that
    /// of a [batch](crate::Batch) of several spaces, which does not name them.
    pub fn retire_tables(&self, space: &Space<K::Facade, W>, flushed: &Flushed) -> TablesFree {
        self.insist_on_tables(space, flushed);
        if self.policy().walkers == Walkers::None || self.policy().reach.is_control() {
            return TablesFree(());
        }
        let pin = self.pinned();
        let me = pin.cpu;
        // Unlink, the full barrier of what `flushed` proves, then the reads of sets and words. Pairs with the full
        // barrier of `walk_published`, `register_walker`, `walk_from_nmi` and `cpu_online`: a walk that is missed here
        // sees the tables without the link.
        let found = self.walkers_of(space, me);
        let token = self.token(space.id, 0);
        let mut targets = CpuMask::EMPTY;
        token.add_walkers(space, &found, &mut targets);
        let interrupted = found.cpus.len() as u32;
        if targets.is_empty() {
            drop(pin);
        } else {
            token.sends(|token| self.interrupt(token, targets, (Asked::END_WALKS, Range::WHOLE), pin));
        }
        token.wait_in_place();
        self.review_walks(space, interrupted);
        TablesFree(())
    }

    /// Ensures that paging-structure caches hold no pointer to unlinked page-table pages of `space`: either `flushed`
    /// proves it, or this flushes.
    fn insist_on_tables(&self, space: &Space<K::Facade, W>, flushed: &Flushed) {
        if flushed.covers_tables_of(space.id) {
            return;
        }
        debug_assert!(
            flushed.is_of_several(),
            "page-table pages are freed after a flush without tables (`Range::with_tables`), or of another space"
        );
        let _flushed = self.flush(space, Range::WHOLE);
    }

    /// Interrupts every online CPU and waits: every walk in progress at the call has ended on return. With `forget`, no
    /// CPU that was online then is still registered for `space`, unless it has registered since.
    pub(super) fn end_all_walks(&self, space: &Space<K::Facade, W>, forget: bool) {
        let pin = self.pinned();
        let token = self.token(space.id, 0);
        let walked = core::ptr::from_ref(space).expose_provenance() as u64;
        let targets = self.all_targets(pin.cpu);
        if forget {
            token.forget_walks_of(space);
            self.masked(|| self.forget_walks(&self.cpus[pin.cpu], walked, false));
        }
        if !targets.is_empty() {
            token.sends(|token| self.interrupt(token, targets, (Asked::END_WALKS, Range::WHOLE), pin));
        }
        token.wait_in_place();
    }

    /// CPUs other than `me` in a walk that may have read a pointer to tables of `space` before they were unlinked. The
    /// caller has unlinked and passed a full barrier. `me` is in none: a walk guard forbids what the caller does.
    pub(crate) fn walkers_of(&self, space: &Space<K::Facade, W>, me: CpuId) -> ActiveWalkers<W> {
        assert!(
            !self.cpus[me].walking.inside(),
            "page-table pages are freed by a CPU that holds a walk guard: drop it first"
        );
        let (published, registered) = match self.policy().walkers {
            Walkers::None => (false, false),
            Walkers::InterruptAll | Walkers::GracePeriod => {
                return ActiveWalkers {
                    cpus: self.all_targets(me),
                    registered: false,
                };
            }
            Walkers::Precise => (true, false),
            #[cfg(feature = "published")]
            Walkers::PreciseExchange => (true, false),
            Walkers::Sticky => (false, true),
            Walkers::Adaptive => {
                // Relaxed: if this mode is older than the one that a walk read, this CPU passed its barrier before the
                // walk. The mode tells that earlier walks are over; the full barrier in `review_walks`, before any
                // proof, makes sure of it.
                let mode = space.walk_mode.load(Ordering::Relaxed);
                (policy::honours_published(mode), policy::honours_registered(mode))
            }
        };
        let mut cpus = CpuMask::EMPTY;
        if published {
            self.online.for_each(|cpu| {
                // Acquire: pairs with the release store that ends a walk: its table reads are over.
                let walked = self.cpus[cpu].walking.published.0.load(Ordering::Acquire);
                if walked == space.id || walked == ANY {
                    cpus.insert(cpu);
                }
            });
        }
        if registered {
            space.walkers.for_each(|cpu| cpus.insert(cpu));
        }
        self.nmi_walkers.for_each(|cpu| cpus.insert(cpu));
        cpus.remove(me);
        // An offline CPU was in no walk when it went offline, and clears what it published before its next walk
        // (`cpu_online`).
        let candidates = cpus;
        for cpu in candidates.iter() {
            if self.cpus[cpu].state().is_off() {
                cpus.remove(cpu);
            }
        }
        ActiveWalkers { cpus, registered }
    }

    /// Removes this CPU's registration as a walker of a space. The handler's part, not in a walk. Slot first: it never
    /// exists without its bit. With `keep_loaded`, a CPU that has the space loaded stays registered, because flushes
    /// with tables interrupt it anyway.
    pub(crate) fn forget_walks(&self, cpu: &PerCpu<K::Facade>, walked: u64, keep_loaded: bool) {
        if walked == 0 {
            return;
        }
        // SAFETY: the requester borrows the space until the request is acknowledged, which comes after this.
        let space: &Space<K::Facade, W> = unsafe { &*core::ptr::with_exposed_provenance(walked as usize) };
        if keep_loaded && cpu.state().id() == space.id {
            return;
        }
        let walks = cpu.walking.forget(space.id);
        // Full barrier: a walk that registers later reads tables after it, and so sees the writes of any freeing CPU
        // that misses the bit.
        space.walkers.leave(self.kernel.cpu());
        if self.policy().walkers == Walkers::Adaptive {
            space.walk_counts.0.walks.fetch_add_full(walks);
        }
    }

    /// Whether walks register, so that a request may remove registrations.
    #[inline]
    pub(crate) fn registers_walkers(&self) -> bool {
        matches!(self.policy().walkers, Walkers::Sticky | Walkers::Adaptive)
    }

    /// Whether this CPU is about to wait, or to go offline, in the middle of a walk. That is a caller's mistake, on
    /// which a debug build panics. In a release build the CPU then does not answer before the walk is over.
    #[inline]
    pub(crate) fn waits_inside_walk(&self, cpu: &PerCpu<K::Facade>) -> bool {
        if self.policy().walkers == Walkers::None {
            return false;
        }
        let inside = cpu.walking.inside();
        debug_assert!(!inside, "a CPU waits while it holds a walk guard");
        inside
    }
}

impl<K: Kernel<W>, const W: usize> Token<'_, '_, K, W> {
    /// Adds walkers to the targets of this request. Those that the flush interrupts anyway stay registered: the next
    /// flush interrupts them as well, and registering anew is the largest cost of a free to a sticky walker.
    pub(crate) fn add_walkers(&self, space: &Space<K::Facade, W>, found: &ActiveWalkers<W>, targets: &mut CpuMask<W>) {
        let only_walkers = found.cpus.iter().filter(|&cpu| !targets.contains(cpu)).count();
        targets.union_with(&found.cpus);
        if found.registered && only_walkers > 0 {
            self.forget_walks_of(space);
        }
        self.includes_walkers(only_walkers);
    }
}
