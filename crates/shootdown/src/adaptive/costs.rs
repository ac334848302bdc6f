//! What each way of reaching other CPUs costs on this machine, as measured by the engine.
//!
//! Owns a few read-mostly words and the arithmetic on them: at how many CPUs a broadcast becomes the cheaper way.
//! `adaptive/choice.rs` decides by it and keeps it up to date. Correctness does not depend on it: every reach is
//! correct, and one is cheaper.
//!
//! 1. `adaptive/calibration.rs` measures each way several times at start and keeps one of the shortest samples.
//! 2. At run time one request in [`sample_one_in`](crate::Policy::sample_one_in) is timed, and moves the estimate by an
//!    eighth of the difference. The cost of interrupts is two numbers: that of the first target and that of each
//!    further one. Requests to few and to many targets together determine both.
//! 3. The threshold follows the estimates with hysteresis. It moves only when the other way is better by a quarter, for
//!    [`CONFIRM_STREAK`] timed requests in a row. It is on a cache line that every request reads.
//! 4. One timed request in [`EXPLORE_ONE_IN`] of a space on per-CPU tags goes the other way, so that an estimate can
//!    recover.

use crate::cache_padded::CachePadded;
use crate::facade::{Facade, Word};
use core::sync::atomic::Ordering;

/// One timed request in this many is sent the way that is expected to cost more. If that way costs more than eight
/// times as much, exploration becomes rarer in proportion, so that its total cost stays the same.
pub const EXPLORE_ONE_IN: u64 = 16;

/// Square of the weight of the first target's share of an error, relative to each further target's share: with four
/// further targets the first takes half of the error. A judgement, not fitted.
const FIRST_TARGET_WEIGHT: u64 = 16;

/// Timed requests in a row that must find the threshold wrong before it moves: twice the number of samples over which
/// an estimate averages. Assumed; 4 to 32 are plausible. Under contention a single broadcast takes from half to three
/// times the mean.
pub const CONFIRM_STREAK: u64 = 16;

/// Estimates, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// From the decision to interrupt one CPU until its answer arrives.
    pub interrupt_ns: u64,
    /// What each further target adds for the requester.
    pub interrupt_more_ns: u64,
    /// What an interrupt costs its target for entering and leaving the handler. The requester's clock does not see it,
    /// so it is taken to be half of the shortest round trip, measured at start.
    pub disturbed_ns: u64,
    /// One broadcast with its synchronisation.
    pub broadcast_ns: u64,
    /// Invalidating one page on this CPU.
    pub page_ns: u64,
    /// Invalidating a whole tag on this CPU, without the refill.
    pub tag_ns: u64,
    /// A request to this many other CPUs or more is broadcast instead of sent by interrupts; `u64::MAX` for never.
    pub broadcast_from: u64,
}

impl Costs {
    /// Used where the clock cannot resolve the costs. They are the middle of the published ranges: an interrupt to one
    /// CPU 0.5 to 1 us, 70 to 100 ns for each further one; 1.37 million broadcasts per second are sustained, so at most
    /// 730 ns each; INVLPG 100 to 260 cycles, INVPCID 150 to 400. An interrupt then costs more than a broadcast, so one
    /// other CPU is enough to broadcast.
    pub const PRIORS: Costs = Costs {
        interrupt_ns: 1000,
        interrupt_more_ns: 85,
        disturbed_ns: 500,
        broadcast_ns: 730,
        page_ns: 60,
        tag_ns: 90,
        broadcast_from: 1,
    };

    /// Time that the requester is expected to spend on interrupting `targets` CPUs, ns.
    pub fn interrupts_ns(&self, targets: u64) -> u64 {
        match targets {
            0 => 0,
            more => self
                .interrupt_ns
                .saturating_add(self.interrupt_more_ns.saturating_mul(more - 1)),
        }
    }

    /// Expected cost to the machine of interrupting `targets` CPUs, ns: the requester's time, and that of each target.
    pub fn disturbance_ns(&self, targets: u64) -> u64 {
        self.interrupts_ns(targets)
            .saturating_add(self.disturbed_ns.saturating_mul(targets))
    }

