//! Sampling: learns costs from flushes of `flush/mod.rs`, which know only the number of their sample.
//!
//! Owns the clock reads of a timed request and the order of what follows: first costs are corrected, then the space is
//! considered for promotion or demotion. Correctness does not depend on it.

use crate::engine::Engine;
use crate::facade::{Facade, Word};
use crate::flush::token::Token;
use crate::hooks::{CpuId, Kernel, Way};
use crate::space::Space;
use core::sync::atomic::Ordering;

/// A request whose cost is measured.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) number: u64,
    /// When its time began, ns.
    pub(crate) begun: u64,
}

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Counts a request of `me`. If it is a sample, its time begins. Pinned.
    #[inline]
    pub(crate) fn begin_sample(&self, token: &Token<'_, 'k, K, W>, me: CpuId) -> Option<Sample> {
        let number = self.sample(match token.generation.get() {
            0 => self.count_under_tag(me),
            generation => generation,
        })?;
        let begun = self.kernel.now_ns();
        Some(Sample { number, begun })
    }

    /// After interrupts to so many targets, perhaps none.
    #[inline]
    pub(crate) fn sampled_interrupts(
        &self,
        token: &Token<'_, 'k, K, W>,
        space: &Space<K::Facade, W>,
        me: CpuId,
        sample: Option<Sample>,
        targets: usize,
    ) {
        if let Some(sample) = sample {
            // Learned from when all have answered.
            token.was_sent_in(self.since(sample.begun));
        }
        self.consider(space, me, sample.is_some(), targets);
    }

    /// After a broadcast under every tag; so many CPUs would have been interrupted.
    #[inline]
    pub(crate) fn sampled_any_tag(
        &self,
        space: &Space<K::Facade, W>,
        me: CpuId,
        sample: Option<Sample>,
        targets: usize,
    ) {
        if let Some(sample) = sample {
            self.learn(Way::Broadcast, 0, self.since(sample.begun));
        }
        self.consider_after_any_tag(space, me, sample.is_some(), targets);
    }

    /// Whether the next request of `me` that takes no generation is a sample. Counts it if it is none: a sample is
    /// counted in [`begin_sample`](Self::begin_sample). Pinned.
    #[inline]
    pub(crate) fn is_sample_under_tag(&self, me: CpuId) -> bool {
        if !self.policy().reach.is_adaptive() {
            return false;
        }
        let (count, next) = self.next_under_tag(me);
        let is_sample = self.sample(next).is_some();
        if !is_sample {
            count.store(next, Ordering::Relaxed);
        }
        is_sample
    }

    /// Counts a request of `me` that takes no generation, where requests are sampled. Returns its number. Pinned.
    fn count_under_tag(&self, me: CpuId) -> u64 {
        if !self.policy().reach.is_adaptive() {
            return 0;
        }
        let (count, next) = self.next_under_tag(me);
        count.store(next, Ordering::Relaxed);
        next
    }

    /// The count of requests of `me` that took no generation, and the number of the next one.
    #[inline]
    fn next_under_tag(&self, me: CpuId) -> (&<K::Facade as Facade>::U64, u64) {
        let count = &self.cpus[me].running.flushes;
        (count, count.load(Ordering::Relaxed) + 1)
    }

}
