//! Flushes by the kernel. The oracle is notified when each begins and when it is declared complete.

use super::System;
use super::category::{self, Category};
use super::process::Process;
use crate::machine;
use crate::machine::activity::{What, note};
use shootdown::{Order, Range, Word};
use std::sync::atomic::Ordering;

impl<const W: usize> System<W> {
    /// Flushes, and notifies the oracle of the start and the completion.
    pub fn flush(&self, process: &Process<W>, range: Range) {
        self.flush_for(process, range, range);
    }

    /// Flushes `flushed`, which proves to the oracle that translations of `range` are gone.
    fn flush_for(&self, process: &Process<W>, range: Range, flushed: Range) {
        let outer = category::enter(Category::FlushRequester);
        self.announced(process, range, || {
            let _done = self.engine.flush(&process.space, flushed);
        });
        category::leave(outer);
    }

    /// Runs `flush`, and notifies the oracle of the start and the completion.
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

    /// Flushes everything of a space, page-table pages included, and notifies the oracle.
    pub fn flush_space(&self, process: &Process<W>) {
        let outer = category::enter(Category::FlushRequester);
        let _done = self.announced_whole(process, || self.engine.flush(&process.space, Range::WHOLE));
        category::leave(outer);
    }

    /// Runs `flush`, after which no earlier withdrawn translation of the space may be used, and notifies the oracle.
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

    /// Whether the address-space lock is released before the flush is complete. The design's interface allows it if
    /// sending and waiting are separate. Frames stay until the proof exists. A CPU that finds an entry clear checks
    /// whether a flush of it is in progress ([`another_unmaps`](Self::another_unmaps)).
    pub(super) fn unlocks_early(&self) -> bool {
        self.engine.policy().order == Order::Concurrent && !self.settings.lru_drain
    }

    /// As [`flush`](Self::flush), and frees `frames`. Work that needs no proof overlaps the flush: `unlock`, and the
    /// accounting of the frames (rmap, memory group, LRU list). Only their return to the allocator, a splice of lists,
    /// waits.
    pub(super) fn flush_unlocking(&self, process: &Process<W>, range: Range, frames: Vec<u32>, unlock: impl FnOnce()) {
        let outer = category::enter(Category::FlushRequester);
        self.announced(process, range, || {
            let (_done, ()) = self.engine.flush_while(&process.space, range, || {
                category::leave(outer);
                note(|| What::MeanwhileBegins);
                unlock();
                self.lru_release(&frames);
                machine::charge(self.costs.page_free * frames.len() as u64);
                note(|| What::MeanwhileEnds);
                category::enter(Category::FlushRequester);
            });
        });
        category::leave(outer);
        frames.into_iter().for_each(|frame| self.hand_back(frame));
    }

    /// Runs `flush` from its call to its proof, for the timeline, the distributions and the log. Every flush must go
    /// through here: otherwise the log would attribute its method to the next one.
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

    /// The flush at the end of an unmap of `range`, which `cleared` entries or found them clear. If another unmap of
    /// the process is in progress, Linux flushes the whole space, page-table pages included, so that idle CPUs are
    /// interrupted too (`tlb_finish_mmu`, `mm_tlb_flush_nested`). That is proof for `range` only: what the other unmap
    /// has cleared may still be in the store buffer of its CPU.
    pub(super) fn flush_gathered(&self, process: &Process<W>, range: Range, cleared: bool) {
        match self.another_unmaps(process) {
            true if self.settings.nested_flushes => self.flush_for(process, range, Range::WHOLE),
            nested if nested || cleared => self.flush(process, range),
            _ => {}
        }
    }

    /// After entries were found clear: whether an unmap that may have cleared them is still in progress (bug 34). Linux
    /// checks its `tlb_flush_pending` for the same reason.
    pub(super) fn another_unmaps(&self, process: &Process<W>) -> bool {
        process.unmapping.load(Ordering::Acquire) > 1
    }
}
