//! Broadcast invalidation: INVLPGB, which each CPU carries out with its own delay, and TLBSYNC, which waits for its
//! issuer's operations.
//!
//! An operation waits in a short list. A CPU that uses its TLB carries out the operations that are due for it (a seeded
//! delay after the issue). [`Hw::sync_done`] completes the issuer's operations everywhere. It drops every entry filled
//! before the issue, and later fills from withdrawn tables (`in_flight.rs`); other younger entries may stay. Holders
//! are found through the ledger's counts, not by visiting all CPUs.

use super::cpu::HardwareFault;
use super::invalidate::Of;
use super::tlb::VA_MASK;
use super::{Defect, Hw, canonical, mix};
use shootdown::Broadcast;
use shootdown::Stride;
use std::collections::HashMap;

/// Machine-wide flush horizons.
#[derive(Debug, Clone, Default)]
pub(super) struct Epochs {
    tags: HashMap<u16, (u64, u64)>,
    pub(super) nonglobal: u64,
    pub(super) all: u64,
    pub(super) all_links: u64,
}

impl Epochs {
    #[inline]
    pub(super) fn tag(&self, tag: u16) -> u64 {
        if self.tags.is_empty() {
            0
        } else {
            self.tags.get(&tag).map_or(0, |e| e.0)
        }
    }

    #[inline]
    pub(super) fn links(&self, tag: u16) -> u64 {
        if self.tags.is_empty() {
            0
        } else {
            self.tags.get(&tag).map_or(0, |e| e.1)
        }
    }
}

/// An operation not yet synchronised.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) issuer: u32,
    /// Sequence number of the issue; orders operations and names them.
    pub(super) seq: u64,
    /// Time of the issue, cycles.
    at: u64,
    /// Latest issue time of this operation and of all before it in the list. It never decreases along the list,
    /// although the clocks of CPUs differ.
    latest: u64,
    pub(super) what: Broadcast,
    /// The CPU on which it takes effect late (erratum).
    pub(super) excluded: u32,
}

impl Outstanding {
    /// No CPU is spared.
    pub(super) const NO_CPU: u32 = u32::MAX;
}

/// CPUs that may hold entries under a tag.
#[derive(Debug, Clone, Default)]
pub(super) struct TagUsers {
    cpus: Vec<u64>,
    spaces: Vec<u32>,
}

/// Operations kept before those that have reached every CPU are retired without a sync.
const LONGEST: usize = 256;

impl Hw {
    /// Issues a broadcast. Asynchronous: other CPUs, and this one, may use the named translations until
    /// [`sync_done`](Hw::sync_done) *on this CPU*. Returns the cost of issuing, in cycles.
    ///
    /// # Errors
    /// [`HardwareFault::Undefined`] without the feature; [`HardwareFault::GeneralProtection`] for a count of 0 or above
    /// the limit of the stride, or a tag the machine does not have.
    pub fn broadcast(&mut self, cpu: usize, what: Broadcast, now: u64) -> Result<u32, HardwareFault> {
        let limits = self.config.broadcast.ok_or(HardwareFault::Undefined)?;
        if let Broadcast::Pages { stride, count, .. } | Broadcast::Kernel { stride, count, .. } = what {
            let most = if stride == Stride::Size4K {
                limits.max_pages
            } else {
                limits.max_large_pages
            };
            if count == 0 || count > most || stride == Stride::Size1G {
                return Err(HardwareFault::GeneralProtection);
            }
        }
        if let Broadcast::Pages { tag, .. } | Broadcast::Tag(tag) = what {
            self.check_tag(tag.0)?;
        }
        if self.outstanding.len() >= LONGEST {
            self.retire_old(now);
        }
        let seq = self.tick();
        let before = self.outstanding.back().map_or(0, |op| op.latest);
        self.outstanding.push_back(Outstanding {
            issuer: cpu as u32,
            seq,
            at: now,
            latest: before.max(now),
            what,
            excluded: Outstanding::NO_CPU,
        });
        self.version += 1;
        if self.has(Defect::BroadcastAtIssue) {
            self.sync_done(cpu);
        }
        Ok(self.config.costs.broadcast_issue)
    }

    /// The time, in cycles and not before `now`, at which all broadcasts of this CPU have reached every CPU.
    pub fn sync_ready_at(&self, cpu: usize, now: u64) -> u64 {
        let latest = self
            .outstanding
            .iter()
            .filter(|op| op.issuer == cpu as u32)
            .map(|op| op.at)
            .max();
        latest.map_or(now, |at| now.max(at + self.longest_delay()))
    }

    /// TLBSYNC of this CPU completes: all of *its* broadcasts are done everywhere.
    pub fn sync_done(&mut self, cpu: usize) {
        let mut i = 0;
        while let Some(&op) = self.outstanding.get(i) {
            if op.issuer == cpu as u32 || self.has(Defect::SyncOfAnyCpu) {
                self.outstanding.remove(i);
                self.apply_everywhere(op);
                self.complete_withdrawn(op);
            } else {
                i += 1;
            }
        }
    }

