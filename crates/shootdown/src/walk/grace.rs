//! Grace periods: a table page is freed when every CPU has been seen outside a walk since the page was unlinked.
//!
//! Nobody is interrupted and nobody waits; memory waits instead. CPUs are seen at switches, at the beginning of
//! idleness, in the shootdown handler, and at whatever ticks call [`Engine::quiescent`]. A CPU that idles, or runs user
//! code, without ticks holds up every period that began since: the kernel cannot be told from outside to be in no walk.
//! Where such CPUs are, or memory runs short, [`Engine::retire_tables`] interrupts everybody, which ends all periods. A
//! kernel with an RCU of its own needs none of this: it flushes with tables and hands the pages to its RCU, whose
//! readers its walks are.

use super::retire::TablesFree;
use crate::cpu::state::PerCpu;
use crate::design::{Reach, Walkers};
use crate::engine::Engine;
use crate::facade::Word;
use crate::hooks::Kernel;
use crate::range::Range;
use crate::space::Space;
use core::sync::atomic::Ordering;

/// A grace period that was asked for. Any number of table pages unlinked and flushed before may share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grace(u64);

/// The grace periods that were over at some moment.
#[derive(Debug, Clone, Copy)]
pub struct GracesOver(u64);

impl GracesOver {
    /// The proof for table pages that waited for `grace`, if that is over.
    pub fn proof(&self, grace: Grace) -> Option<TablesFree> {
        (grace.0 <= self.0).then_some(TablesFree(()))
    }
}

/// When table pages may be freed.
#[derive(Debug)]
#[must_use = "table pages may only be freed with the proof"]
pub enum Retired {
    /// Now.
    Now(TablesFree),
    /// When [`Engine::graces_over`] has the proof.
    Later(Grace),
}

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// As [`flush_tables`](Self::flush_tables), for table pages that can wait: under [`Walkers::GracePeriod`] nobody is
    /// interrupted for the sake of walks, and the pages are kept by the caller until the grace period is over. Under
    /// every other mode it is `flush_tables`.
    pub fn flush_tables_later(&self, space: &Space<K::Facade, W>, range: Range) -> Retired {
        if self.policy().walkers != Walkers::GracePeriod || self.policy().reach == Reach::None {
            return Retired::Now(self.flush_tables(space, range));
        }
        let _flushed = self.flush(space, range.with_tables());
        // Unlink, full barrier, a new period. Pairs with the acquire in `quiescent_here`: a CPU that has seen this
        // period sees the tables without the link in every later walk.
        Retired::Later(Grace(self.grace.0.fetch_add_full(1) + 1))
    }

    /// Which grace periods are over: those after which every online CPU has been seen outside a walk. Reads one word of
    /// every CPU; meant for ticks, not for spinning. Context: a CPU that cannot change, not in a walk.
    pub fn graces_over(&self) -> GracesOver {
        self.quiescent();
        // Relaxed: this CPU is in the set, so no later period counts than it has acquired just now. The set is read
        // after that: a CPU that is not in it was in no walk when it left, and joins, a full barrier, before its next;
        // pairs with that of `flush_tables_later`.
        let mut until = self.grace.0.load(Ordering::Relaxed);
        self.online.for_each(|cpu| {
            // Acquire: pairs with the release in `quiescent_here`; the reads of earlier walks are over.
            until = until.min(self.cpus[cpu].walking.quiescent.0.load(Ordering::Acquire));
        });
        GracesOver(until)
    }

    /// This CPU is in no walk now. Call it at every tick; switches, idleness and the handler report by themselves. Any
    /// context with a CPU that cannot change, but not while holding a walk guard. Two loads; a store in each new
    /// period.
    ///
    /// # Panics
    /// In debug builds, when this CPU is in a walk; a release build then reports nothing.
    #[inline]
    pub fn quiescent(&self) {
        self.quiescent_here(&self.cpus[self.kernel.cpu()]);
    }

    #[inline]
    pub(crate) fn quiescent_here(&self, cpu: &PerCpu<K::Facade>) {
        if self.policy().walkers != Walkers::GracePeriod {
            return;
        }
        let current = self.grace.0.load(Ordering::Acquire);
        if cpu.walking.quiescent.0.load(Ordering::Relaxed) == current {
            return;
        }
        if cpu.walking.inside() {
            debug_assert!(false, "a CPU calls itself quiescent while it holds a walk guard");
            return;
        }
        cpu.walking.quiescent.0.store(current, Ordering::Release);
    }
}
