//! The freeing side: who must be told before a table page may be freed or reused, and the proof that they were.
//!
//! In order: unlink the page; flush with tables; wait for every walk that could hold the link; free. [`flush_tables`]
//! does the middle two in one request where invalidation goes by interrupts, [`retire_tables`] the third alone.
//!
//! [`flush_tables`]: Engine::flush_tables
//! [`retire_tables`]: Engine::retire_tables

use super::policy;
use super::slots::ANY;
use crate::cpu::state::PerCpu;
use crate::cpuset::CpuMask;
use crate::design::{Reach, Walkers};
use crate::engine::Engine;
use crate::facade::Word;
use crate::flush::token::{Flushed, Token};
use crate::hooks::{CpuId, Kernel};
use crate::range::Range;
use crate::space::Space;
use crate::transport::request::EncodedRequest;
use core::sync::atomic::Ordering;

/// Proof that table pages unlinked before the flush may be freed, or reused at once: paging-structure caches are purged
/// on every CPU, and every lockless walk that could hold a link to them has ended (C3). Data frames of the range may go
/// too.
#[derive(Debug)]
#[must_use = "table pages may only be freed with this proof"]
pub struct TablesFree(pub(super) ());

/// Who may hold a link.
pub(crate) struct ActiveWalkers<const W: usize> {
    cpus: CpuMask<W>,
    /// Members of the walker set are among them: their registrations are to be forgotten.
    registered: bool,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Flushes `range` of `space`, table pages included, and waits for lockless walks: with the proof, table pages that
    /// were unlinked before the call may be freed or reused at once. Where the flush goes by interrupts, each CPU is
    /// interrupted at most once for both.
    ///
    /// Context as [`flush`](Self::flush).
    ///
    /// # Panics
    /// While this CPU holds a walk guard: it would wait for itself.
    pub fn flush_tables(&self, space: &Space<K::Facade, W>, range: Range) -> TablesFree {
        if self.policy().walkers == Walkers::None {
            let _flushed = self.flush(space, range.with_tables());
            return TablesFree(());
        }
        let token = self.dispatch_with_walkers(space, range.with_tables());
        let told = token.interrupted_walkers;
        let flushed = token.wait();
        let Some(told) = told else {
            return self.retire_tables(space, &flushed);
        };
        self.review_walks(space, told);
        TablesFree(())
    }

    /// Waits until every lockless walk that could hold a link to table pages of `space` has ended. Those pages were
    /// unlinked, and the flush that `flushed` proves came after and was [with tables](Range::with_tables), or it has
    /// passed lazy CPUs over. Under [`Walkers::GracePeriod`] it interrupts every CPU, because the pages may be reused
    /// at once; [`flush_tables_later`](Self::flush_tables_later) does not.
    ///
    /// Context as [`flush`](Self::flush).
    ///
    /// # Panics
    /// While this CPU holds a walk guard: it would wait for itself. In debug builds when the flush was of another
    /// space, or not with tables; a release build then flushes the whole space first. So does every build where the
    /// proof is that of a [batch](crate::Batch) of several spaces, which does not say which.
    pub fn retire_tables(&self, space: &Space<K::Facade, W>, flushed: &Flushed) -> TablesFree {
        self.insist_on_tables(space, flushed);
        if self.policy().walkers == Walkers::None || self.policy().reach == Reach::None {
            return TablesFree(());
        }
        let pin = self.pinned();
        let me = pin.cpu;
        // Unlink, the full barrier of what `flushed` proves, then the reads of sets and words. Pairs with the full
        // barrier of `walk_published`, `register_walker`, `walk_from_nmi` and `cpu_online`: a walk that is missed here
        // sees the tables without the link.
        let found = self.walkers_of(space, me);
        let mut token = self.token(space.id, 0);
        let mut targets = CpuMask::EMPTY;
        token.add_walkers(space, &found, &mut targets);
        let told = found.cpus.len();
        if targets.is_empty() {
            drop(pin);
        } else {
            self.interrupt(&mut token, targets, EncodedRequest::END_WALKS, pin, &|_| {});
        }
        let _done = token.wait();
        self.review_walks(space, told);
        TablesFree(())
    }

