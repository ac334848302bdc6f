//! Decides whether a space should have a system-wide tag, by the cost of its requests without and with one
//! ([`Tags::HybridByCost`](crate::Tags::HybridByCost)).
//!
//! Owns what is recorded of a space and of a CPU for that ([`Share`], [`CatchUpLag`]) and how it is weighed.
//! `tags/promotion.rs` and `tags/demotion.rs` act on the answer. Correctness does not depend on it.
//!
//! 1. Without a tag a request costs the interrupts to its targets, and the catching up of the other CPUs. A timed
//!    request records which share of the space's active CPUs were targets; CPUs inside the kernel catch up by
//!    themselves. Each CPU records how many requests it catches up with at once. With a tag a request costs a
//!    broadcast.
//! 2. One way has to cost more than the other by an eighth ([`exceeds_by_hysteresis`]). A space that was demoted for
//!    cost must confirm it several times in a row ([`demote_after`](crate::Policy::demote_after)). Means are compared,
//!    not samples: the number of active CPUs and the cost of a broadcast both vary by half. A tag given up at a peak
//!    would be measured against that peak ever after.
//! 3. Under a tag, nothing is learned about the cost without one. So the estimate decays, and the space is occasionally
//!    tried without a tag. Without a tag the cost of a broadcast decays in the same way.

use crate::adaptive::costs::{Costs, ewma_step};
use crate::cpu::state::{PerCpu, Slot};
use crate::engine::Engine;
use crate::facade::Word;
use crate::hooks::{CpuId, Kernel};
use crate::space::Space;
use core::sync::atomic::Ordering;

/// Each timed request with a tag decays the estimate without a tag by one in this many. A space that costs twice as
/// much without a tag as with one is then tried without after about 800 samples, which is 50,000 requests. A trial
/// lasts eight samples ([`demote_after`](crate::Policy::demote_after)) or a few more: a hundredth of the requests.
/// `shootdown explain tlb_flush2 --threads 3 --virtual-ms 60` shows such a trial.
const SHARE_DECAY: u64 = 1024;

/// The same for the cost of a broadcast, at each timed request without a tag. Slower, because a trial with a tag costs
/// more: two changes of tag, in which every CPU takes part.
const COST_DECAY: u64 = 4096;

/// Cap of the catch-up lag, in requests. At this lag the cost of catching up per request is below the resolution of a
/// clock.
const MAX_LAG: u64 = 64;

/// For each group of this many CPUs on which a tagged space is active, one timed request fewer considers demotion.
/// Considering it reads the states of all these CPUs. Without this, `tlb_shared` on 128 CPUs lost 2 % (`milan-128`,
/// `turin-2p`).
const CPUS_PER_SKIP: u64 = 16;

/// Length of the mean of request costs with a tag: at most, each sample moves it by one part in this many.
const COST_SAMPLES: u64 = 32;

/// On how many CPUs other than the requester's a space is active, and which share of them its requests have to
/// interrupt. The first samples have equal weight; later ones move it by an eighth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// In 65,536ths.
    part: u64,
    /// CPUs, in 256ths.
    others: u64,
    /// Samples in the mean, at most 8.
    samples: u64,
}

impl Share {
    /// Nothing is known, and nothing is assumed.
    pub(crate) const UNKNOWN: Share = Share {
        part: 0,
        others: 0,
        samples: 0,
    };
    /// All of them.
    const WHOLE: u64 = 1 << 16;
    /// One CPU.
    const CPU: u64 = 1 << 8;

    /// After another sample: `asked` of `others` CPUs were targets.
    fn after(self, asked: u64, others: u64) -> Share {
        let sample = (asked * Self::WHOLE / others.max(1)).min(Self::WHOLE);
        let samples = (self.samples + 1).min(8);
        Share {
            part: ewma_step(self.part, sample, samples),
            others: ewma_step(self.others, others * Self::CPU, samples),
            samples,
        }
    }

