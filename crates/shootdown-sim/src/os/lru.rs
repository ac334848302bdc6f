//! The list of recently used pages, as far as its lock is concerned.
//!
//! Owns the batches: each CPU collects new pages and puts them on the list in one section under the lock. Pages that
//! are freed are taken off in batches too. A section takes time for each of its pages. It takes longer if another CPU
//! held the lock before: then the lines of the list, and of its counters, move.
//!
//! A batch holds a reference to each of its pages (Linux's `folio_batch_move_lru`). So a page that is unmapped while it
//! is in one goes on the list with the others, and a second section takes it off again.

use super::category::{self, Category};
use super::{SpinLock, System};
use crate::machine;
use std::cell::Cell;

/// Freed pages that are taken off the list under one hold of the lock: Linux's `SWAP_CLUSTER_MAX`, in `release_pages`.
/// Since 6.9 it is a batch of 31 (`folios_put_refs`).
const LRU_RELEASE: usize = 32;

/// The list of a memory node.
pub(super) struct Lru {
    lock: SpinLock,
    /// The CPU that held the lock last.
    holder: Cell<Option<usize>>,
}

impl Lru {
    pub(super) fn new(lock: SpinLock) -> Self {
        Lru {
            lock,
            holder: Cell::new(None),
        }
    }
}

/// The pages that one CPU has yet to put on the list.
#[derive(Default)]
pub(super) struct Batch {
    /// Frames of those that are mapped.
    mapped: Vec<u32>,
    /// How many others there are.
    unmapped: usize,
}

impl Batch {
    fn pages(&self) -> usize {
        self.mapped.len() + self.unmapped
    }

    /// `frame` is no longer mapped. False if it is not in this batch.
    fn unmap(&mut self, frame: u32) -> bool {
        let found = self.mapped.iter().position(|&other| other == frame);
        if let Some(at) = found {
            self.mapped.swap_remove(at);
            self.unmapped += 1;
        }
        found.is_some()
    }
}

impl<const W: usize> System<W> {
    /// A page that is new here will be on the list.
    pub(super) fn lru_add(&self, frame: u32) {
        machine::charge(self.costs.lru_add);
        let full = {
            let mut batch = self.lru_batches[machine::cpu()].borrow_mut();
            batch.mapped.push(frame);
            batch.pages() >= self.settings.lru_batch
        };
        if full {
            self.lru_drain();
        }
    }

    /// Moves this CPU's batch to the list, and takes its unmapped pages off again.
    pub(super) fn lru_drain(&self) {
        let batch = self.lru_batches[machine::cpu()].take();
        self.lru_section(batch.pages());
        self.lru_section(batch.unmapped);
    }

    /// Takes those of `frames` off the list that have no other reference. Pages in this CPU's batch are only marked. A
    /// page in the batch of another CPU is taken for one on the list.
    pub(super) fn lru_release(&self, frames: &[u32]) {
        let listed = {
            let mut batch = self.lru_batches[machine::cpu()].borrow_mut();
            let last = frames.iter().filter(|&&frame| !self.is_shared(frame));
            last.filter(|&&frame| !batch.unmap(frame)).count()
        };
        for before in (0..listed).step_by(LRU_RELEASE) {
            self.lru_section((listed - before).min(LRU_RELEASE));
        }
    }

    /// One section under the lock, interrupts off, for so many pages, if there are any.
    fn lru_section(&self, pages: usize) {
        if pages == 0 {
            return;
        }
        let outer = category::enter(Category::Lru);
        let Lru { lock, holder } = &self.lru[machine::socket() % self.lru.len()];
        lock.with(true, || {
            let lines_move = holder.replace(Some(machine::cpu())) != Some(machine::cpu());
            let lines = if lines_move { self.costs.lru_hold } else { 0 };
            machine::charge(lines + pages as u64 * self.costs.lru_page);
        });
        category::leave(outer);
    }
}
