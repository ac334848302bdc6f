//! Broadcast invalidation: cutting a range into what the instruction takes, both halves of split tags, and the
//! synchronising instruction on the same CPU.

use crate::engine::Engine;
use crate::fault::fault;
use crate::hooks::{Broadcast, Event, Kernel, Tag};
use crate::range::{Range, Stride};

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Broadcasts `range` under `tag` and waits until it is complete everywhere. The caller is pinned: the synchronising
    /// instruction waits only for broadcasts of its own CPU.
    ///
    /// The entry writes are visible: the caller's full-barrier increment of the generation came after them.
    pub(crate) fn broadcast_and_sync(&self, tag: Tag, range: &Range) {
        let instructions = self.issue(tag, range);
        self.kernel.broadcast_sync();
        self.kernel.event(Event::Broadcast { instructions });
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
                    self.kernel.broadcast(Broadcast::Tag(tag));
                    instructions += 1;
                }
            }
        }
        instructions
    }

    /// Pages per instruction if `range` is worth cutting up; `None` for the whole-tag form. The instruction has strides of
    /// 4 KiB and 2 MiB only.
    pub(crate) fn page_limit(&self, range: &Range) -> Option<u32> {
        let limits = self.kernel.broadcast_limits()?;
        let most = match range.stride() {
            Stride::Size4K => limits.max_pages,
            Stride::Size2M => limits.max_large_pages,
            Stride::Size1G => return None,
        };
        range.is_walkable(self.design.ceiling).then_some(most)
    }
}
