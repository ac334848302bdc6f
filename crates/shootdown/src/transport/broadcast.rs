//! Broadcast invalidation: cuts a range into what the instruction takes, handles both halves of split tags, and chooses
//! targets where broadcasts are targeted. Issues the synchronising instruction on the same CPU.

use crate::cpuset::CpuMask;
use crate::design::Reach;
use crate::engine::Engine;
use crate::facade::Facade;
use crate::hooks::{Broadcast, CpuId, Event, Kernel, Tag};
use crate::range::{Range, Stride};
use crate::space::Space;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Broadcasts `range` of `space` under its `tag` and waits until that is complete everywhere. The caller is pinned
    /// on `me`: the synchronising instruction waits only for broadcasts of its own CPU. Returns whether anything was
    /// broadcast.
    ///
    /// The entry writes are visible to walkers: the caller published them.
    pub(crate) fn broadcast_and_sync(&self, space: &Space<K::Facade, W>, me: CpuId, tag: Tag, range: &Range) -> bool {
        self.broadcast_complete(|| self.issue_for(space, me, tag, range))
    }

    /// [`broadcast_and_sync`](Self::broadcast_and_sync) of one leaf of 4 KiB or 2 MiB, to every CPU, where one
    /// instruction is enough: no split tags, no errata.
    #[inline]
    pub(crate) fn broadcast_leaf(&self, tag: Tag, range: &Range) {
        self.kernel.broadcast(Broadcast::Pages {
            address: range.start(),
            stride: range.stride(),
            count: 1,
            tag,
            leaf_only: true,
        });
        self.synchronise(1);
        self.broadcast_over(1);
    }

    /// Broadcasts by `issue`, which returns the number of instructions, and waits until they are complete everywhere.
    /// Does both twice on processors that need it. The caller is pinned. Returns whether there were any.
    pub(crate) fn broadcast_complete(&self, issue: impl Fn() -> u32) -> bool {
        let mut instructions = issue();
        self.synchronise(instructions);
        if self.machine().errata.repeat {
            instructions += issue();
            self.synchronise(instructions);
        }
        self.broadcast_over(instructions)
    }

    /// Waits until this many broadcasts of this CPU are complete.
    #[inline]
    pub(crate) fn synchronise(&self, instructions: u32) {
        if instructions > 0 {
            self.kernel.broadcast_sync();
        }
    }

    /// Reports the event of a request that issued this many broadcasts, all complete. Returns whether there were any.
    #[inline]
    pub(crate) fn broadcast_over(&self, instructions: u32) -> bool {
        let any = instructions > 0;
        self.kernel.event(if any {
            Event::Broadcast { instructions }
        } else {
            Event::LocalOnly
        });
        any
    }

    /// Carries out the local invalidations of `issue` and waits until they are complete. Does both twice on processors
    /// that need it. The caller is pinned or has interrupts off.
    #[inline]
    pub(crate) fn complete_here(&self, issue: impl Fn()) {
        for _ in 0..self.times_over() {
            issue();
            self.synchronise_here();
        }
    }

    /// How many times each invalidation is carried out.
    #[inline]
    pub(crate) fn times_over(&self) -> u8 {
        1 + u8::from(self.machine().errata.repeat)
    }

    /// Waits until the invalidations issued on this CPU are complete.
    #[inline]
    pub(crate) fn synchronise_here(&self) {
        self.kernel.local_sync();
    }

    /// Whether invalidations under a system-wide tag, and of the kernel, are broadcast.
    #[inline]
    pub(crate) fn broadcasts(&self) -> bool {
        self.can_broadcast() && !self.machine().errata.never_broadcast
    }

    /// The same, whatever the errata of the processor.
    #[inline]
    pub(crate) fn can_broadcast(&self) -> bool {
        let reach = self.policy().reach;
        (matches!(reach, Reach::Broadcast | Reach::LocalFirst) || reach.is_adaptive())
            && self.kernel.broadcast_limits().is_some()
    }

    /// Makes earlier table writes visible to every walker that fills after a later invalidation. That invalidation may
    /// be issued here, or by a CPU that learns of the writes from the `*_full` operation that follows. A CPU that
    /// catches up with a generation invalidates without checking how far its requester is. Pairs with the walk that
    /// follows the invalidation, on any CPU (regression 17).
    #[inline]
    pub(crate) fn publish_tables(&self) {
        K::Facade::publish_tables_before_full();
    }

    /// Whether one broadcast can cover a page under every tag.
    #[inline]
    pub(crate) fn broadcasts_any_tag(&self) -> bool {
        self.broadcasts() && !self.kernel.broadcast_is_targeted()
    }

    /// Issues broadcasts for `space`, which has `tag`, from `me`, without waiting. Returns the number of instructions.
    /// Where broadcasts are targeted this CPU invalidates locally, while the CPUs that may hold entries under the tag
    /// do their part.
    #[inline]
    pub(crate) fn issue_for(&self, space: &Space<K::Facade, W>, me: CpuId, tag: Tag, range: &Range) -> u32 {
        if self.kernel.broadcast_is_targeted() {
            self.issue_aimed(space, me, tag, *range)
        } else {
            self.issue(tag, range)
        }
    }

    #[inline(never)]
    fn issue_aimed(&self, space: &Space<K::Facade, W>, me: CpuId, tag: Tag, range: Range) -> u32 {
        // C1: a CPU joins the set before it loads the tag, with a full barrier, and stays a member while the space has
        // the tag (`depart`). A CPU that is missed here, after the request's own barrier, joins later, and fills only
        // new entries. An offline CPU flushes everything before it is online again (C5); its join of the online set
        // pairs with the same barrier.
        let mut holders = CpuMask::EMPTY;
        space.cpus.for_each_but(me, |cpu| {
            if self.online.contains(cpu) {
                holders.insert(cpu);
            }
        });
        let instructions = if holders.is_empty() {
            0
        } else {
            self.issue_by(tag, range, |what| self.kernel.broadcast_to(&holders, what))
        };
        self.flush_tag_here(tag, &range);
        instructions
    }

    /// Issues broadcasts to every CPU, without waiting. Returns the number of instructions.
    pub(crate) fn issue(&self, tag: Tag, range: &Range) -> u32 {
        self.issue_by(tag, *range, |what| self.kernel.broadcast(what))
    }

    #[inline(never)]
    fn issue_by(&self, tag: Tag, range: Range, send: impl Fn(Broadcast)) -> u32 {
        // One after the other: what is left of an iterator would be kept on the stack (`cargo xtask stack`).
        let instructions = self.issue_half(tag, &range, &send);
        match self.user_half(tag) {
            None => instructions,
            Some(user_half) => instructions + self.issue_half(user_half, &range, &send),
        }
    }

    fn issue_half(&self, tag: Tag, range: &Range, send: &impl Fn(Broadcast)) -> u32 {
        let Some(most) = self.page_limit(range) else {
            send(Broadcast::Tag(tag));
            return 1;
        };
        let (mut instructions, leaf_only) = (0, !range.tables());
        for (address, count) in range.chunks(most) {
            send(Broadcast::Pages {
                address,
                stride: range.stride(),
                count,
                tag,
                leaf_only,
            });
            instructions += 1;
        }
        instructions
    }

    /// Broadcasts `range` under every tag, at most `most` pages at a time, without waiting. Returns the number of
    /// instructions.
    pub(crate) fn issue_kernel(&self, range: &Range, most: u32, leaf_only: bool) -> u32 {
        let mut instructions = 0;
        for (address, count) in range.chunks(most) {
            self.kernel.broadcast(Broadcast::Kernel {
                address,
                stride: range.stride(),
                count,
                leaf_only,
            });
            instructions += 1;
        }
        instructions
    }

    /// Pages per instruction if `range` is flushed in pieces, or fits one; `None` for the whole-tag form. The
    /// instruction has strides of 4 KiB and 2 MiB only.
    pub(crate) fn page_limit(&self, range: &Range) -> Option<u32> {
        let limits = self.kernel.broadcast_limits()?;
        let most = match range.stride() {
            Stride::Size4K => limits.max_pages,
            Stride::Size2M => limits.max_large_pages,
            Stride::Size1G => return None,
        };
        range.is_walkable(self.policy().ceiling.max(most)).then_some(most)
    }
}

#[cfg(test)]
mod tests;
