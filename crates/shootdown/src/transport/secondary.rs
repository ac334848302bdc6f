//! TLBs that belong to no CPU: an IOMMU that shares page tables, a guest's second stage.
//!
//! Owns when they are notified and when they are waited for. Every flush of a space notifies them where its generation
//! advances, before its way is chosen, so no way can omit them. The wait is the token's, after the CPUs have answered,
//! so a device's queue works in parallel with the CPUs. A notification names the space, never a tag. Promotion,
//! demotion, roll-over and broadcasts over all tags do not concern them. Neither do CPUs in lazy TLB mode, slots that
//! are behind and early local returns. A device uses its entries at any time, so it is notified at once.

use crate::engine::Engine;
use crate::hooks::{Kernel, Secondary};
use crate::range::Range;
use crate::space::Space;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// After the full-barrier increment of the space's generation. Pinned.
    #[inline]
    pub(crate) fn notify_secondary(&self, space: &Space<K::Facade, W>, range: &Range) -> u64 {
        self.kernel.secondary(space.root, Secondary::Flush(*range))
    }

    /// The space ends. After the full-barrier increment of its generation; pinned.
    #[inline]
    pub(crate) fn notify_secondary_of_end(&self, space: &Space<K::Facade, W>) -> u64 {
        self.kernel.secondary(space.root, Secondary::End)
    }

    /// For a flush of kernel addresses. After the entry writes and a full barrier; pinned.
    #[inline]
    pub(crate) fn notify_secondary_of_kernel(&self, range: &Range) -> u64 {
        self.kernel.secondary(self.kernel_root, Secondary::Flush(*range))
    }

    /// Waits for the notifications. Before the proof that a flush is complete.
    #[inline]
    pub(crate) fn await_secondary(&self, ticket: u64) {
        if ticket != 0 {
            self.kernel.secondary_sync(ticket);
        }
    }
}
