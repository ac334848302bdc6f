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

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Counts a request of `me`. If it is a sample, returns its number, and its time begins, in the token. Pinned.
    #[inline]
    pub(crate) fn begin_sample(&self, token: &Token<'_, 'k, K, W>, me: CpuId) -> Option<u64> {
        let number = self.sample(match token.generation.get() {
            0 => self.count_under_tag(me),
            generation => generation,
        })?;
        token.timed.set(true);
        token.timer.begin(self.kernel.now_ns());
        Some(number)
    }

    /// Whether anything is to be done after interrupts.
    #[inline]
    pub(crate) fn follows_interrupts(&self) -> bool {
        self.policy().reach.is_adaptive() || self.tags().promote_at().is_some()
    }

    /// After interrupts to the targets of the token, perhaps none. The cost is learned from when all have answered.
    // Not inlined: a tail call.
    #[inline(never)]
    pub(crate) fn sampled_interrupts(&self, token: &Token<'_, 'k, K, W>, space: &Space<K::Facade, W>) {
        let timed = self.is_timed(token);
        if timed {
            token.timer.pause(self.kernel.now_ns());
        }
        // A CPU that it has migrated to has windows of its own.
        self.consider(space, self.kernel.cpu(), timed, token.targets().len());
    }

    /// After a broadcast under every tag; so many CPUs would have been interrupted.
    #[inline]
    pub(crate) fn sampled_any_tag(&self, token: &Token<'_, 'k, K, W>, space: &Space<K::Facade, W>, targets: usize) {
        let timed = self.is_timed(token);
        if timed {
            self.learn_broadcast(token);
        }
        self.consider_after_any_tag(space, self.kernel.cpu(), timed, targets);
    }

    /// A timed broadcast is over.
    pub(crate) fn learn_broadcast(&self, token: &Token<'_, 'k, K, W>) {
        self.learn(Way::Broadcast, 0, token.timer.end(self.kernel.now_ns()));
    }

    /// Whether the request of the token is a sample.
    #[inline]
    pub(crate) fn is_timed(&self, token: &Token<'_, 'k, K, W>) -> bool {
        self.policy().reach.is_adaptive() && token.timed.get()
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

    /// Whether one of the next `requests` of `space` is a sample. After a batch no tag is considered, so a space whose
    /// gathers are all batches would never get one. Another CPU's request may come first: then that one is the sample.
    pub(crate) fn is_sample_due(&self, space: &Space<K::Facade, W>, requests: usize) -> bool {
        if self.is_uncounted(space) {
            let pin = self.pinned();
            return self.is_sample_under_tag(pin.cpu);
        }
        let next = space.log.generation.load(Ordering::Relaxed) + 1;
        self.policy().reach.is_adaptive()
            && (next..next + requests as u64).any(|generation| self.sample(generation).is_some())
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