    /// The microcode of `cpu` carries out a remote action. It completes there at once, in any state of the CPU.
    pub fn remote_action(&mut self, cpu: usize, what: Broadcast) {
        let seq = self.tick();
        let op = Outstanding {
            issuer: cpu as u32,
            seq,
            at: 0,
            latest: 0,
            what,
            excluded: Outstanding::NO_CPU,
        };
        self.apply_on(op, cpu);
    }

    /// Broadcasts not yet synchronised, machine-wide.
    pub fn broadcasts_outstanding(&self) -> usize {
        self.outstanding.len()
    }

    fn longest_delay(&self) -> u64 {
        let costs = &self.config.costs;
        costs.broadcast_min as u64 + costs.broadcast_spread as u64
    }

    /// Number of operations at the front of the list that were due on every CPU by `time`.
    fn long_done(&self, time: u64) -> usize {
        let longest = self.longest_delay() + 1;
        self.outstanding.partition_point(|op| op.latest + longest <= time)
    }

    fn retire_old(&mut self, now: u64) {
        let longest = self.longest_delay();
        while let Some(&op) = self.outstanding.front() {
            if op.at + longest > now {
                break;
            }
            self.outstanding.pop_front();
            self.apply_everywhere(op);
            self.complete_withdrawn(op);
        }
    }

    /// When an operation takes effect on a CPU, cycles.
    pub(super) fn due(&self, op: &Outstanding, cpu: usize) -> u64 {
        let costs = &self.config.costs;
        let drawn = mix(self.config.seed ^ op.seq.wrapping_mul(0x1_0001) ^ (cpu as u64) << 40);
        op.at + 1 + costs.broadcast_min as u64 + drawn % (costs.broadcast_spread as u64 + 1)
    }

    /// Whether an operation can matter to a CPU in its present state. Entries under other tags may wait for the sync.
    fn concerns(&self, op: &Outstanding, cpu: usize) -> bool {
        if op.excluded == cpu as u32 || self.is_device(cpu) || self.has(Defect::BroadcastOnlyAtSync) {
            return false;
        }
        match op.what {
            Broadcast::Pages { tag, .. } | Broadcast::Tag(tag) => tag.0 == self.cpus[cpu].tag,
            Broadcast::Kernel { .. } | Broadcast::NonGlobal | Broadcast::All => true,
        }
    }

    /// Carries out due operations on a CPU, and records the next time to check. Two compares when nothing is due.
    #[inline]
    pub(super) fn look_at_broadcasts(&mut self, cpu: usize, now: u64) {
        let c = &self.cpus[cpu];
        if c.version != self.version || now >= c.next_due {
            self.carry_out_due(cpu, now);
        }
    }

    #[inline(never)]
    fn carry_out_due(&mut self, cpu: usize, now: u64) {
        if self.cpus[cpu].version != self.version {
            self.cpus[cpu].version = self.version;
            self.refresh(cpu);
        }
        let (checked, mut next) = (self.cpus[cpu].checked, u64::MAX);
        let seen = self.cpus[cpu].checked_seq;
        self.cpus[cpu].checked = checked.max(now);
        self.cpus[cpu].checked_seq = self.outstanding.back().map_or(seen, |op| op.seq);
        // Those at the front were carried out here earlier, and only wait for their issuer's sync.
        let done = self.long_done(checked.min(now));
        let done = done.min(self.outstanding.partition_point(|op| op.seq <= seen));
        debug_assert!(
            self.outstanding
                .range(..done)
                .all(|op| self.due(op, cpu) <= checked.min(now))
        );
        for i in done..self.outstanding.len() {
            let op = self.outstanding[i];
            if !self.concerns(&op, cpu) {
                continue;
            }
            let due = self.due(&op, cpu);
            if due > now {
                next = next.min(due);
            } else if due > checked || (op.seq > seen && !self.has(Defect::ClockDecides)) {
                self.apply_on(op, cpu);
            }
        }
        if self.later.is_some() {
            self.cpus[cpu].next_due = u64::MAX;
            next = next.min(self.carry_out_later(cpu, now));
        }
        self.cpus[cpu].next_due = next;
    }

    fn apply_on(&mut self, op: Outstanding, cpu: usize) {
        match op.what {
            Broadcast::Pages {
                address,
                stride,
                count,
                tag,
                leaf_only,
            } => {
                for page in pages(address, stride, count) {
                    self.drop_page(cpu, page, Of::Tag(tag.0), u64::MAX);
                    if !leaf_only {
                        self.drop_links_for(cpu, page, Some(tag.0), u64::MAX);
                    }
                }
            }
            Broadcast::Kernel {
                address,
                stride,
                count,
                leaf_only,
            } => {
                for page in pages(address, stride, count) {
                    self.drop_page(cpu, page, Of::Any, u64::MAX);
                    if !leaf_only {
                        self.drop_links_for(cpu, page, None, u64::MAX);
                    }
                }
            }
            Broadcast::Tag(tag) => {
                let seq = self.tick();
                self.cpus[cpu].tag_state_mut(tag.0).flushed = seq;
                self.refresh(cpu);
            }
            Broadcast::NonGlobal => {
                let seq = self.tick();
                self.cpus[cpu].flushed_nonglobal = seq;
                self.refresh(cpu);
            }
            Broadcast::All => {
                let seq = self.tick();
                self.cpus[cpu].flushed_all = seq;
                self.cpus[cpu].flushed_links = seq;
                self.refresh(cpu);
            }
        }
    }

