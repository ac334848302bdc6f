//! Posts: a bit in a word of each target tells it to catch up by the log. Many requesters share one post.

use crate::cpu::state::{POSTED, PerCpu};
use crate::cpuset::CpuMask;
use crate::engine::Engine;
use crate::facade::{AHEAD, Facade, Word};
use crate::flush::token::Token;
use crate::hooks::{CpuId, Event, Kernel};
use core::sync::atomic::Ordering;

impl<'k, K: Kernel<W>, const W: usize> Engine<'k, K, W> {
    /// Posts to every target of the token, and interrupts those without a post since their last take. Once for a token.
    ///
    /// Interrupts all of them if another send on this CPU is in progress below it. An interrupt may arrive between a
    /// post and its send, and its handler may flush. The posts that it finds were made by the send below, which has not
    /// sent its interrupt yet and cannot while the handler waits (C5).
    // Not inlined: the local part needs no room for this.
    #[inline(never)]
    pub(crate) fn post(&self, token: &Token<'_, 'k, K, W>, me: CpuId) {
        let targets = token.targets();
        let mut fresh = CpuMask::EMPTY;
        let (mut sent, mut count) = (0, 0);
        let sending = self.cpus[me].own.sending.set();
        // A post is a full barrier, so without prefetching the lines would arrive one after the other.
        let mut ahead = targets.iter();
        let mut prefetch_next = || {
            let next = ahead.next();
            next.inspect(|&cpu| K::Facade::prefetch_to_write(&self.cpus[cpu].post))
        };
        (0..AHEAD).take_while(|_| prefetch_next().is_some()).for_each(drop);
        for cpu in targets.iter() {
            prefetch_next();
            let (ticket, must_interrupt) = self.post_to(&self.cpus[cpu], sending.is_nested());
            if must_interrupt {
                fresh.insert(cpu);
                sent += 1;
            }
            token.expect(ticket);
            count += 1;
        }
        if sent > 0 {
            K::Facade::before_ipi();
            self.kernel.send_ipi(&fresh);
        }
        drop(sending);
        self.kernel.event(Event::Interrupted { sent, targets: count });
    }

    /// Posts to one CPU. Returns the ticket, and whether the CPU must be interrupted. `nested`: see
    /// [`post`](Self::post).
    #[inline]
    pub(crate) fn post_to(&self, target: &PerCpu<K::Facade>, nested: bool) -> (u64, bool) {
        // A post that is still there will be taken after this read, and the taker's full barrier comes before its
        // reads: it will see our generation, whose increment was a full barrier before this read. So no write.
        let mut seen = target.post.load(Ordering::Relaxed);
        if seen & POSTED == 0 {
            seen = target.post.fetch_or_full(POSTED);
        }
        (seen >> 1, seen & POSTED == 0 || nested)
    }
}
