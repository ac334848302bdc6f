//! Broadcast invalidation: cutting a range into what the instruction takes, both halves of split tags, and the
//! synchronising instruction on the same CPU.

use crate::design::Reach;
use crate::engine::Engine;
use crate::facade::Facade;
use crate::fault::fault;
#[cfg(feature = "faults")]
use crate::hooks::Local;
use crate::hooks::{Broadcast, Event, Kernel, Tag};
use crate::range::{Range, Stride};

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Broadcasts `range` under `tag` and waits until it is complete everywhere. The caller is pinned: the synchronising
    /// instruction waits only for broadcasts of its own CPU.
    ///
    /// The entry writes are visible to walkers: the caller published them.
    pub(crate) fn broadcast_and_sync(&self, tag: Tag, range: &Range) {
        self.broadcast_complete(|| self.issue(tag, range));
    }

    /// Broadcasts what `issue` issues, which returns the number of instructions, and waits until it is complete everywhere,
    /// twice over where the processor needs that. The caller is pinned.
    pub(crate) fn broadcast_complete(&self, issue: impl Fn() -> u32) {
        let mut instructions = issue();
        self.kernel.broadcast_sync();
        if self.design().errata.repeat {
            instructions += issue();
            self.kernel.broadcast_sync();
        }
        self.kernel.event(Event::Broadcast { instructions });
    }

    /// Carries out the local invalidations that `issue` issues and waits until they are complete, twice over where the
    /// processor needs that. The caller is pinned or has interrupts off.
    #[inline]
    pub(crate) fn complete_here(&self, issue: impl Fn()) {
        for again in 0..self.times_over() {
            issue();
            self.synchronise_here(again);
        }
    }

    /// How often invalidations are carried out.
    #[inline]
    pub(crate) fn times_over(&self) -> u8 {
        1 + u8::from(self.design().errata.repeat)
    }

    /// Waits until what was issued here, for the first time (0) or again, is complete.
    #[inline]
    pub(crate) fn synchronise_here(&self, again: u8) {
        if again > 0 || !fault!(self.kernel, AcknowledgeBeforeLocalSync) {
            self.kernel.local_sync();
        }
    }

    /// Whether invalidations under a system-wide tag, and of the kernel, go out as broadcasts.
    #[inline]
    pub(crate) fn broadcasts(&self) -> bool {
        matches!(
            self.design().reach,
            Reach::Broadcast | Reach::LocalFirst | Reach::Adaptive
        ) && !self.design().errata.never_broadcast
            && self.kernel.broadcast_limits().is_some()
    }

    /// Table writes before this are seen by every walker that fills after an invalidation issued later, here or by whoever
    /// learns of them from the `*_full` operation that follows: a CPU that catches up with a generation invalidates without
    /// asking whether its requester has come further than that. Pairs with the walk that follows the invalidation, on any
    /// CPU (regression 17).
    #[inline]
    pub(crate) fn publish_tables(&self) {
        if !fault!(self.kernel, NoPublishBeforeInvalidation) && !fault!(self.kernel, PublishAfterGeneration) {
            K::Facade::publish_tables_before_full();
        }
    }

    /// The same, after the generation that announces them.
    #[cfg(feature = "faults")]
    pub(crate) fn publish_late(&self) {
        if self.kernel.fault(crate::fault::Fault::PublishAfterGeneration) {
            K::Facade::publish_tables_before_full();
        }
    }

    /// Issues without waiting; returns the number of instructions.
    pub(crate) fn issue(&self, tag: Tag, range: &Range) -> u32 {
        let mut instructions = 0;
        for tag in self
            .halves(tag)
            .take(if fault!(self.kernel, BroadcastOneHalf) { 1 } else { 2 })
        {
            match self.page_limit(range) {
                Some(most) => {
                    let leaf_only = !range.tables() || fault!(self.kernel, TablesNotPurged);
                    for (address, count) in range.chunks(most) {
                        let count = count - u32::from(fault!(self.kernel, BroadcastCountOffByOne));
                        let once = range.tables() && fault!(self.kernel, TablesNamedOnce);
                        let count = if once { 1 } else { count };
                        self.kernel.broadcast(Broadcast::Pages {
                            address,
                            stride: range.stride(),
                            count,
                            tag,
                            leaf_only,
                        });
                        instructions += 1;
                    }
                }
                None => {
                    #[cfg(feature = "faults")]
                    if self.kernel.fault(crate::fault::Fault::WholeTagOnlyHere) {
                        self.kernel.invalidate(Local::Tag(tag));
                        continue;
                    }
                    self.kernel.broadcast(Broadcast::Tag(tag));
                    instructions += 1;
                }
            }
        }
        instructions
    }

    /// Pages per instruction if `range` is worth cutting up, or fits one; `None` for the whole-tag form. The instruction has
    /// strides of 4 KiB and 2 MiB only.
    pub(crate) fn page_limit(&self, range: &Range) -> Option<u32> {
        let limits = self.kernel.broadcast_limits()?;
        let most = match range.stride() {
            Stride::Size4K => limits.max_pages,
            Stride::Size2M => limits.max_large_pages,
            Stride::Size1G => return None,
        };
        range.is_walkable(self.design().ceiling.max(most)).then_some(most)
    }
}