    /// Makes sure that paging-structure caches hold no link to unlinked table pages of `space`: `flushed` proves it, or
    /// this flushes.
    fn insist_on_tables(&self, space: &Space<K::Facade, W>, flushed: &Flushed) {
        if flushed.covers_tables_of(space.id) {
            return;
        }
        debug_assert!(
            flushed.is_of_several(),
            "table pages are freed after a flush without tables (`Range::with_tables`), or of another space"
        );
        let _flushed = self.flush(space, Range::WHOLE);
    }

    /// Interrupts every online CPU and waits: no walk that was under way when this was called still is. With `forget`,
    /// no CPU that was online then is still registered for `space`, unless it has registered since.
    pub(super) fn end_all_walks(&self, space: &Space<K::Facade, W>, forget: bool) {
        let pin = self.pinned();
        let mut token = self.token(space.id, 0);
        let walked = core::ptr::from_ref(space).expose_provenance() as u64;
        let targets = self.all_targets(pin.cpu);
        if forget {
            token.walked = walked;
            self.masked(|| self.forget_walks(&self.cpus[pin.cpu], walked, false));
        }
        if !targets.is_empty() {
            self.interrupt(&mut token, targets, EncodedRequest::END_WALKS, pin, &|_| {});
        }
        let _done = token.wait();
    }

    /// CPUs other than `me` that may be in a walk which read a link to tables of `space` before they were unlinked. The
    /// caller has unlinked and passed a full barrier. `me` is in none: a walk guard forbids what the caller does.
    pub(crate) fn walkers_of(&self, space: &Space<K::Facade, W>, me: CpuId) -> ActiveWalkers<W> {
        assert!(
            !self.cpus[me].walking.inside(),
            "table pages are freed by a CPU that holds a walk guard: drop it first"
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
                // Relaxed: whoever reads an older mode than a walk did passed its barrier before the walk. That earlier
                // walks are through, of which the mode tells, is known by the full barrier in `review_walks`, before
                // any proof.
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
        // A CPU that is off was in no walk when it said so, and clears what it published before its next
        // (`cpu_online`).
        let candidates = cpus;
        for cpu in candidates.iter() {
            if self.cpus[cpu].state().is_off() {
                cpus.remove(cpu);
            }
        }
        ActiveWalkers { cpus, registered }
    }

    /// Takes this CPU's registration as a walker of a space back; the handler's part, not in a walk. Slot first: it
    /// never stands without its bit. With `keep_loaded`, a CPU that has the space loaded stays registered, because
    /// flushes with tables interrupt it anyway.
    pub(crate) fn forget_walks(&self, cpu: &PerCpu<K::Facade>, walked: u64, keep_loaded: bool) {
        if walked == 0 {
            return;
        }
        // SAFETY: whoever sent the request borrows the space until it is acknowledged, which comes after this.
        let space: &Space<K::Facade, W> = unsafe { &*core::ptr::with_exposed_provenance(walked as usize) };
        if keep_loaded && cpu.state().id() == space.id {
            return;
        }
        let walks = cpu.walking.forget(space.id);
        // Full barrier; a walk that registers after this reads tables after it, and so what any freeing side has
        // written that misses the bit.
        space.walkers.leave(self.kernel.cpu());
        if self.policy().walkers == Walkers::Adaptive {
            space.walk_counts.0.walks.fetch_add_full(walks);
        }
    }

    /// Whether walks register, so that a request may ask to be forgotten.
    #[inline]
    pub(crate) fn registers_walkers(&self) -> bool {
        matches!(self.policy().walkers, Walkers::Sticky | Walkers::Adaptive)
    }

    /// Whether this CPU is about to wait, or to go off, in the middle of a walk: a mistake of the caller's, which a
    /// debug build does not let pass. In a release build the CPU then does not answer before the walk is over.
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
    /// Adds walkers to the targets of this request. Those whom the flush interrupts anyway stay registered: so will the
    /// next one, and registering anew is what a free costs a sticky walker most.
    pub(crate) fn add_walkers(
        &mut self,
        space: &Space<K::Facade, W>,
        found: &ActiveWalkers<W>,
        targets: &mut CpuMask<W>,
    ) {
        let only_walkers = found.cpus.iter().filter(|&cpu| !targets.contains(cpu)).count();
        targets.union_with(&found.cpus);
        if found.registered && only_walkers > 0 {
            self.walked = core::ptr::from_ref(space).expose_provenance() as u64;
        }
        self.interrupted_walkers = Some(only_walkers);
    }
}
