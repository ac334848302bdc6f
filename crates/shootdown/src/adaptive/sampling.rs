//! Sampling: learns costs from flushes. Wraps `dispatch_into` of `flush/mod.rs`; the flush itself knows only the number
//! of its sample.
//!
//! Owns the clock reads of a timed request and the order of what follows: first costs are corrected, then the space is
//! considered for promotion or demotion. Correctness does not depend on it.

use crate::engine::{Engine, Pinned};
use crate::facade::{Facade, Word};
use crate::flush::token::Token;
use crate::flush::{Flush, Issued, Sent};
use crate::hooks::{CpuId, Kernel, Way};
use core::sync::atomic::Ordering;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Sends `flush` by `send`, which receives the number of the sample if this request is one. If it is, times it,
    /// corrects the costs, and considers the space for promotion or demotion.
    #[inline]
    pub(crate) fn sampled<'e>(
        &'e self,
        token: &mut Token<'e, 'k, K, W>,
        flush: &Flush<'_, K::Facade, W>,
        pin: Pinned<'e, K, W>,
        send: impl FnOnce(&mut Token<'e, 'k, K, W>, Option<u64>, Pinned<'e, K, W>) -> Sent<'e, K, W>,
    ) -> Option<Issued<'e, K, W>> {
        let (me, space) = (pin.cpu, flush.space);
        let sample = self.sample(match flush.generation {
            0 => self.count_under_tag(me),
            generation => generation,
        });
        let begun = sample.map(|_| self.kernel.now_ns());
        match send(token, sample, pin) {
            Sent::Interrupts { targets } => {
                if let Some(begun) = begun {
                    self.record_ipis(token, targets as u64, self.since(begun));
                }
                self.consider(space, me, begun.is_some(), targets);
            }
            Sent::AnyTag { targets } => {
                if let Some(begun) = begun {
                    self.learn(Way::Broadcast, 0, self.since(begun));
                }
                self.consider_after_any_tag(space, me, begun.is_some(), targets);
            }
            Sent::Tag { tag, word, any, pin } => {
                if let Some(begun) = begun
                    && any
                {
                    self.learn(Way::Broadcast, 0, self.since(begun));
                }
                self.consider_demotion(token, space, word, tag, pin);
            }
            Sent::Issued(issued) => return Some(issued),
            Sent::Unsampled => {}
        }
        None
    }

    /// Whether the next request of `me` that takes no generation is a sample. Counts it if it is none: a sample is
    /// counted in [`sampled`](Self::sampled). Pinned.
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

    /// Records a timed request to `targets` CPUs that took `took` until it was sent. If all targets have answered,
    /// because they held descriptors, it is learned from at once; otherwise when the token is waited for.
    fn record_ipis(&self, token: &mut Token<'_, 'k, K, W>, targets: u64, took: u64) {
        if token.targets.is_empty() && targets > 0 {
            self.learn(Way::Interrupts, targets, took);
        } else {
            token.timed = Some((targets, took));
        }
    }
}
