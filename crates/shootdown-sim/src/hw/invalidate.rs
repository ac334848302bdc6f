//! Local invalidation with x86 semantics (and Arm's leaf-only form), and the ideal invalidation that costs nothing.
//!
//! Owns which entries an operation removes. `cpu.rs` decides which of the rest are live.

use super::cpu::HardwareFault;
use super::tlb::{self, GLOBAL, key_tag};
use super::{Defect, Hw};
use shootdown::Local;
use shootdown::Stride;
use std::ops::Range;

/// Which entries of a page are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Entries of this tag, except global ones.
    Tag(u16),
    /// Entries of this tag, and global ones.
    TagAndGlobal(u16),
    /// All.
    Any,
}

const SIZES: [Stride; 3] = [Stride::Size4K, Stride::Size2M, Stride::Size1G];

impl Hw {
    /// Cost of issuing a local invalidation that is not complete on return (AArch64, RISC-V). Checks its tag.
    pub(super) fn cost_of(&self, what: Local) -> Result<u32, HardwareFault> {
        let costs = &self.config.costs;
        Ok(match what {
            Local::Page { tag, .. } => {
                self.check_tag(tag.0)?;
                costs.invlpg
            }
            Local::Tag(tag) => {
                self.check_tag(tag.0)?;
                costs.invpcid_tag
            }
            Local::Kernel { .. } => costs.invlpg,
            Local::All => costs.invpcid_all,
        })
    }

    /// Carries out a local invalidation on `cpu`; complete on return. Returns its cost in cycles.
    ///
    /// Entries of every size for the page that holds the address are dropped, but of no other page. INVLPG without TCE
    /// also drops *every* paging-structure entry of the loaded tag. With TCE, and for a tag that is not loaded
    /// (INVPCID), only those on the path are dropped.
    ///
    /// # Errors
    /// [`HardwareFault::GeneralProtection`] for a tag the machine does not have; nothing is invalidated.
    pub fn local(&mut self, cpu: usize, what: Local, now: u64) -> Result<u32, HardwareFault> {
        let costs = self.config.costs;
        self.look_at_broadcasts(cpu, now);
        match what {
            Local::Page {
                address,
                tag,
                leaf_only,
                ..
            } => {
                self.check_tag(tag.0)?;
                let loaded = self.cpus[cpu].tag == tag.0;
                let of = if self.has(Defect::InvlpgReachesAllTags) {
                    Of::Any
                } else if loaded && !self.has(Defect::InvlpgSparesGlobal) {
                    Of::TagAndGlobal(tag.0)
                } else {
                    Of::Tag(tag.0)
                };
                if self.has(Defect::InvlpgReachesAllCpus) {
                    for other in 0..self.config.cpus {
                        self.drop_page(other, address, of, u64::MAX);
                    }
                }
                self.drop_page(cpu, address, of, u64::MAX);
                let links = !(leaf_only && self.config.leaf_only_keeps_psc);
                if links && loaded {
                    self.drop_links_for(cpu, address, Some(tag.0), u64::MAX);
                } else if links {
                    self.drop_links_on_path(cpu, address, Some(tag.0), u64::MAX);
                }
                Ok(if loaded { costs.invlpg } else { costs.invpcid_address })
            }
            Local::Tag(tag) => {
                self.check_tag(tag.0)?;
                let seq = self.tick();
                self.cpus[cpu].tag_state_mut(tag.0).flushed = seq;
                if self.has(Defect::TagFlushTakesGlobal) {
                    self.cpus[cpu].flushed_all = seq;
                }
                self.refresh(cpu);
                Ok(costs.invpcid_tag)
            }
            Local::Kernel { address, .. } => {
                // INVLPG: the loaded tag and global entries; links of the loaded tag only.
                let tag = self.cpus[cpu].tag;
                self.drop_page(cpu, address, Of::TagAndGlobal(tag), u64::MAX);
                self.drop_links_for(cpu, address, Some(tag), u64::MAX);
                Ok(costs.invlpg)
            }
            Local::All => {
                let seq = self.tick();
                self.cpus[cpu].flushed_all = seq;
                self.cpus[cpu].flushed_links = seq;
                self.refresh(cpu);
                Ok(costs.invpcid_all)
            }
        }
    }