    /// After a timed request that only shows on how many `others` the space is active.
    fn decayed(self, others: u64) -> Share {
        Share {
            part: decayed(self.part, SHARE_DECAY),
            others: ewma_step(self.others, others * Self::CPU, 8),
            ..self
        }
    }

    /// How many CPUs are targets and how many are not, in 65,536ths.
    fn targets_and_rest(self) -> (u64, u64) {
        let asked = self.others * self.part / Self::CPU;
        (asked, self.others * Self::WHOLE / Self::CPU - asked)
    }

    const fn pack(self) -> u64 {
        self.part | self.others << 24 | self.samples << 56
    }

    fn unpack(word: u64) -> Share {
        Share {
            part: word & 0xFF_FFFF,
            others: word >> 24 & 0xFFFF_FFFF,
            samples: word >> 56,
        }
    }
}

/// How many requests a CPU is behind when it catches up by itself, in eighths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CatchUpLag(pub(crate) u64);

impl CatchUpLag {
    /// One request at a time.
    const ONE: CatchUpLag = CatchUpLag(8);
    /// So far that catching up hardly matters. Both the initial value for a CPU and the maximum.
    pub(crate) const MAX: CatchUpLag = CatchUpLag(MAX_LAG * 8);

    /// After the CPU has caught up with `missed` requests: moves by an eighth.
    fn after(self, missed: u64) -> CatchUpLag {
        CatchUpLag(ewma_step(self.0, missed.min(MAX_LAG) * 8, 8))
    }
}

/// Cost of a space's requests with a system-wide tag. The first samples have equal weight; later ones move it by a
/// 32nd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BroadcastCost {
    /// 0 if nothing is known, or the estimate has decayed to nothing.
    ns: u64,
    /// Samples in the mean, at most [`COST_SAMPLES`].
    samples: u64,
}

impl BroadcastCost {
    /// Nothing is known. Packed, it is 0.
    const UNKNOWN: BroadcastCost = BroadcastCost { ns: 0, samples: 0 };

    fn after(self, ns: u64) -> BroadcastCost {
        let before = if self.ns == 0 { BroadcastCost::UNKNOWN } else { self };
        let samples = (before.samples + 1).min(COST_SAMPLES);
        BroadcastCost {
            ns: ewma_step(before.ns, ns, samples),
            samples,
        }
    }

    fn decayed(self) -> BroadcastCost {
        BroadcastCost {
            ns: decayed(self.ns, COST_DECAY),
            ..self
        }
    }

    const fn pack(self) -> u64 {
        self.ns | self.samples << 56
    }

    fn unpack(word: u64) -> BroadcastCost {
        BroadcastCost {
            ns: word & ((1 << 56) - 1),
            samples: word >> 56,
        }
    }
}

/// Decays `value` by one `part`th, down to 0.
fn decayed(value: u64, part: u64) -> u64 {
    value - value.div_ceil(part)
}

/// Whether `one` exceeds `other` by an eighth. Estimates move by eighths, so a smaller difference may be chance.
fn exceeds_by_hysteresis(one: u64, other: u64) -> bool {
    one > other.saturating_add(other / 8)
}

