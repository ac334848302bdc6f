//! Flushes under a roll-over tag: on this CPU alone if no other was ever active in the space, otherwise by broadcast or
//! by interrupts that name the tag.
//!
//! Chooses between the three. A CPU joins a space's set before it loads the root and, under roll-over tags, stays a
//! member. So the set contains the CPUs that were *ever* active: they may hold entries under the tag, loaded or not.

use crate::design::Reach;
use crate::engine::{Engine, Pinned};
use crate::flush::Flush;
use crate::flush::token::Token;
use crate::hooks::{CpuId, Event, Kernel, Tag};
use crate::range::Range;
use crate::space::Space;
use crate::transport::request::EncodedRequest;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Flushes a space that has the roll-over tag `tag`. After the full-barrier increment of the generation and
    /// [`publish_tables`](Self::publish_tables); pinned until everything is issued and complete. If it uses interrupts,
    /// and the flush is for lockless walkers too, the same request interrupts them.
    #[inline]
    pub(crate) fn flush_rolled(
        &self,
        token: &mut Token<'_, 'k, K, W>,
        flush: &Flush<'_, K::Facade, W>,
        tag: Tag,
        pin: Pinned<'_, K, W>,
    ) {
        let (me, space, range) = (pin.cpu, flush.space, flush.range);
        if self.policy().reach == Reach::LocalFirst && self.flush_alone(space, tag, &range, me) {
            self.kernel.event(Event::LocalOnly);
        } else if self.broadcasts() {
            self.broadcast_and_sync(space, me, tag, &range);
            self.ipi_after_broadcast(token, space, pin);
        } else {
            let mut targets = self.targets(space, range.tables(), me);
            if flush.walkers {
                token.add_walkers(space, &self.walkers_of(space, me), &mut targets);
            }
            self.interrupt(token, &targets, &EncodedRequest::tag(tag, &range), pin, &|engine| {
                engine.flush_tag_here(tag, &range)
            });
        }
    }

    /// Flushes only on this CPU, if it is the only one that was ever active in the space. Otherwise returns false and
    /// does nothing. Pinned on `me`, after the full-barrier increment of the generation.
    ///
    /// That increment pairs with the join of `switch_to`, a full barrier before the root load: either the join is seen
    /// here, or the CPU that joins sees the entry writes in every fill.
    pub(crate) fn flush_alone(&self, space: &Space<K::Facade, W>, tag: Tag, range: &Range, me: CpuId) -> bool {
        if self.others_in(space, me) {
            return false;
        }
        self.flush_tag_here(tag, range);
        true
    }

    /// After a broadcast, on processors that acknowledge the synchronisation too early: interrupts every CPU that may
    /// be using translations of `space`. A CPU that loads it later does so after the broadcast took effect there.
    pub(crate) fn ipi_after_broadcast(
        &self,
        token: &mut Token<'_, 'k, K, W>,
        space: &Space<K::Facade, W>,
        pin: Pinned<'_, K, W>,
    ) {
        if self.machine().errata.interrupt_too {
            let running = self.running(space, pin.cpu);
            if !running.is_empty() {
                self.interrupt(token, &running, &EncodedRequest::SYNCHRONISE, pin, &|_| {});
            }
        }
    }
}
