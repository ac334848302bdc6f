//! Deferred unmaps: their quarantined frames and ranges, and when these are free again. See the engine's
//! `flush/deferred.rs`.
//!
//! Owns the list of pending unmaps, oldest first. Ticks release those that are over; `mmap` of a range that is still in
//! quarantine, and the end of a process, flush it at once.

use super::System;
use super::category::{self, Category};
use super::process::Process;
use crate::machine;
use shootdown::{Deferral, Flushed, Free, Range, Stride, Unmapped};
use std::cell::Cell;
use std::rc::Rc;

/// Cycles after which `mmap` checks again whether a range has left quarantine: about one line transfer.
const LOOK_AGAIN: u64 = 300;

/// The range and frames of one unmap.
pub(super) struct Quarantined {
    /// The process, and its quarantined range.
    process: u32,
    count: Rc<Cell<usize>>,
    range: std::ops::Range<u64>,
    frames: Vec<u32>,
    deferral: Deferral,
    /// The oracle's number.
    number: u64,
}

impl<const W: usize> System<W> {
    /// Whether an unmap at `va` may be deferred: of private memory, under a design that does.
    pub(super) fn may_defer(&self, process: &Process<W>, va: u64) -> bool {
        let shared = |file: &super::process::FileRegion| file.covers(va);
        self.engine.policy().free == Free::Deferred && !process.files.borrow().iter().any(shared)
    }

    /// Flushes the withdrawn entries of an unmap, at once or deferred, and then frees its frames.
    pub(super) fn flush_later(&self, process: &Process<W>, range: Range, frames: Vec<u32>) {
        let outer = category::enter(Category::FlushRequester);
        let stamp = self.hw.borrow_mut().request_begins(machine::cpu(), machine::now());
        let unmapped = self.timed(|| self.engine.flush_later(&process.space, range, frames.len() as u32));
        let (cpu, now) = (machine::cpu(), machine::now());
        let bytes = range.start()..range.end();
        match unmapped {
            Unmapped::Now(_done) => {
                self.hw.borrow_mut().completed(process.number, bytes, stamp, cpu, now);
                category::leave(outer);
                self.free_frames(frames);
            }
            Unmapped::Later(deferral) => {
                let number = (self.hw.borrow_mut()).quarantine(process.number, bytes.clone(), stamp, &frames);
                let count = process.quarantined.clone();
                count.set(count.get() + 1);
                self.quarantine.borrow_mut().push_back(Quarantined {
                    process: process.number,
                    count,
                    range: bytes,
                    frames,
                    deferral,
                    number,
                });
                category::leave(outer);
            }
        }
    }

    /// Frees the unmaps that are over, oldest first.
    pub fn release_quarantined(&self) {
        if self.quarantine.borrow().is_empty() {
            return;
        }
        let over = self.engine.deferrals_over();
        loop {
            // Freeing takes time, in which other CPUs come here too: each takes one at a time off the list.
            let Some(mut oldest) = self.quarantine.borrow_mut().pop_front() else {
                return;
            };
            let leaving = (oldest.process, oldest.range.clone());
            self.leaving_quarantine.borrow_mut().push(leaving.clone());
            let left = || self.leaving_quarantine.borrow_mut().retain(|other| *other != leaving);
            match self.engine.release(oldest.deferral, &over) {
                Ok(flushed) => {
                    self.end_quarantine(oldest.number, oldest.count, oldest.frames, &flushed);
                    left();
                }
                Err(deferral) => {
                    oldest.deferral = deferral;
                    self.quarantine.borrow_mut().push_front(oldest);
                    return left();
                }
            }
        }
    }

    fn end_quarantine(&self, number: u64, count: Rc<Cell<usize>>, frames: Vec<u32>, _proof: &Flushed) {
        machine::synchronise();
        (self.hw.borrow_mut()).quarantine_ends(number, machine::cpu(), machine::now());
        count.set(count.get() - 1);
        self.free_frames(frames);
    }

    /// Ensures that nothing of `bytes` is in quarantine, by a flush if necessary, before it is mapped again. Under the
    /// address-space lock, exclusive.
    pub(super) fn settle_quarantine(&self, process: &Process<W>, bytes: std::ops::Range<u64>) {
        if process.quarantined.get() == 0 {
            return;
        }
        // Unmaps that another CPU has just taken off the list, and is freeing.
        let overlaps = |range: &std::ops::Range<u64>| range.start < bytes.end && bytes.start < range.end;
        let leaves = |(number, range): &(u32, _)| *number == process.number && overlaps(range);
        while self.leaving_quarantine.borrow().iter().any(leaves) {
            machine::charge(LOOK_AGAIN);
            machine::synchronise();
        }
        for waiting in self.take_quarantined(process, bytes) {
            let range = Range::pages(waiting.range.start, waiting.range.end, Stride::Size4K);
            let outer = category::enter(Category::FlushRequester);
            let flushed = self.timed(|| self.engine.flush(&process.space, range));
            category::leave(outer);
            let released = self.engine.release_by(waiting.deferral, &flushed);
            assert!(released.is_ok(), "the quarantine mixes up its spaces");
            self.end_quarantine(waiting.number, waiting.count, waiting.frames, &flushed);
        }
    }

    /// The quarantine of a process is over by the proof that no CPU has the process loaded any longer.
    pub(super) fn quarantine_retired(&self, process: &Process<W>, retired: &Flushed) {
        for waiting in self.take_quarantined(process, 0..u64::MAX) {
            let released = self.engine.release_by(waiting.deferral, retired);
            assert!(released.is_ok(), "the quarantine mixes up its spaces");
            self.end_quarantine(waiting.number, waiting.count, waiting.frames, retired);
        }
    }

    /// Takes the unmaps that overlap `bytes` of a process off the list.
    fn take_quarantined(&self, process: &Process<W>, bytes: std::ops::Range<u64>) -> Vec<Quarantined> {
        let mut list = self.quarantine.borrow_mut();
        let overlaps = |waiting: &Quarantined| {
            waiting.process == process.number && waiting.range.start < bytes.end && bytes.start < waiting.range.end
        };
        let (taken, rest) = list.drain(..).partition::<Vec<_>, _>(overlaps);
        list.extend(rest);
        taken
    }

    /// The first of `places` that `mmap` can use without a flush, else the first, as a kernel that chooses addresses
    /// would.
    pub fn place(&self, process: &Process<W>, mut places: impl Iterator<Item = u64> + Clone, bytes: u64) -> u64 {
        let first = places.clone().next().expect("there is a place");
        if process.quarantined.get() == 0 {
            return first;
        }
        let list = self.quarantine.borrow();
        let free = |va: &u64| {
            !list.iter().any(|waiting| {
                waiting.process == process.number && waiting.range.start < va + bytes && *va < waiting.range.end
            })
        };
        places.find(free).unwrap_or(first)
    }

    /// Number of pending deferred unmaps.
    pub fn quarantined(&self) -> usize {
        self.quarantine.borrow().len()
    }
}
