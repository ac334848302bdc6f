//! Sampling: what a flush teaches. A wrapper around what `dispatch_into` of `flush/mod.rs` does; the flush itself knows
//! only the number of its sample.
//!
//! Owns the clock reads of a timed request, and the order of what follows it: costs are corrected first, then the space
//! is considered for promotion or demotion. Nothing here is needed for correctness.

use crate::engine::{Engine, Pinned};
use crate::flush::token::Token;
use crate::flush::{Flush, Issued, Sent};
use crate::hooks::{Kernel, Way};

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Sends `flush` by `send`, which is given the number of the sample if this request is one. Times it then, corrects
    /// the costs, and considers the space for promotion or demotion.
    #[inline(always)]
    pub(crate) fn sampled<'e>(
        &'e self,
        token: &mut Token<'e, 'k, K, W>,
        flush: &Flush<'_, K::Facade, W>,
        pin: Pinned<'e, K, W>,
        send: impl FnOnce(&mut Token<'e, 'k, K, W>, Option<u64>, Pinned<'e, K, W>) -> Sent<'e, K, W>,
    ) -> Option<Issued<'e, K, W>> {
        let (me, space) = (pin.cpu, flush.space);
        let sample = self.sample(flush.generation);
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

    /// A timed request to `targets` CPUs took so long until it was sent: learnt from at once if all of them have
    /// answered, because they held descriptors, else when the token was waited for.
    fn record_ipis(&self, token: &mut Token<'_, 'k, K, W>, targets: u64, took: u64) {
        if token.targets.is_empty() && targets > 0 {
            self.learn(Way::Interrupts, targets, took);
        } else {
            token.timed = Some((targets, took));
        }
    }
}
