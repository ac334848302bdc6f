//! Decides whether a space should have a system-wide tag, by the cost of its requests without and with one
//! ([`Tags::HybridByCost`](crate::Tags::HybridByCost)).
//!
//! `adaptive/tag_costs.rs` has what is recorded of a space and of a CPU for that. `tags/promotion.rs` and
//! `tags/demotion.rs` act on the answer. Correctness does not depend on it.
//!
//! 1. Without a tag a request costs the interrupts to its targets, and the catching up of the other CPUs. A timed
//!    request records which share of the space's active CPUs were targets; CPUs inside the kernel catch up by
//!    themselves. Each CPU records how many requests it catches up with at once. With a tag a request costs a
//!    broadcast.
//! 2. One way has to cost more than the other by an eighth ([`exceeds_by_hysteresis`]). A space that was demoted for
//!    cost must confirm it several times in a row ([`demote_after`](crate::Policy::demote_after)). Means are compared,
//!    not samples: the number of active CPUs and the cost of a broadcast both vary by half. A tag given up at a peak
//!    would be measured against that peak ever after.
//!    One sample promotes no space: the first is a request that had targets (`Share::is_mean`).
//! 3. Under a tag, nothing is learned about the cost without one. So the estimate decays, and the space is occasionally
//!    tried without a tag. Without a tag the cost of a broadcast decays in the same way.

use crate::adaptive::tag_costs::{BroadcastCost, CatchUpLag, Share, exceeds_by_hysteresis};
use crate::cpu::state::{PerCpu, Slot};
use crate::engine::Engine;
use crate::facade::Word;
use crate::hooks::{CpuId, Kernel};
use crate::space::Space;
use core::sync::atomic::Ordering;

/// For each group of this many CPUs on which a tagged space is active, one timed request fewer considers demotion.
/// Considering it reads the states of all these CPUs. Without this, `tlb_shared` on 128 CPUs lost 2 % (`milan-128`,
/// `turin-2p`).
const CPUS_PER_SKIP: u64 = 16;

/// For how much of an interrupt's time a targeted broadcast stalls a CPU, as one in so many: shorter, since no handler
/// is entered and nothing is saved. No figure is public. A quarter is what `sapphire-224` assumes (`rar.action`), an
/// eighth half of that. A space gets a tag if that pays with the longer stall, and gives it back if it does not pay
/// even with the shorter one.
const STALL_AT_MOST: u64 = 4;
const STALL_AT_LEAST: u64 = 8;

