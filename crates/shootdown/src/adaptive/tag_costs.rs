//! What is recorded of a space, and of a CPU, to compare the cost of requests without a system-wide tag and with one.
//!
//! Owns [`Share`], [`BroadcastCost`] and [`CatchUpLag`], and the arithmetic on them. Each is packed into a word of a
//! space or a CPU, which `adaptive/tag_policy.rs` reads and writes.

use crate::adaptive::costs::{Costs, ewma_step};

/// Each timed request with a tag decays the estimate without a tag by one in this many. A space that costs twice as
/// much without a tag as with one is then tried without after about 800 samples, which is 50,000 requests. A trial
/// lasts eight samples ([`demote_after`](crate::Policy::demote_after)) or a few more: a hundredth of the requests.
/// A space that has grown is tried sooner: `shootdown explain tlb_flush2 --threads 16` shows it.
const SHARE_DECAY: u64 = 1024;

/// The same for the cost of a broadcast, at each timed request without a tag. Slower, because a trial with a tag costs
/// more: two changes of tag, in which every CPU takes part.
const COST_DECAY: u64 = 4096;

/// Cap of the catch-up lag, in requests. At this lag the cost of catching up per request is below the resolution of a
/// clock.
const MAX_LAG: u64 = 64;

/// Length of the mean of request costs with a tag: at most, each sample moves it by one part in this many.
const COST_SAMPLES: u64 = 32;

/// On how many CPUs other than the requester's a space is active, and which share of them its requests have to
/// interrupt. The first samples have equal weight; later ones move it by an eighth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// In 65,536ths.
    part: u64,
    /// CPUs, in 256ths.
    pub(super) others: u64,
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
    pub(super) const CPU: u64 = 1 << 8;

    /// After another sample: `targets` of `others` CPUs were targets.
    pub(super) fn after(self, targets: u64, others: u64) -> Share {
        let sample = (targets * Self::WHOLE / others.max(1)).min(Self::WHOLE);
        let samples = (self.samples + 1).min(8);
        Share {
            part: ewma_step(self.part, sample, samples),
            others: ewma_step(self.others, others * Self::CPU, samples),
            samples,
        }
    }

    /// Whether it is more than one sample. The first sample of a space is the first request that is broadcast under
    /// every tag, so one that had targets: alone it says nothing about the requests that had none.
    pub(super) fn is_mean(self) -> bool {
        self.samples > 1
    }

    /// After a timed request that only shows on how many `others` the space is active. As that number grows, the number
    /// of targets stays: a share that was learned on few CPUs says nothing of many. A trial without the tag will tell.
    pub(super) fn decayed(self, others: u64) -> Share {
        let mean = ewma_step(self.others, others * Self::CPU, 8);
        let part = self.part * self.others.min(mean) / mean.max(1);
        Share {
            part: decayed(part, SHARE_DECAY),
            others: mean,
            ..self
        }
    }

    /// How many CPUs are targets and how many are not, in 65,536ths.
    fn targets_and_rest(self) -> (u64, u64) {
        let targets = self.others * self.part / Self::CPU;
        (targets, self.others * Self::WHOLE / Self::CPU - targets)
    }

    pub(super) const fn pack(self) -> u64 {
        self.part | self.others << 24 | self.samples << 56
    }

    pub(super) fn unpack(word: u64) -> Share {
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
    pub(super) fn after(self, missed: u64) -> CatchUpLag {
        CatchUpLag(ewma_step(self.0, missed.min(MAX_LAG) * 8, 8))
    }
}

/// Cost of a space's requests with a system-wide tag. The first samples have equal weight; later ones move it by a
/// 32nd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BroadcastCost {
    /// 0 if nothing is known, or the estimate has decayed to nothing.
    pub(super) ns: u64,
    /// Samples in the mean, at most [`COST_SAMPLES`].
    samples: u64,
}

impl BroadcastCost {
    /// Nothing is known. Packed, it is 0.
    pub(super) const UNKNOWN: BroadcastCost = BroadcastCost { ns: 0, samples: 0 };

    pub(super) fn after(self, ns: u64) -> BroadcastCost {
        let before = if self.ns == 0 { BroadcastCost::UNKNOWN } else { self };
        let samples = (before.samples + 1).min(COST_SAMPLES);
        BroadcastCost {
            ns: ewma_step(before.ns, ns, samples),
            samples,
        }
    }

    pub(super) fn decayed(self) -> BroadcastCost {
        BroadcastCost {
            ns: decayed(self.ns, COST_DECAY),
            ..self
        }
    }

    pub(super) const fn pack(self) -> u64 {
        self.ns | self.samples << 56
    }