    /// The number of targets at which a broadcast becomes cheaper. `now` is the present threshold, and the machine has
    /// `cpus` CPUs. It does not move while neither way is better by more than a quarter at the border.
    pub fn threshold(&self, now: u64, cpus: u64) -> u64 {
        self.threshold_and_border(now, cpus).0
    }

    /// As [`threshold`](Self::threshold). Also returns the number of targets whose costs decided.
    pub(super) fn threshold_and_border(&self, now: u64, cpus: u64) -> (u64, u64) {
        let cheaper = |targets: u64| self.disturbance_ns(targets) >= self.broadcast_ns;
        let ideal = (1..cpus).find(|&targets| cheaper(targets)).unwrap_or(Self::NEVER);
        let margin = |a: u64, b: u64| a > b.saturating_add(b / 4);
        let (border, moves) = if ideal < now {
            // Down: the largest number of targets that is still interrupted would cost less by broadcast.
            let last = now.saturating_sub(1).min(cpus.saturating_sub(1));
            (last, margin(self.disturbance_ns(last), self.broadcast_ns))
        } else {
            // Up: the smallest number of targets that is broadcast would cost less by interrupts.
            (now, margin(self.broadcast_ns, self.disturbance_ns(now)))
        };
        (if moves { ideal } else { now }, border)
    }

    /// The same where a broadcast interrupts every other of `cpus` online CPUs: adds what an interrupt takes from each.
    pub(super) fn broadcast_disturbing(self, cpus: u64) -> Costs {
        let disturbance = self.disturbed_ns.saturating_mul(cpus.saturating_sub(1));
        Costs {
            broadcast_ns: self.broadcast_ns.saturating_add(disturbance),
            ..self
        }
    }

    pub(crate) const NEVER: u64 = u64::MAX;
}

/// The requester's cost of interrupts, in 256ths of a nanosecond, so that small corrections add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interrupts {
    /// The first target.
    pub(super) first: u64,
    /// Each further one.
    pub(super) more: u64,
}

impl Interrupts {
    /// One nanosecond.
    pub(super) const NS: u64 = 256;

    pub(crate) fn of(costs: &Costs) -> Self {
        Interrupts {
            first: costs.interrupt_ns.saturating_mul(Self::NS),
            more: costs.interrupt_more_ns.saturating_mul(Self::NS),
        }
    }

    /// After a request that interrupted `targets` CPUs, at least one, and took `took` ns: moves by an eighth of the
    /// difference. One sample cannot separate the first target from the further ones, so both take a share of the
    /// error. The share of the further ones grows with their number. Requests to few and to many targets together
    /// separate the two.
    pub(super) fn after(self, targets: u64, took: u64) -> Self {
        let further = targets.saturating_sub(1);
        let expected = self.first.saturating_add(self.more.saturating_mul(further));
        let corrected = ewma(expected, took.saturating_mul(Self::NS));
        let whole = FIRST_TARGET_WEIGHT.saturating_add(further.saturating_mul(further));
        let by = |old: u64, weight: u64| {
            let error = corrected.abs_diff(expected);
            // `error * weight / whole` without its overflow, in 64 bits: kernels have no 128-bit division.
            let step = error / whole * weight + (error % whole).saturating_mul(weight) / whole;
            match corrected > expected {
                true => old.saturating_add(step),
                false => old.saturating_sub(step),
            }
        };
        Interrupts {
            first: by(self.first, FIRST_TARGET_WEIGHT).max(Self::NS),
            more: by(self.more, further),
        }
    }
}

/// The words behind [`Costs`], in the same order. The estimates are read and written by timed requests; the first two
/// are as in [`Interrupts`]. The threshold has a cache line of its own: every request reads it, and it is written only
/// when it moves.
pub(crate) struct CostWords<F: Facade> {
    estimates: CachePadded<Estimates<F>>,
    broadcast_from: CachePadded<F::U64>,
}

struct Estimates<F: Facade> {
    words: [F::U64; 6],
    /// 1 if the clock was too coarse when it was tried.
    clock_too_coarse: F::U64,
    /// Timed requests in a row that found the threshold wrong.
    streak: F::U64,
}

