//! Grace periods: a page-table page is freed when every CPU has been seen outside a walk since it was unlinked.
//!
//! No CPU is interrupted and none waits; memory waits instead. CPUs are seen at switches, at the start of idle, in the
//! shootdown handler, and at ticks that call [`Engine::quiescent`]. A CPU that idles, or runs user code, without ticks
//! delays every period that began since: other CPUs cannot tell that it is in no walk. If there are such CPUs, or
//! memory runs short, [`Engine::retire_tables`] interrupts every CPU, which ends all periods. A kernel with its own RCU
//! needs none of this: it flushes with tables and passes the pages to its RCU, of which its walks are readers.

use super::retire::TablesFree;
use crate::cpu::state::PerCpu;
use crate::design::Walkers;
use crate::engine::Engine;
use crate::facade::Word;
use crate::hooks::Kernel;
use crate::range::Range;
use crate::space::Space;
use core::sync::atomic::Ordering;

/// A requested grace period. Any number of page-table pages unlinked and flushed before may share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grace(u64);

/// The grace periods that were over at one point in time.
#[derive(Debug, Clone, Copy)]
pub struct GracesOver(u64);

impl GracesOver {
    /// The proof for page-table pages that waited for `grace`, if that is over.
    pub fn proof(&self, grace: Grace) -> Option<TablesFree> {
        (grace.0 <= self.0).then_some(TablesFree(()))
    }
}

/// When page-table pages may be freed.
#[derive(Debug)]
#[must_use = "page-table pages may only be freed with the proof"]
pub enum Retired {
    /// Now.
    Now(TablesFree),
    /// When [`Engine::graces_over`] has the proof.
    Later(Grace),
}

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// As [`flush_tables`](Self::flush_tables), for page-table pages that can wait. Under [`Walkers::GracePeriod`] it
    /// interrupts no CPU because of walks, and the caller keeps the pages until the grace period is over. Under every
    /// other mode it is `flush_tables`.
    pub fn flush_tables_later(&self, space: &Space<K::Facade, W>, range: Range) -> Retired {
        if self.policy().walkers != Walkers::GracePeriod || self.policy().reach.is_control() {
            return Retired::Now(self.flush_tables(space, range));
        }
        let _flushed = self.flush(space, range.with_tables());
        // Unlink, full barrier, a new period. Pairs with the acquire in `quiescent_here`: a CPU that has seen this
        // period sees the tables without the link in every later walk.
        Retired::Later(Grace(self.grace.0.fetch_add_full(1) + 1))
    }

    /// Returns which grace periods are over: those after which every online CPU has been seen outside a walk. Reads one
    /// word of every CPU; meant for ticks, not for spinning. Context: no migration, not in a walk.
    pub fn graces_over(&self) -> GracesOver {
        self.quiescent();
        // Relaxed: this CPU is in the set, so the result is limited to the period that it has just acquired. The set is
        // read after that. A CPU that is not in the set was in no walk when it left, and joins, with a full barrier,
        // before its next one; pairs with that of `flush_tables_later`.
        let mut until = self.grace.0.load(Ordering::Relaxed);
        self.online.for_each(|cpu| {
            // Acquire: pairs with the release in `quiescent_here`; the reads of earlier walks are over.
            until = until.min(self.cpus[cpu].walking.quiescent.0.load(Ordering::Acquire));
        });
        GracesOver(until)
    }

    /// Reports that this CPU is in no walk. Call it at every tick; switches, idle and the handler report by themselves.
    /// Any context without migration, but not while holding a walk guard. Two loads; a store in each new period.
    ///
    /// # Panics
    /// In debug builds, if this CPU is in a walk. A release build then reports nothing.
    #[inline]
    pub fn quiescent(&self) {
        self.quiescent_here(&self.cpus[self.kernel.cpu()]);
    }

    #[inline]
    pub(crate) fn quiescent_here(&self, cpu: &PerCpu<K::Facade>) {
        if self.policy().walkers != Walkers::GracePeriod {
            return;
        }
        // Acquire: pairs with the increment in `flush_tables_later`. Every later walk sees the tables without the link.
        let current = self.grace.0.load(Ordering::Acquire);
        if cpu.walking.quiescent.0.load(Ordering::Relaxed) == current {
            return;
        }
        if cpu.walking.inside() {
            debug_assert!(false, "a CPU calls itself quiescent while it holds a walk guard");
            return;
        }
        // Release: pairs with the acquire in `graces_over`. The table reads of earlier walks are over.
        cpu.walking.quiescent.0.store(current, Ordering::Release);
    }
}
