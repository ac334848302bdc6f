//! AArch64: withdrawals that the storing CPU has not published. A walk may still find the withdrawn entry, on any CPU
//! and after any invalidation; an exception there does not change that.
//!
//! Owns the list of them. The model reproduces the visible effect: half the time, an entry that such a store withdrew
//! is present again after the invalidation, if the CPU can walk to it.

use super::ledger::Stamp;
use super::tlb::{self, At, SUSPECT};
use super::{Hw, Isa};

/// Longest time that a store stays invisible, cycles.
pub(super) const LONGEST_STORE: u64 = 2000;
use shootdown::Stride;

/// A withdrawal that walks need not see yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unpublished {
    slot: u32,
    issued: Stamp,
    /// The storing CPU's own walker sees it.
    seen_there: bool,
}

/// Most withdrawals that are remembered, newest first: a CPU that never publishes would accumulate them without bound.
const MOST: usize = 64;

impl Hw {
    /// A store that other CPUs see by now has withdrawn a translation.
    pub(super) fn withdrew_from(&mut self, slot: u32, issued: Stamp) {
        if !matches!(self.config.isa, Isa::Aarch64(_)) {
            return;
        }
        if let Some(later) = &mut self.later
            && let (true, unseen_there) = later.unpublished_by(issued)
        {
            if later.unpublished.len() == MOST {
                later.unpublished.remove(0);
            }
            later.unpublished.push(Unpublished {
                slot,
                issued,
                seen_there: !unseen_there,
            });
        }
    }

    /// `cpu` has published its withdrawals.
    pub(super) fn published_by(&mut self, cpu: usize) {
        if let Some(later) = &mut self.later {
            later.unpublished.retain(|one| one.issued.cpu as usize != cpu);
        }
    }

    /// `cpu` has published its withdrawals to its own walker.
    pub(super) fn published_by_to_itself(&mut self, cpu: usize) {
        if let Some(later) = &mut self.later {
            let own = later
                .unpublished
                .iter_mut()
                .filter(|one| one.issued.cpu as usize == cpu);
            own.for_each(|one| one.seen_there = true);
        }
    }

    /// Withdrawals of all CPUs are published, by a CPU that may have read them and publishes them with its own.
    pub(super) fn all_published(&mut self) {
        if let Some(later) = &mut self.later {
            later.unpublished.clear();
        }
    }

    /// After this time unpublished stores become visible too.
    pub(super) fn long_unpublished(&mut self, now: u64) {
        if let Some(later) = &mut self.later {
            let recent = |one: &Unpublished| now < one.issued.at + LONGEST_STORE;
            later.unpublished.retain(recent);
        }
    }

    /// Entries that this CPU will have filled again after the coming invalidation, which spares them.
    pub(super) fn spare_unpublished(&mut self, cpu: usize) -> Vec<At> {
        let c = &self.cpus[cpu];
        let walks = !c.is_off() && !c.booting && !c.descheduled;
        let list = match &mut self.later {
            Some(later) if walks => std::mem::take(&mut later.unpublished),
            _ => return Vec::new(),
        };
        let mut excluded = Vec::new();
        for one in &list {
            let seen = one.seen_there && one.issued.cpu as usize == cpu;
            if !seen
                && let Some(at) = self.withdrawn_entry(cpu, one)
                && self.random() & 1 == 1
            {
                self.tlb.set_fill(at, u64::MAX);
                excluded.push(at);
            }
        }
        if let Some(later) = &mut self.later {
            later.unpublished = list;
        }
        excluded
    }

    /// Spared entries count as filled after the invalidation.
    pub(super) fn fill_again(&mut self, excluded: Vec<At>) {
        for at in excluded {
            let fill = self.tick();
            self.tlb.set_fill(at, fill);
        }
    }

    /// The withdrawn entry, if the CPU has it under the tag and for the space that it has loaded.
    fn withdrawn_entry(&self, cpu: usize, one: &Unpublished) -> Option<At> {
        let (c, level) = (&self.cpus[cpu], self.ledger.chunks[one.slot as usize >> 9].level);
        let va = self.ledger.va(one.slot);
        let at = match level {
            1 => self.tlb.find_small(cpu, tlb::key(va, Stride::Size4K, c.tag)),
            _ => self.tlb.find_large(cpu, va, c.tag),
        }?;
        let (body, newest) = (self.tlb.body(at), self.ledger.records(one.slot).next()?);
        let withdrawn = body.slot == one.slot
            && newest.issued == one.issued
            && body.fill < newest.seen
            && body.bits & SUSPECT == 0
            && newest.old.covers(body.entry());
        let walked_to = body.space == 0 || body.space == c.space;
        (withdrawn && walked_to && self.is_live(cpu, self.tlb.key(at), &body)).then_some(at)
    }
}