    /// Drops the entries for the page at `va`, of every size, filled before `before`. Returns how many.
    pub(super) fn drop_page(&mut self, cpu: usize, va: u64, of: Of, before: u64) -> u32 {
        let mut dropped = 0;
        for size in SIZES {
            if size != Stride::Size4K && !self.tlb.has_large(cpu) {
                break;
            }
            let key = tlb::key(va, size, 0);
            let mut way = 0;
            while let Some((found, at)) = self.tlb.find_page(cpu, size, key, way) {
                way = found + 1;
                let key = self.tlb.key(at);
                let global = key & GLOBAL != 0;
                let chosen = match of {
                    Of::Tag(tag) => !global && key_tag(key) == tag,
                    Of::TagAndGlobal(tag) => global || key_tag(key) == tag,
                    Of::Any => true,
                };
                if chosen && self.tlb.body(at).fill < before {
                    self.drop_entry(cpu, at);
                    dropped += 1;
                }
            }
        }
        dropped
    }

    /// Drops the links that a page invalidation concerns, filled before `before`, under one tag or all.
    pub(super) fn drop_links_for(&mut self, cpu: usize, va: u64, tag: Option<u16>, before: u64) {
        if self.has(Defect::InvlpgSparesLinks) {
            return;
        }
        if !self.config.tce || self.has(Defect::TceIgnored) {
            let seq = self.tick().min(before);
            let c = &mut self.cpus[cpu];
            match tag {
                Some(tag) => {
                    let state = c.tag_state_mut(tag);
                    state.psc_flushed = state.psc_flushed.max(seq);
                    if tag == c.tag {
                        c.floor_links = c.floor_links.max(seq);
                    }
                }
                None => {
                    c.flushed_links = c.flushed_links.max(seq);
                    c.floor_links = c.floor_links.max(seq);
                }
            }
            return;
        }
        self.drop_links_on_path(cpu, va, tag, before);
    }

    /// Drops the links on the way to `va`, filled before `before`, under one tag or all.
    fn drop_links_on_path(&mut self, cpu: usize, va: u64, tag: Option<u16>, before: u64) {
        if self.has(Defect::InvlpgSparesLinks) {
            return;
        }
        let drop_old = |hw: &mut Self, position| {
            if hw.psc.link(position).is_some_and(|link| link.fill < before) {
                hw.drop_link(position);
            }
        };
        match tag {
            Some(tag) => {
                for level in 1..=3 {
                    if let Some(position) = self.psc.find(cpu, level, va, tag) {
                        drop_old(self, position);
                    }
                }
            }
            None => {
                for position in self.psc.positions(cpu) {
                    if self.psc.spans(position, va) {
                        drop_old(self, position);
                    }
                }
            }
        }
    }

    /// Removes every entry and link for the bytes `range` of a space from every CPU, at once and for free: the bound
    /// that no real machine reaches (design `ideal`). Page sizes and tags do not matter. `cpu` is searched first, which
    /// only saves host time.
    pub fn perfect_invalidate(&mut self, cpu: usize, space: u32, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let seq = self.tick();
        self.ledger.spaces[space as usize].psc_floor = seq;
        let (first, last) = (range.start, range.end - 1);
        for level in 1..=self.ledger.spaces[space as usize].levels {
            let page = super::psc::span_shift(level as u32 - 1);
            for chunk in self.ledger.chunks_in(space, level, first, last) {
                if !self.ledger.chunk_has_copies(chunk) {
                    continue;
                }
                let base = self.ledger.chunks[chunk as usize].base;
                let from = (first.saturating_sub(base) >> page) as u32;
                let to = ((last - base) >> page).min(511) as u32;
                for slot in chunk * 512 + from..=chunk * 512 + to {
                    if self.ledger.slots[slot as usize].copies > 0 {
                        self.drop_slot(slot, Of::Any, u64::MAX, cpu);
                    }
                }
            }
        }
    }

    /// [`perfect_invalidate`](Hw::perfect_invalidate) for the whole of a space.
    pub fn perfect_invalidate_space(&mut self, space: u32) {
        self.perfect_invalidate(0, space, 0..u64::MAX);
    }

    /// Drops the entries of a slot's page on every CPU that may hold some, starting with `first`, filled before
    /// `before`.
    pub(super) fn drop_slot(&mut self, slot: u32, of: Of, before: u64, first: usize) {
        let va = self.ledger.va(slot);
        let space = self.ledger.chunks[slot as usize >> 9].space;
        self.drop_page(first, va, of, before);
        for word in 0..self.cpus.len().div_ceil(64) {
            for cpu in super::oracle::bits_of(word, self.cpus_word(space, word)) {
                if self.ledger.slots[slot as usize].copies == 0 {
                    return;
                }
                self.drop_page(cpu, va, of, before);
            }
        }
    }
}
