//! The list of recently used pages, as far as its lock is concerned.
//!
//! Owns the batches: each CPU collects pages and puts them on the list in one section under the lock. Pages that are
//! freed are taken off in batches too. A section takes longer the more pages it is for.

use super::System;
use super::category::{self, Category};
use crate::machine;

/// Pages that a CPU collects before it takes the lock: Linux's `PAGEVEC_SIZE` of 15.
const LRU_BATCH: u32 = 15;

/// Freed pages that are taken off the list under one hold of the lock: Linux's `SWAP_CLUSTER_MAX`, in `release_pages`.
const LRU_RELEASE: usize = 32;

impl<const W: usize> System<W> {
    /// A page that is new here will be on the list.
    pub(super) fn lru_add(&self) {
        machine::charge(self.costs.lru_add);
        let batch = &self.lru_batches[machine::cpu()];
        batch.set(batch.get() + 1);
        if batch.get() >= LRU_BATCH {
            self.lru_drain();
        }
    }

    /// Moves this CPU's batch to the list.
    pub(super) fn lru_drain(&self) {
        let pages = self.lru_batches[machine::cpu()].replace(0);
        if pages > 0 {
            self.lru_section(u64::from(pages));
        }
    }

    /// Takes so many pages off the list.
    pub(super) fn lru_release(&self, pages: usize) {
        for before in (0..pages).step_by(LRU_RELEASE) {
            self.lru_section((pages - before).min(LRU_RELEASE) as u64);
        }
    }

    /// One section under the lock, interrupts off, for so many pages, at least one.
    fn lru_section(&self, pages: u64) {
        let outer = category::enter(Category::Lru);
        let node = machine::socket() % self.lru.len();
        let hold = self.costs.lru_hold + (pages - 1) * self.costs.lru_page;
        self.lru[node].with(true, || machine::charge(hold));
        category::leave(outer);
    }
}