    pub(super) fn unpack(word: u64) -> BroadcastCost {
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
pub(super) fn exceeds_by_hysteresis(one: u64, other: u64) -> bool {
    one > other.saturating_add(other / 8)
}

impl Costs {
    /// Expected cost to the machine of a request of a space on per-CPU tags, ns, if `share` of its CPUs are targets.
    /// The others catch up by themselves, each when it is `behind` by that many requests. That costs two cache-line
    /// transfers, each taken as costly as one further target, and the invalidation of a tag.
    pub(super) fn without_tag_ns(&self, share: Share, lag: CatchUpLag) -> u64 {
        let (targets, not) = share.targets_and_rest();
        let sending = match targets.checked_sub(Share::WHOLE) {
            None => self.interrupt_ns.saturating_mul(targets),
            Some(further) => self
                .interrupt_ns
                .saturating_mul(Share::WHOLE)
                .saturating_add(self.interrupt_more_ns.saturating_mul(further)),
        };
        let disturbed = self.disturbed_ns.saturating_mul(targets);
        let catch_up = self.interrupt_more_ns.saturating_add(self.tag_ns);
        let catching_up = catch_up.saturating_mul(not) / lag.0.max(CatchUpLag::ONE.0) * CatchUpLag::ONE.0;
        sending.saturating_add(disturbed).saturating_add(catching_up) / Share::WHOLE
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
        fn cost_without_a_tag_is_interrupts_and_catch_up(
            truth in costs(),
            others in 1_u64..500,
            targets in 0_u64..500,
        ) {
            let without = |share, lag| truth.without_tag_ns(share, lag);
            let (none, whole) = (Share::UNKNOWN.after(0, others), Share::UNKNOWN.after(others, others));
            prop_assert_eq!(without(whole, CatchUpLag::ONE), truth.disturbance_ns(others));
            prop_assert_eq!(without(whole, CatchUpLag::MAX), truth.disturbance_ns(others));
            prop_assert_eq!(without(none, CatchUpLag::ONE), others * (truth.interrupt_more_ns + truth.tag_ns));
            prop_assert!(without(none, CatchUpLag::MAX) <= without(none, CatchUpLag::ONE) / 64 + 1);
            let share = Share::UNKNOWN.after(targets, others);
            let most = truth.disturbance_ns(targets.min(others)) + without(none, CatchUpLag::MAX) + 1;
            prop_assert!(without(share, CatchUpLag::MAX) <= most);
            prop_assert!(without(share, CatchUpLag::MAX) <= without(share, CatchUpLag::ONE));
        }

        /// Shares and lags converge to the samples, and stay in bounds.
        #[test]
        fn shares_and_lags_converge(
            targets in 0_u64..70,
            others in 1_u64..70,
            missed in 1_u64..200,
            strays in proptest::collection::vec(0_u64..70, 0..20),
        ) {
            let sample = targets.min(others) * Share::WHOLE / others;
            let (mut share, mut lag) = (Share::UNKNOWN, CatchUpLag::MAX);
            strays.into_iter().for_each(|stray| share = share.after(stray, others));
            for _ in 0..200 {
                (share, lag) = (share.after(targets, others), lag.after(missed));
                prop_assert!(share.part <= Share::WHOLE && (CatchUpLag::ONE.0..=CatchUpLag::MAX.0).contains(&lag.0));
                prop_assert_eq!(Share::unpack(share.pack()), share);
            }
            prop_assert!(share.part.abs_diff(sample) <= 8, "{share:?} for {sample}");
            prop_assert!(share.others.abs_diff(others * Share::CPU) <= 8, "{share:?} for {others}");
            prop_assert!(lag.0.abs_diff(8 * missed.min(64)) <= 8, "{lag:?} for {missed}");
            (0..20_000).for_each(|_| share = share.decayed(2 * others));
            prop_assert_eq!(share.part, 0);
            prop_assert!(share.others.abs_diff(2 * others * Share::CPU) <= 8, "{share:?} for {others}, twice");
            prop_assert_eq!(Share::unpack(share.pack()), share);
        }

        /// Without samples of targets their number stays as a space grows, and their share as it shrinks.
        #[test]
        fn growing_space_keeps_its_number_of_targets(targets in 16_u64..64, times in 2_u64..8) {
            let learned = Share::UNKNOWN.after(targets, 64);
            let after = |others| (0..64).fold(learned, |share, _| share.decayed(others));
            // 64 samples decay 6 % of it, and by rounding a little more.
            let (grown, _) = after(64 * times).targets_and_rest();
            let expected = targets * Share::WHOLE;
            prop_assert!((expected * 80 / 100..=expected).contains(&grown), "{grown} for {expected}");
            let shrunken = after(64 / times);
            prop_assert!((learned.part * 90 / 100..=learned.part).contains(&shrunken.part), "{shrunken:?} {learned:?}");
        }

        /// The cost with a tag: the first samples have equal weight, no later one moves it by more than a 32nd, it
        /// decays to nothing, and is then learned anew.
        #[test]
        fn cost_with_a_tag_converges_to_its_samples(
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
        fn share_of_few_samples_is_their_mean(targets in proptest::collection::vec(0_u64..=64, 1..=8)) {
            let share = targets.iter().fold(Share::UNKNOWN, |share, &targets| share.after(targets, 64));
            prop_assert_eq!(share.others, 64 * Share::CPU);
            let mean = targets.iter().sum::<u64>() * (Share::WHOLE / 64) / targets.len() as u64;
            prop_assert!(share.part.abs_diff(mean) <= 8, "{share:?} for {mean}");
        }
    }
}
