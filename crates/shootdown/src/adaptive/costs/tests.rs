//! Estimates and the threshold, for arbitrary costs.

use super::*;
use crate::facade::Native;
use proptest::prelude::*;

pub(crate) fn costs() -> impl Strategy<Value = Costs> {
    (100_u64..20_000, 1_u64..2_000, 50_u64..50_000).prop_map(|(interrupt_ns, interrupt_more_ns, broadcast_ns)| Costs {
        interrupt_ns,
        interrupt_more_ns,
        disturbed_ns: interrupt_ns / 2,
        broadcast_ns,
        ..Costs::PRIORS
    })
}

proptest! {
    /// Estimates that stray by a twentieth either way move the threshold once, to its right place, and never again.
    #[test]
    fn noisy_estimates_move_the_threshold_at_most_once(
        truth in costs(),
        start in prop_oneof![1_u64..80, Just(Costs::NEVER)],
        noise in proptest::collection::vec((950_u64..=1050, 950_u64..=1050), 1..200),
    ) {
        let (mut now, mut changes) = (start, 0);
        for (interrupts, broadcast) in noise {
            let believed = Costs {
                interrupt_ns: truth.interrupt_ns * interrupts / 1000,
                interrupt_more_ns: truth.interrupt_more_ns * interrupts / 1000,
                broadcast_ns: truth.broadcast_ns * broadcast / 1000,
                ..truth
            };
            let next = believed.threshold(now, 72);
            changes += u32::from(next != now);
            now = next;
        }
        prop_assert!(changes <= 1, "{changes} changes, now {now}");
    }

    /// Estimates may stray arbitrarily from sample to sample. The threshold moves after [`CONFIRM_STREAK`] samples in a
    /// row that disagree with it, and not before.
    #[test]
    fn threshold_moves_after_a_streak_of_agreeing_samples(wrong in proptest::collection::vec(any::<bool>(), 1..100)) {
        let words = CostWords::<Native>::new();
        let (now, other, mut row) = (words.broadcast_from(), 5, 0);
        for wrong in wrong {
            row = if wrong { row + 1 } else { 0 };
            let found = words.confirm(if wrong { other } else { now });
            prop_assert_eq!(found, if row == CONFIRM_STREAK { other } else { now });
            row %= CONFIRM_STREAK;
        }
    }

    /// Where one way is better by more than the margin, the threshold does not stay on the wrong side.
    #[test]
    fn threshold_follows_a_difference_beyond_the_margin(truth in costs(), start in 1_u64..72) {
        let now = truth.threshold(start, 72);
        if now < 72 {
            prop_assert!(truth.broadcast_ns <= truth.disturbance_ns(now) * 5 / 4 + 1);
        }
        if now > 1 {
            let last = (now - 1).min(71);
            prop_assert!(truth.disturbance_ns(last) <= truth.broadcast_ns * 5 / 4 + 1);
        }
    }

    /// A broadcast by interrupts costs more as the number of CPUs grows. It is never chosen at fewer targets than a
    /// broadcast that disturbs no CPU. On a single CPU it disturbs none.
    #[test]
    fn broadcast_by_interrupt_costs_every_cpu(truth in costs(), cpus in 1_u64..500) {
        let (one, all) = (truth.broadcast_disturbing(1), truth.broadcast_disturbing(cpus));
        prop_assert_eq!(one, truth);
        prop_assert_eq!(all.broadcast_ns, truth.broadcast_ns + (cpus - 1) * truth.disturbed_ns);
        prop_assert_eq!(all.disturbance_ns(cpus), truth.disturbance_ns(cpus));
        prop_assert!(all.threshold(Costs::NEVER - 1, 72) >= truth.threshold(Costs::NEVER - 1, 72));
    }

    /// A single sample of any size moves an estimate by less than its own size. Consistent samples bring it back.
    #[test]
    fn estimates_converge_and_ignore_outliers(
        old in 8_u64..1_000_000,
        sample in 0_u64..u64::MAX,
        steady in 8_u64..1_000_000,
    ) {
        let next = ewma(old, sample);
        prop_assert!(next >= 1 && next < 2 * old);
        let mut estimate = old;
        for _ in 0..400 {
            estimate = ewma(estimate, steady);
        }
        prop_assert!(estimate.abs_diff(steady) <= 8, "{estimate} for {steady}");
    }

    /// Requests to few and to many targets determine the cost of the first target and of each further one, from any
    /// start.
    #[test]
    fn costs_of_first_and_further_targets_are_separated(
        truth in costs(),
        believed in costs(),
        few in 1_u64..4,
        many in 8_u64..40,
    ) {
        let mut now = Interrupts::of(&believed);
        for targets in [few, many].repeat(3000) {
            now = now.after(targets, truth.interrupts_ns(targets));
        }
        let (first, more) = (now.first / Interrupts::NS, now.more / Interrupts::NS);
        prop_assert!(first.abs_diff(truth.interrupt_ns) <= 8, "{first} for {truth:?}");
        prop_assert!(more.abs_diff(truth.interrupt_more_ns) <= 8, "{more} for {truth:?}");
    }

    /// No estimate decays while samples agree with it. A sample with one target says nothing about further ones.
    #[test]
    fn correct_estimates_do_not_decay(truth in costs(), targets in 1_u64..500, took in 100_u64..50_000) {
        let now = Interrupts::of(&truth);
        prop_assert_eq!(now.after(targets, truth.interrupts_ns(targets)), now);
        let after = now.after(1, took);
        prop_assert_eq!(after.more, now.more);
        prop_assert_eq!(after.first.cmp(&now.first), took.cmp(&truth.interrupt_ns));
    }
}
