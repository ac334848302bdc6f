//! What flushes keep: in the engine how the common flush goes, in each CPU what it has flushed for deferrals, in each
//! token small numbers.
//!
//! `straight.rs` and `deferred.rs` say how they are used.

use crate::cache_padded::CachePadded;
use crate::design::{Departure, Policy, Requests, Tags};
use crate::facade::{Facade, Word};
use core::cell::Cell;

/// How the common flush of a space on slots reaches the other CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Straight {
    /// The policy has more to look at: every flush of a space on slots takes the general path.
    Never,
    /// Tags roll over: no space that runs is on slots (`under_tag.rs`).
    RollOver,
    /// A negative control: other CPUs are left out.
    Control,
    /// By a post.
    Post,
    /// By a descriptor on the stack.
    Descriptor,
}

impl Straight {
    /// `Never` if all online CPUs are targets, if spaces are considered for promotion after every flush, or if
    /// descriptors tell departed CPUs to leave.
    pub(crate) const fn of(policy: &Policy) -> Straight {
        if policy.reach.is_control() {
            return Straight::Control;
        }
        if matches!(policy.tags, Tags::System) {
            return Straight::RollOver;
        }
        let considers = policy.tags.promote_at().is_some() && !policy.reach.is_adaptive();
        if policy.targets.is_all() || considers {
            return Straight::Never;
        }
        match (policy.requests, policy.departure) {
            (Requests::Log, _) => Straight::Post,
            (Requests::PerRequest, Departure::AtSwitch) => Straight::Descriptor,
            _ => Straight::Never,
        }
    }
}

/// A number, or none, in the space of a number: one more than it, or 0. A token is deep in the stack.
#[derive(Clone, Copy)]
pub(crate) struct Maybe(u32);

impl Maybe {
    pub(crate) const NONE: Maybe = Maybe(0);

    /// That number, or the largest that there is room for.
    pub(crate) fn some(number: u64) -> Maybe {
        Maybe(number.min(u64::from(u32::MAX - 1)) as u32 + 1)
    }

    pub(crate) fn get(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}

/// A time of less than four seconds that can be interrupted. While it runs: when it began, in ns modulo 2^32; while it
/// is interrupted: how long it has run.
#[derive(Default)]
pub(crate) struct Timer(Cell<u32>);

impl Timer {
    pub(crate) fn begin(&self, now: u64) {
        self.0.set(now as u32);
    }

    /// From running to interrupted.
    pub(crate) fn pause(&self, now: u64) {
        self.0.set((now as u32).wrapping_sub(self.0.get()));
    }

    /// From interrupted to running.
    pub(crate) fn resume(&self, now: u64) {
        self.pause(now);
    }

    /// How long it has run, ns.
    pub(crate) fn end(&self, now: u64) -> u64 {
        u64::from((now as u32).wrapping_sub(self.0.get()))
    }
}

/// Deferral state of a CPU. Written at ticks and by unmaps; read by CPUs that check which deferrals are over.
pub(crate) struct Deferring<F: Facade> {
    /// Epoch for which this CPU has flushed; [`NO_TICKS`] while it has no ticks.
    pub(super) flushed: F::U64,
    /// Frames in quarantine from unmaps on this CPU.
    pub(super) held: F::U64,
}

/// In place of an epoch: no deferral waits for this CPU.
pub(super) const NO_TICKS: u64 = u64::MAX;

impl<F: Facade> Deferring<F> {
    pub(crate) fn new() -> CachePadded<Self> {
        CachePadded(Deferring {
            flushed: F::U64::new(0),
            held: F::U64::new(0),
        })
    }
}
