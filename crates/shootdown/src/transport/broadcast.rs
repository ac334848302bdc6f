//! Broadcast invalidation: cutting a range into what the instruction takes, both halves of split tags, whom to aim it
//! at where that is asked, and the synchronising instruction on the same CPU.

use crate::cpuset::CpuMask;
use crate::design::Reach;
use crate::engine::Engine;
use crate::facade::Facade;
use crate::hooks::{Broadcast, CpuId, Event, Kernel, Tag};
use crate::range::{Range, Stride};
use crate::space::Space;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Broadcasts `range` of `space` under `tag`, its own, and waits until it is complete everywhere. The caller is
    /// pinned on `me`: the synchronising instruction waits only for broadcasts of its own CPU. Whether anything was
    /// broadcast at all.
    ///
    /// The entry writes are visible to walkers: the caller published them.
    pub(crate) fn broadcast_and_sync(&self, space: &Space<K::Facade, W>, me: CpuId, tag: Tag, range: &Range) -> bool {
        self.broadcast_complete(|| self.issue_for(space, me, tag, range))
    }

    /// Broadcasts what `issue` issues, which returns the number of instructions, and waits until it is complete
    /// everywhere, twice over where the processor needs that. The caller is pinned. Whether there were any.
    pub(crate) fn broadcast_complete(&self, issue: impl Fn() -> u32) -> bool {
        let mut instructions = issue();
        self.synchronise(instructions);
        if self.machine().errata.repeat {
            instructions += issue();
            self.synchronise(instructions);
        }
        self.broadcast_over(instructions)
    }

    /// Waits until so many broadcasts of this CPU are complete.
    #[inline]
    pub(crate) fn synchronise(&self, instructions: u32) {
        if instructions > 0 {
            self.kernel.broadcast_sync();
        }
    }

    /// Says what a request was that has issued so many broadcasts, all of them complete; whether there were any.
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

    /// Carries out the local invalidations that `issue` issues and waits until they are complete, twice over where the
    /// processor needs that. The caller is pinned or has interrupts off.
    #[inline]
    pub(crate) fn complete_here(&self, issue: impl Fn()) {
        for _ in 0..self.times_over() {
            issue();
            self.synchronise_here();
        }
    }

    /// How often invalidations are carried out.
    #[inline]
    pub(crate) fn times_over(&self) -> u8 {
        1 + u8::from(self.machine().errata.repeat)
    }

    /// Waits until what was issued here is complete.
    #[inline]
    pub(crate) fn synchronise_here(&self) {
        self.kernel.local_sync();
    }

    /// Whether invalidations under a system-wide tag, and of the kernel, go out as broadcasts.
    #[inline]
    pub(crate) fn broadcasts(&self) -> bool {
        let reach = self.policy().reach;
        (matches!(reach, Reach::Broadcast | Reach::LocalFirst) || reach.is_adaptive())
            && !self.machine().errata.never_broadcast
            && self.kernel.broadcast_limits().is_some()
    }

    /// Table writes before this are seen by every walker that fills after an invalidation issued later, here or by
    /// whoever learns of them from the `*_full` operation that follows: a CPU that catches up with a generation
    /// invalidates without asking whether its requester has come further than that. Pairs with the walk that follows
    /// the invalidation, on any CPU (regression 17).
    #[inline]
    pub(crate) fn publish_tables(&self) {
        K::Facade::publish_tables_before_full();
    }

    /// Whether a page can be broadcast under every tag at once.
    #[inline]
    pub(crate) fn broadcasts_any_tag(&self) -> bool {
        self.broadcasts() && !self.kernel.broadcast_is_targeted()
    }

    /// Issues for `space`, whose tag it is, on `me`, without waiting; returns the number of instructions. Where
    /// broadcasts are aimed this CPU does its own part itself, while those few do theirs that may hold entries under
    /// the tag.
    #[inline]
    pub(crate) fn issue_for(&self, space: &Space<K::Facade, W>, me: CpuId, tag: Tag, range: &Range) -> u32 {
        if self.kernel.broadcast_is_targeted() {
            self.issue_aimed(space, me, tag, range)
        } else {
            self.issue(tag, range)
        }
    }

    #[inline(never)]
    fn issue_aimed(&self, space: &Space<K::Facade, W>, me: CpuId, tag: Tag, range: &Range) -> u32 {
        // C1: a CPU joins the set before it loads the tag, a full barrier, and stays in as long as the space has it
        // (`depart`). Whoever is missed here, after the request's own barrier, joins later, and all it fills is new. A
        // CPU that is not online has flushed everything before it is again (C5); its join of that set pairs with the
        // same barrier.
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
        self.flush_tag_here(tag, range);
        instructions
    }

    /// Issues to every CPU, without waiting; returns the number of instructions.
    pub(crate) fn issue(&self, tag: Tag, range: &Range) -> u32 {
        self.issue_by(tag, range, |what| self.kernel.broadcast(what))
    }

    fn issue_by(&self, tag: Tag, range: &Range, send: impl Fn(Broadcast)) -> u32 {
        let mut instructions = 0;
        for tag in self.halves(tag) {
            instructions += self.issue_half(tag, range, &send);
        }
        instructions
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

    /// Pages per instruction if `range` is worth cutting up, or fits one; `None` for the whole-tag form. The
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