impl<F: Facade> CostWords<F> {
    pub(crate) fn new() -> Self {
        let words = CostWords {
            estimates: CachePadded(Estimates {
                words: [0; 6].map(F::U64::new),
                clock_too_coarse: F::U64::new(0),
                streak: F::U64::new(0),
            }),
            broadcast_from: CachePadded(F::U64::new(0)),
        };
        words.store(&Costs::PRIORS, Interrupts::of(&Costs::PRIORS));
        words
    }

    #[inline]
    pub(crate) fn load(&self) -> Costs {
        let [
            interrupt_ns,
            interrupt_more_ns,
            disturbed_ns,
            broadcast_ns,
            page_ns,
            tag_ns,
        ] = core::array::from_fn(|index| self.estimates.0.words[index].load(Ordering::Relaxed));
        Costs {
            interrupt_ns: interrupt_ns / Interrupts::NS,
            interrupt_more_ns: interrupt_more_ns / Interrupts::NS,
            disturbed_ns,
            broadcast_ns,
            page_ns,
            tag_ns,
            broadcast_from: self.broadcast_from(),
        }
    }

    pub(super) fn interrupts(&self) -> Interrupts {
        let [first, more, ..] = &self.estimates.0.words;
        Interrupts {
            first: first.load(Ordering::Relaxed),
            more: more.load(Ordering::Relaxed),
        }
    }

    /// Whether the clock was too coarse when it was tried. With a coarse clock most requests take no time and a few
    /// take a whole step, so samples mean nothing.
    pub(super) fn clock_too_coarse(&self) -> bool {
        self.estimates.0.clock_too_coarse.load(Ordering::Relaxed) != 0
    }

    /// Records whether the clock resolves anything.
    pub(crate) fn record_clock(&self, resolves: bool) {
        self.estimates
            .0
            .clock_too_coarse
            .store(u64::from(!resolves), Ordering::Relaxed);
    }

    /// Only the threshold: all that the common path reads.
    #[inline]
    pub(crate) fn broadcast_from(&self) -> u64 {
        self.broadcast_from.0.load(Ordering::Relaxed)
    }

    /// The threshold after a timed request whose costs give `proposed`. It moves after [`CONFIRM_STREAK`] requests in a
    /// row that disagree with it.
    pub(super) fn confirm(&self, proposed: u64) -> u64 {
        let (now, streak) = (self.broadcast_from(), &self.estimates.0.streak);
        let before = streak.load(Ordering::Relaxed);
        let (count, threshold) = match before + 1 {
            _ if proposed == now => (0, now),
            CONFIRM_STREAK.. => (0, proposed),
            count => (count, now),
        };
        if count != before {
            streak.store(count, Ordering::Relaxed);
        }
        threshold
    }

    /// Writes what has changed. Takes the cost of interrupts from `interrupts`, not from `costs`.
    pub(crate) fn store(&self, costs: &Costs, interrupts: Interrupts) {
        let values = [
            interrupts.first,
            interrupts.more,
            costs.disturbed_ns,
            costs.broadcast_ns,
            costs.page_ns,
            costs.tag_ns,
        ];
        for (word, value) in self.estimates.0.words.iter().zip(values) {
            if word.load(Ordering::Relaxed) != value {
                word.store(value, Ordering::Relaxed);
            }
        }
        if self.broadcast_from() != costs.broadcast_from {
            self.broadcast_from.0.store(costs.broadcast_from, Ordering::Relaxed);
        }
    }
}

/// [`ewma_step`], with the sample clamped to a factor of 8, so that one preempted request does not overturn the
/// estimate.
pub(super) fn ewma(old: u64, sample: u64) -> u64 {
    ewma_step(old, sample.clamp(old / 8, old.saturating_mul(8)).max(1), 8)
}

/// `old`, moved by one `part`th of the difference to `sample`.
pub(super) fn ewma_step(old: u64, sample: u64, part: u64) -> u64 {
    let step = sample.abs_diff(old).div_ceil(part);
    if sample > old {
        old.saturating_add(step)
    } else {
        old - step
    }
}

#[cfg(test)]
pub(crate) mod tests;
