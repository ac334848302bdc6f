//! Fills from withdrawn tables while a broadcast is in progress, and broadcasts that reached a CPU under another tag.
//!
//! A broadcast takes effect on each CPU at its own time. It then drops the named entries, filled before its issue or
//! after. An entry filled later from linked tables was valid then and may stay. An entry filled through a link to an
//! unlinked page-table page was not: it is recorded here, and dropped when the operation is complete. Owns that list.
//! While no broadcast is in progress it is empty, and costs one compare per filled link.

use super::broadcast::{Outstanding, pages};
use super::invalidate::Of;
use super::psc::span_shift;
use super::tlb::{self, GLOBAL, key_tag};
use super::walk::Leaf;
use super::{Defect, Hw};
use shootdown::{Broadcast, Stride};

/// An entry or a link filled through a page-table page that was not linked where the walk found it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Withdrawn {
    cpu: u32,
    /// Sequence number of the fill: names it.
    fill: u64,
    /// Time of the fill, cycles.
    at: u64,
    va: u64,
    tag: u16,
    cached: Cached,
}

#[derive(Debug, Clone, Copy)]
enum Cached {
    Page { level: u32, global: bool },
    Link { level: u32 },
}

impl Withdrawn {
    /// Whether the operation names it. With `tce` a page operation names only the links on the way to its addresses.
    fn is_named_by(&self, what: Broadcast, tce: bool) -> bool {
        let near = |shift: u32, address, stride, count| {
            pages(address, stride, count).any(|page| (page ^ self.va) & tlb::VA_MASK & (!0 << shift) == 0)
        };
        match (what, self.cached) {
            (Broadcast::All, _) => true,
            (Broadcast::NonGlobal, Cached::Page { global, .. }) => !global,
            (Broadcast::NonGlobal, Cached::Link { .. }) => true,
            (Broadcast::Tag(tag), Cached::Page { global, .. }) => tag.0 == self.tag && !global,
            (Broadcast::Tag(tag), Cached::Link { .. }) => tag.0 == self.tag,
            (
                Broadcast::Kernel {
                    address, stride, count, ..
                },
                Cached::Page { level, .. },
            ) => near(span_shift(level - 1), address, stride, count),
            (
                Broadcast::Kernel {
                    address,
                    stride,
                    count,
                    leaf_only,
                },
                Cached::Link { level },
            ) => !leaf_only && (!tce || near(span_shift(level), address, stride, count)),
            (
                Broadcast::Pages {
                    address,
                    stride,
                    count,
                    tag,
                    leaf_only,
                },
                cached,
            ) => {
                tag.0 == self.tag
                    && match cached {
                        Cached::Page { level, global } => {
                            !global && near(span_shift(level - 1), address, stride, count)
                        }
                        Cached::Link { level } => {
                            !leaf_only && (!tce || near(span_shift(level), address, stride, count))
                        }
                    }
            }
        }
    }
}

impl Hw {
    /// Notes a translation filled through a page-table page that is not linked.
    pub(super) fn note_withdrawn_page(&mut self, cpu: usize, va: u64, leaf: &Leaf, fill: u64, now: u64) {
        let (level, global) = (leaf.level, leaf.entry.has(super::Entry::GLOBAL));
        self.note_withdrawn(cpu, va, Cached::Page { level, global }, fill, now);
    }

    /// Notes a link to a table of `level` filled through a page-table page that is not linked.
    #[cold]
    pub(super) fn note_withdrawn_link(&mut self, cpu: usize, va: u64, level: u32, fill: u64, now: u64) {
        self.note_withdrawn(cpu, va, Cached::Link { level }, fill, now);
    }

    fn note_withdrawn(&mut self, cpu: usize, va: u64, cached: Cached, fill: u64, now: u64) {
        if self.outstanding.is_empty() {
            return;
        }
        let tag = self.cpus[cpu].tag;
        self.in_flight.push(Withdrawn {
            cpu: cpu as u32,
            fill,
            at: now,
            va,
            tag,
            cached,
        });
    }

    /// An operation, taken from the list, is complete: it has taken effect on every CPU except the one spared by an
    /// erratum.
    pub(super) fn complete_withdrawn(&mut self, op: Outstanding) {
        if self.in_flight.is_empty() || self.has(Defect::SyncByIssueOnly) {
            return;
        }
        self.drop_withdrawn(op, None);
        match self.outstanding.front().map(|oldest| oldest.seq) {
            Some(oldest) => self.in_flight.retain(|w| w.fill > oldest),
            None => self.in_flight.clear(),
        }
    }

    /// Drops fills from withdrawn tables between the issue and the time at which the operation took effect on that CPU.
    fn drop_withdrawn(&mut self, op: Outstanding, only: Option<usize>) {
        for i in 0..self.in_flight.len() {
            let w = self.in_flight[i];
            let cpu = w.cpu as usize;
            if w.fill > op.seq
                && op.excluded != w.cpu
                && only.is_none_or(|only| only == cpu)
                && w.at < self.due(&op, cpu)
                && w.is_named_by(op.what, self.config.tce)
            {
                self.drop_filled(cpu, &w);
            }
        }
    }

    fn drop_filled(&mut self, cpu: usize, w: &Withdrawn) {
        match w.cached {
            Cached::Link { level } => {
                if let Some(position) = self.psc.find(cpu, level, w.va, w.tag)
                    && self.psc.link(position).is_some_and(|link| link.fill == w.fill)
                {
                    self.drop_link(position);
                }
            }
            Cached::Page { level, global } => {
                let size = [Stride::Size4K, Stride::Size2M, Stride::Size1G][level as usize - 1];
                let key = tlb::key(w.va, size, 0);
                let mut way = 0;
                while let Some((found, at)) = self.tlb.find_page(cpu, size, key, way) {
                    way = found + 1;
                    let key = self.tlb.key(at);
                    let same = (key & GLOBAL != 0) == global && (global || key_tag(key) == w.tag);
                    if same && self.tlb.body(at).fill == w.fill {
                        self.drop_entry(cpu, at);
                    }
                }
            }
        }
    }

    /// A tag is loaded again: operations on it that reached the CPU while it was not loaded take effect now. Fills
    /// under it since their issue stay, except those from withdrawn tables before the operations took effect.
    pub(super) fn reached_while_away(&mut self, cpu: usize) {
        let (tag, checked) = (self.cpus[cpu].tag, self.cpus[cpu].checked);
        for i in 0..self.outstanding.len() {
            let op = self.outstanding[i];
            if op.excluded == cpu as u32 || self.due(&op, cpu) > checked {
                continue;
            }
            match op.what {
                Broadcast::Tag(of) if of.0 == tag => {
                    let state = self.cpus[cpu].tag_state_mut(tag);
                    state.flushed = state.flushed.max(op.seq);
                }
                Broadcast::Pages {
                    address,
                    stride,
                    count,
                    tag: of,
                    leaf_only,
                } if of.0 == tag => {
                    for page in pages(address, stride, count) {
                        self.drop_page(cpu, page, Of::Tag(tag), op.seq);
                        if !leaf_only {
                            self.drop_links_for(cpu, page, Some(tag), op.seq);
                        }
                    }
                }
                _ => continue,
            }
            self.drop_withdrawn(op, Some(cpu));
        }
    }
}