    pub(super) fn apply_everywhere(&mut self, op: Outstanding) {
        if self.has(Defect::SyncForgetsAway) {
            let here = (0..self.config.cpus).filter(|&cpu| self.concerns(&op, cpu));
            return here
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|cpu| self.apply_on(op, cpu));
        }
        let issuer = op.issuer as usize;
        match op.what {
            Broadcast::Pages {
                address,
                stride,
                count,
                tag,
                leaf_only,
            } => {
                for page in pages(address, stride, count) {
                    self.drop_everywhere(page, Of::Tag(tag.0), op.seq, issuer);
                    if !leaf_only && self.config.tce {
                        for cpu in self.cpus_of(tag.0) {
                            self.drop_links_for(cpu, page, Some(tag.0), op.seq);
                        }
                    }
                }
                if !leaf_only && !self.config.tce {
                    let epoch = self.epochs.tags.entry(tag.0).or_default();
                    epoch.1 = epoch.1.max(op.seq);
                    self.version += 1;
                }
            }
            Broadcast::Kernel {
                address,
                stride,
                count,
                leaf_only,
            } => {
                for page in pages(address, stride, count) {
                    self.drop_everywhere(page, Of::Any, op.seq, issuer);
                    if !leaf_only && self.config.tce {
                        for cpu in 0..self.config.cpus {
                            self.drop_links_for(cpu, page, None, op.seq);
                        }
                    }
                }
                if !leaf_only && !self.config.tce {
                    self.epochs.all_links = self.epochs.all_links.max(op.seq);
                    self.version += 1;
                }
            }
            Broadcast::Tag(tag) => {
                let epoch = self.epochs.tags.entry(tag.0).or_default();
                epoch.0 = epoch.0.max(op.seq);
                self.version += 1;
            }
            Broadcast::NonGlobal => {
                self.epochs.nonglobal = self.epochs.nonglobal.max(op.seq);
                self.version += 1;
            }
            Broadcast::All => {
                self.epochs.nonglobal = self.epochs.nonglobal.max(op.seq);
                self.epochs.all = self.epochs.all.max(op.seq);
                self.epochs.all_links = self.epochs.all_links.max(op.seq);
                self.version += 1;
            }
        }
    }

    /// Drops the entries of one page filled before `before`, on every CPU where the ledger counts copies.
    fn drop_everywhere(&mut self, va: u64, of: Of, before: u64, issuer: usize) {
        let va = canonical(va & VA_MASK);
        self.drop_held(0, va, of, before, issuer);
        if let Of::Tag(tag) = of {
            let spaces = self.tag_users.get(&tag).map_or(0, |u| u.spaces.len());
            for i in (0..spaces).rev() {
                let users = self.tag_users.get_mut(&tag).expect("counted above");
                let space = users.spaces[i];
                if self.ledger.may_be_cached(space) {
                    self.drop_held(space, va, of, before, issuer);
                } else {
                    users.spaces.swap_remove(i);
                }
            }
        } else if !super::is_kernel(va) {
            for cpu in 0..self.config.cpus {
                self.drop_page(cpu, va, of, before);
            }
        }
    }

    fn drop_held(&mut self, space: u32, va: u64, of: Of, before: u64, issuer: usize) {
        for level in 1..=self.ledger.spaces[space as usize].levels {
            if let Some(slot) = self.ledger.find(space, level, va)
                && self.ledger.slots[slot as usize].copies > 0
            {
                self.drop_slot(slot, of, before, issuer);
            }
        }
    }

    /// Records that a CPU has loaded a space under a tag.
    pub(super) fn tag_used(&mut self, cpu: usize, tag: u16, space: u32) {
        let words = self.cpus.len().div_ceil(64);
        if let Some(word) = self.ledger.spaces[space as usize].cpus.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
        let users = self.tag_users.entry(tag).or_default();
        users.cpus.resize(words, 0);
        users.cpus[cpu / 64] |= 1 << (cpu % 64);
        if !users.spaces.contains(&space) {
            if self.config.broadcast.is_some() && users.spaces.len() >= 16 {
                let ledger = &self.ledger;
                users.spaces.retain(|&s| ledger.may_be_cached(s));
            }
            if space != 0 && self.config.broadcast.is_some() {
                users.spaces.push(space);
            }
        }
    }

    fn cpus_of(&self, tag: u16) -> Vec<usize> {
        match self.tag_users.get(&tag) {
            Some(users) => users
                .cpus
                .iter()
                .enumerate()
                .flat_map(|(w, &bits)| super::oracle::bits_of(w, bits))
                .collect(),
            None if tag == 0 => (0..self.config.cpus).collect(),
            None => Vec::new(),
        }
    }
}

pub(super) fn pages(address: u64, stride: Stride, count: u32) -> impl Iterator<Item = u64> {
    (0..count as u64).map(move |i| address.wrapping_add(i << stride.shift()))
}
