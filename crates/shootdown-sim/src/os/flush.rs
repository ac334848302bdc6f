//! Flushes by the kernel. Each is announced to the oracle when it begins and when it is said to be complete.

use super::System;
use super::category::{self, Category};
use super::process::Process;
use crate::machine;
use crate::timeline::{What, note};
use shootdown::{Order, Range, Word};
use std::sync::atomic::Ordering;

impl<const W: usize> System<W> {
    /// Flushes, and tells the oracle when it began and when it was said to be complete.
    pub fn flush(&self, process: &Process<W>, range: Range) {
        let outer = category::enter(Category::FlushRequester);
        self.announced(process, range, || {
            let _done = self.engine.flush(&process.space, range);
        });
        category::leave(outer);
    }

    /// Runs `flush`, and tells the oracle when it began and when it was said to be complete.
    pub(super) fn announced(&self, process: &Process<W>, range: Range, flush: impl FnOnce()) {
        let stamp = self.hw.borrow_mut().request_begins(machine::cpu(), machine::now());
        self.timed(flush);
        if self.settings.ideal {
            machine::drain_stores();
            self.hw
                .borrow_mut()
                .perfect_invalidate(machine::cpu(), process.number, range.start()..range.end());
        }
        self.hw.borrow_mut().completed(
            process.number,
            range.start()..range.end(),
            stamp,
            machine::cpu(),
            machine::now(),
        );
    }

    /// Flushes everything of a space, table pages included, and tells the oracle.
    pub fn flush_space(&self, process: &Process<W>) {
        let outer = category::enter(Category::FlushRequester);
        let _done = self.announced_whole(process, || self.engine.flush(&process.space, Range::WHOLE));
        category::leave(outer);
    }

    /// Runs `flush`, after which nothing of the space may be used that was withdrawn before, and tells the oracle so.
    pub(super) fn announced_whole<T>(&self, process: &Process<W>, flush: impl FnOnce() -> T) -> T {
        let stamp = self.hw.borrow_mut().request_begins(machine::cpu(), machine::now());
        let done = self.timed(flush);
        if self.settings.ideal {
            machine::drain_stores();
            self.hw.borrow_mut().perfect_invalidate_space(process.number);
        }
        self.hw
            .borrow_mut()
            .completed_space(process.number, stamp, machine::cpu(), machine::now());
        done
    }

    /// Whether the address-space lock is let go of before the flush is complete. The design's own interface allows it,
    /// where asking and waiting are apart; frames stay until the proof is there, and who finds an entry clear looks
    /// whether somebody still flushes it ([`another_unmaps`](Self::another_unmaps)).
    pub(super) fn unlocks_early(&self) -> bool {
        self.engine.policy().order == Order::Concurrent && !self.settings.lru_drain
    }

    /// As [`flush`](Self::flush), and frees `frames`. What needs no proof is done while the flush is under way:
    /// `unlock`, and the accounts of the frames (rmap, memory group, LRU list). What waits is their way to the
    /// allocator, a splice of lists.
    pub(super) fn flush_unlocking(&self, process: &Process<W>, range: Range, frames: Vec<u32>, unlock: impl FnOnce()) {
        let outer = category::enter(Category::FlushRequester);
        self.announced(process, range, || {
            let (_done, ()) = self.engine.flush_while(&process.space, range, || {
                category::leave(outer);
                note(|| What::MeanwhileBegins);
                unlock();
                machine::charge(self.costs.page_free * frames.len() as u64);
                note(|| What::MeanwhileEnds);
                category::enter(Category::FlushRequester);
            });
        });
        category::leave(outer);
        frames.into_iter().for_each(|frame| self.hand_back(frame));
    }

    /// Runs `flush` from its call to its proof, for the timeline, the distributions and the diary. Each flush goes
    /// through here: the diary would take the way of one that did not for that of the next.
    pub(super) fn timed<T>(&self, flush: impl FnOnce() -> T) -> T {
        let begun = machine::now();
        let outer = category::enter(Category::FlushRequester);
        note(|| What::FlushBegins);
        let done = flush();
        note(|| What::FlushEnds);
        category::leave(outer);
        let took = machine::now().saturating_sub(begun);
        self.preemption.latencies.flush.record(took);
        self.engine.kernel().flush_took(begun);
        done
    }

    /// After entries were found clear: whether an unmap that may have cleared them is still under way (bug 34). Linux
    /// asks the same of its `tlb_flush_pending`.
    pub(super) fn another_unmaps(&self, process: &Process<W>) -> bool {
        process.unmapping.load(Ordering::Acquire) > 1
    }
}