impl<K: Kernel<W>, const W: usize> Engine<'_, K, W> {
    /// Whether tags depend on the cost of requests.
    #[inline]
    pub(crate) fn weighs_tags(&self) -> bool {
        self.policy().reach.is_adaptive() && self.tags().are_by_cost()
    }

    /// Records that `cpu`, which is this CPU, has caught up by itself in its loaded slot, starting from generation
    /// `seen`. Interrupts off.
    #[inline]
    pub(crate) fn record_lag(&self, cpu: &PerCpu<K::Facade>, slot: &Slot<K::Facade>, seen: u64) {
        let missed = slot.generation.load(Ordering::Relaxed).wrapping_sub(seen);
        if missed != 0 {
            let lag = CatchUpLag(cpu.own.lag.load(Ordering::Relaxed)).after(missed);
            cpu.own.lag.store(lag.0, Ordering::Relaxed);
        }
    }

    /// Whether nothing is known about the cost of `space`'s requests without a tag.
    pub(crate) fn is_new(&self, space: &Space<K::Facade, W>) -> bool {
        space.target_share.load(Ordering::Relaxed) == Share::UNKNOWN.pack()
    }

    /// Called after a request to `targets` CPUs of a space that is active on `active`. Records how many of those were
    /// targets. Returns the cost of a request without a tag and with one, ns, if the space should be promoted, which
    /// takes two samples and at least `least` active CPUs. Two CPUs that record at once lose one sample: relaxed, as
    /// everywhere here.
    pub(crate) fn should_promote(
        &self,
        space: &Space<K::Facade, W>,
        me: CpuId,
        (active, least): (u32, u32),
        targets: usize,
    ) -> Option<(u64, u64)> {
        let mut share = Share::unpack(space.target_share.load(Ordering::Relaxed));
        if active > 1 {
            share = share.after(targets as u64, u64::from(active - 1));
            space.target_share.store(share.pack(), Ordering::Relaxed);
        }
        let broadcast_cost = BroadcastCost::unpack(space.broadcast_cost.load(Ordering::Relaxed));
        space
            .broadcast_cost
            .store(broadcast_cost.decayed().pack(), Ordering::Relaxed);
        let (without, with) = self.without_and_with_tag(space, me, STALL_AT_MOST);
        // After a demotion for cost, one sample is not enough.
        let times = if broadcast_cost.ns == 0 {
            1
        } else {
            self.policy().demote_after
        };
        let found = active >= least && share.is_mean() && exceeds_by_hysteresis(without, with.max(broadcast_cost.ns));
        self.confirm_streak(space, found, times).then_some((without, with))
    }

    /// Whether this sample of `space` considers demotion. Rarer on more CPUs, because it reads the state of each.
    pub(crate) fn looks(&self, space: &Space<K::Facade, W>, sample: u64) -> bool {
        let others = Share::unpack(space.target_share.load(Ordering::Relaxed)).others / Share::CPU;
        sample.is_multiple_of(1 + others / CPUS_PER_SKIP)
    }

    /// Called after a timed request of a space that has a tag and is active on `active` CPUs. Returns the expected cost
    /// without the tag and the measured cost with it, ns, if the latter is higher. Decays the estimate without a tag.
    pub(crate) fn should_demote(&self, space: &Space<K::Facade, W>, me: CpuId, active: u32) -> Option<(u64, u64)> {
        let others = u64::from(active.saturating_sub(1));
        let share = Share::unpack(space.target_share.load(Ordering::Relaxed)).decayed(others);
        space.target_share.store(share.pack(), Ordering::Relaxed);
        let (without, now) = self.without_and_with_tag(space, me, STALL_AT_LEAST);
        let with = BroadcastCost::unpack(space.broadcast_cost.load(Ordering::Relaxed)).after(now);
        space.broadcast_cost.store(with.pack(), Ordering::Relaxed);
        exceeds_by_hysteresis(with.ns, without).then_some((without, with.ns))
    }

    /// Expected cost of a request of `space` from `me` without a system-wide tag, and with one, ns, if a targeted
    /// broadcast stalls its targets for one `stall`th of an interrupt. Other CPUs are assumed to lag as far behind as
    /// `me`.
    fn without_and_with_tag(&self, space: &Space<K::Facade, W>, me: CpuId, stall: u64) -> (u64, u64) {
        let costs = self.weighed(self.costs.load());
        let share = Share::unpack(space.target_share.load(Ordering::Relaxed));
        let lag = CatchUpLag(self.cpus[me].own.lag.load(Ordering::Relaxed));
        // A CPU that receives a targeted broadcast stalls for it, which the requester's clock does not see.
        let disturbed = if self.kernel.broadcast_is_targeted() {
            costs.disturbed_ns.saturating_mul(share.others / Share::CPU) / stall
        } else {
            0
        };
        let with = costs.broadcast_ns.saturating_add(disturbed);
        (costs.without_tag_ns(share, lag), with)
    }

    /// Called when `space` gives up its tag because requests cost less without. That estimate has decayed, so it is
    /// learned anew. The cost with the tag is kept.
    pub(crate) fn forget_target_share(&self, space: &Space<K::Facade, W>) {
        space.target_share.store(Share::UNKNOWN.pack(), Ordering::Relaxed);
    }

    /// Called when `space` gives up its tag for any other reason than cost.
    pub(crate) fn forget_broadcast_cost(&self, space: &Space<K::Facade, W>) {
        space
            .broadcast_cost
            .store(BroadcastCost::UNKNOWN.pack(), Ordering::Relaxed);
    }

    /// Whether a request of `space`, which has no tag, to `targets` CPUs may be broadcast under every tag. If the space
    /// gave up a tag for its cost, the broadcast cost of that time still counts. The present cost of a few broadcasts
    /// says nothing about many.
    #[inline]
    pub(crate) fn may_broadcast(&self, space: &Space<K::Facade, W>, targets: u64) -> bool {
        // The costs are on a line that is often written, so they are read only where needed.
        let broadcast_cost = BroadcastCost::unpack(space.broadcast_cost.load(Ordering::Relaxed)).ns;
        broadcast_cost == 0 || self.costs.load().disturbance_ns(targets) >= broadcast_cost
    }

    /// Whether a sample has found `space` better off the other way, with or without a tag, for the `times`th time in a
    /// row.
    pub(crate) fn confirm_streak(&self, space: &Space<K::Facade, W>, found: bool, times: u32) -> bool {
        let before = space.streak.load(Ordering::Relaxed);
        let found = if found { before + 1 } else { 0 };
        let enough = found >= u64::from(times);
        let after = if enough { 0 } else { found };
        if after != before {
            space.streak.store(after, Ordering::Relaxed);
        }
        enough
    }
}