impl Costs {
    /// Expected cost to the machine of a request of a space on per-CPU tags, ns, if `share` of its CPUs are targets.
    /// The others catch up by themselves, each when it is `behind` by that many requests. That costs two cache-line
    /// transfers, each taken as costly as one further target, and the invalidation of a tag.
    fn without_tag_ns(&self, share: Share, behind: CatchUpLag) -> u64 {
        let (asked, not) = share.targets_and_rest();
        let sending = match asked.checked_sub(Share::WHOLE) {
            None => self.interrupt_ns.saturating_mul(asked),
            Some(further) => self
                .interrupt_ns
                .saturating_mul(Share::WHOLE)
                .saturating_add(self.interrupt_more_ns.saturating_mul(further)),
        };
        let disturbed = self.disturbed_ns.saturating_mul(asked);
        let catch_up = self.interrupt_more_ns.saturating_add(self.tag_ns);
        let catching_up = catch_up.saturating_mul(not) / behind.0.max(CatchUpLag::ONE.0) * CatchUpLag::ONE.0;
        sending.saturating_add(disturbed).saturating_add(catching_up) / Share::WHOLE
    }
}

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
            let behind = CatchUpLag(cpu.own.lag.load(Ordering::Relaxed)).after(missed);
            cpu.own.lag.store(behind.0, Ordering::Relaxed);
        }
    }

    /// Whether nothing is known about the cost of `space`'s requests without a tag.
    pub(crate) fn is_new(&self, space: &Space<K::Facade, W>) -> bool {
        space.target_share.load(Ordering::Relaxed) == Share::UNKNOWN.pack()
    }

    /// Called after a request to `targets` CPUs of a space that is active on `active`. Records how many of those were
    /// targets. Returns the cost of a request without a tag and with one, ns, if the space should be promoted, which
    /// takes at least `least` active CPUs. Two CPUs that record at once lose one sample: relaxed, as everywhere here.
    pub(crate) fn should_promote(
        &self,
        space: &Space<K::Facade, W>,
        me: CpuId,
        (active, least): (u32, u32),
        targets: usize,
    ) -> Option<(u64, u64)> {
        if active > 1 {
            let share = Share::unpack(space.target_share.load(Ordering::Relaxed));
            let share = share.after(targets as u64, u64::from(active - 1));
            space.target_share.store(share.pack(), Ordering::Relaxed);
        }
        let broadcast_cost = BroadcastCost::unpack(space.broadcast_cost.load(Ordering::Relaxed));
        space
            .broadcast_cost
            .store(broadcast_cost.decayed().pack(), Ordering::Relaxed);
        let (without, with) = self.without_and_with_tag(space, me);
        // After a demotion for cost, one sample is not enough.
        let times = if broadcast_cost.ns == 0 {
            1
        } else {
            self.policy().demote_after
        };
        let found = active >= least && exceeds_by_hysteresis(without, with.max(broadcast_cost.ns));
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
        let (without, now) = self.without_and_with_tag(space, me);
        let with = BroadcastCost::unpack(space.broadcast_cost.load(Ordering::Relaxed)).after(now);
        space.broadcast_cost.store(with.pack(), Ordering::Relaxed);
        exceeds_by_hysteresis(with.ns, without).then_some((without, with.ns))
    }

    /// Expected cost of a request of `space` from `me` without a system-wide tag, and with one, ns. Other CPUs are
    /// assumed to lag as far behind as `me`.
    fn without_and_with_tag(&self, space: &Space<K::Facade, W>, me: CpuId) -> (u64, u64) {
        let costs = self.weighed(self.costs.load());
        let share = Share::unpack(space.target_share.load(Ordering::Relaxed));
        let behind = CatchUpLag(self.cpus[me].own.lag.load(Ordering::Relaxed));
        // A CPU that receives a targeted broadcast stalls for it, which the requester's clock does not see. Assumed to
        // be half as long as for an interrupt, since no handler is entered. No figure is public.
        let disturbed = if self.kernel.broadcast_is_targeted() {
            costs.disturbed_ns.saturating_mul(share.others / Share::CPU) / 2
        } else {
            0
        };
        let with = costs.broadcast_ns.saturating_add(disturbed);
        (costs.without_tag_ns(share, behind), with)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptive::costs::tests::costs;
    use proptest::prelude::*;

    proptest! {
        /// A target costs what an interrupt costs. A CPU that catches up by itself costs hardly anything at a large
        /// lag.
        #[test]
        fn without_a_tag_the_cost_is_of_targets_and_of_catching_up(
            truth in costs(),
            others in 1_u64..500,
            asked in 0_u64..500,
        ) {
            let without = |share, behind| truth.without_tag_ns(share, behind);
            let (none, whole) = (Share::UNKNOWN.after(0, others), Share::UNKNOWN.after(others, others));
            prop_assert_eq!(without(whole, CatchUpLag::ONE), truth.disturbance_ns(others));
            prop_assert_eq!(without(whole, CatchUpLag::MAX), truth.disturbance_ns(others));
            prop_assert_eq!(without(none, CatchUpLag::ONE), others * (truth.interrupt_more_ns + truth.tag_ns));
            prop_assert!(without(none, CatchUpLag::MAX) <= without(none, CatchUpLag::ONE) / 64 + 1);
            let share = Share::UNKNOWN.after(asked, others);
            let most = truth.disturbance_ns(asked.min(others)) + without(none, CatchUpLag::MAX) + 1;
            prop_assert!(without(share, CatchUpLag::MAX) <= most);
            prop_assert!(without(share, CatchUpLag::MAX) <= without(share, CatchUpLag::ONE));
        }

        /// Shares and lags converge to the samples, and stay in bounds.
        #[test]
        fn shares_and_distances_follow(
            asked in 0_u64..70,
            others in 1_u64..70,
            missed in 1_u64..200,
            strays in proptest::collection::vec(0_u64..70, 0..20),
        ) {
            let sample = asked.min(others) * Share::WHOLE / others;
            let (mut share, mut behind) = (Share::UNKNOWN, CatchUpLag::MAX);
            strays.into_iter().for_each(|stray| share = share.after(stray, others));
            for _ in 0..200 {
                (share, behind) = (share.after(asked, others), behind.after(missed));
                prop_assert!(share.part <= Share::WHOLE && (CatchUpLag::ONE.0..=CatchUpLag::MAX.0).contains(&behind.0));
                prop_assert_eq!(Share::unpack(share.pack()), share);
            }
            prop_assert!(share.part.abs_diff(sample) <= 8, "{share:?} for {sample}");
            prop_assert!(share.others.abs_diff(others * Share::CPU) <= 8, "{share:?} for {others}");
            prop_assert!(behind.0.abs_diff(8 * missed.min(64)) <= 8, "{behind:?} for {missed}");
            (0..20_000).for_each(|_| share = share.decayed(2 * others));
            prop_assert_eq!(share.part, 0);
            prop_assert!(share.others.abs_diff(2 * others * Share::CPU) <= 8, "{share:?} for {others}, twice");
            prop_assert_eq!(Share::unpack(share.pack()), share);
        }

        /// The cost with a tag: the first samples have equal weight, no later one moves it by more than a 32nd, it
        /// decays to nothing, and is then learned anew.
        #[test]
        fn the_cost_with_a_tag_follows_its_samples(
            first in proptest::collection::vec(1_u64..1_000_000, 1..=32),
            steady in 1_u64..1_000_000,
        ) {
            let with = first.iter().fold(BroadcastCost::UNKNOWN, |with, &ns| with.after(ns));
            let mean = first.iter().sum::<u64>() / first.len() as u64;
            prop_assert!(with.ns.abs_diff(mean) <= first.len() as u64, "{with:?} for {mean}");
            prop_assert_eq!(BroadcastCost::unpack(with.pack()), with);
            let known = (0..32).fold(with, |with, _| with.after(with.ns));
            let change = known.after(steady).ns.abs_diff(known.ns);
            prop_assert_eq!(change, steady.abs_diff(known.ns).div_ceil(32));
            let gone = (0..100_000).fold(known, |with, _| with.decayed());
            prop_assert_eq!((gone.ns, gone.after(steady)), (0, BroadcastCost::UNKNOWN.after(steady)));
        }

        /// The first samples have equal weight.
        #[test]
        fn of_few_samples_a_share_is_the_mean(asked in proptest::collection::vec(0_u64..=64, 1..=8)) {
            let share = asked.iter().fold(Share::UNKNOWN, |share, &asked| share.after(asked, 64));
            prop_assert_eq!(share.others, 64 * Share::CPU);
            let mean = asked.iter().sum::<u64>() * (Share::WHOLE / 64) / asked.len() as u64;
            prop_assert!(share.part.abs_diff(mean) <= 8, "{share:?} for {mean}");
        }
    }
}
