//! Asynchronous operations of AArch64 and RISC-V: invalidations in progress, table writes that walkers need not see
//! yet, a root register written but not synchronised, and cached "not mapped" results.
//!
//! Owns the per-CPU record of outstanding operations, and how one invalidation is carried out on one CPU. `aarch64.rs`
//! and `riscv64.rs` decide when each is complete. On an x86 machine there is none of this: [`Hw::later`] is `None`.
//!
//! A table write that was not published does not order an invalidation: the processor may carry the invalidation out
//! first. The model reproduces the visible effect. An invalidation that follows an unpublished withdrawal takes effect,
//! half the time, when that store was issued, so that later fills stay. `unpublished.rs` models what walks of other
//! CPUs find meanwhile.

use super::invalidate::Of;
use super::ledger::Stamp;
use super::unpublished::{LONGEST_STORE, Unpublished};
use super::{Hw, mix};
use shootdown::{Broadcast, Local};
use std::collections::VecDeque;

/// A local invalidation in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) what: Local,
    /// Sequence number of the issue. Entries filled before it are dropped at the latest when it completes.
    pub(super) seq: u64,
    /// When it takes effect by itself, cycles.
    pub(super) due: u64,
}

/// A root written without the instruction that makes it effective.
#[derive(Debug, Clone, Copy)]
pub(super) struct WrittenRoot {
    pub(super) root: u32,
    pub(super) tag: u16,
    pub(super) space: u32,
}

/// An invalidation that the synchronisation did not wait for on one CPU (erratum).
#[derive(Debug, Clone, Copy)]
pub(super) struct Late {
    pub(super) cpu: u32,
    pub(super) what: Broadcast,
    pub(super) seq: u64,
    pub(super) due: u64,
}

/// Any invalidation, so that a repeated one can be recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Invalidation {
    Here(Local),
    Everywhere(Broadcast),
}

/// Publication state of a CPU's table writes towards some walkers.
#[derive(Debug, Clone, Copy, Default)]
struct Publication {
    /// The first withdrawal since it last published: sequence number and time of the store's issue.
    first: Option<(u64, u64)>,
    /// Sequence number when it last published.
    published: u64,
}

impl Publication {
    fn withdrew(&mut self, issued: Stamp) {
        if self.published < issued.seq {
            self.first.get_or_insert((issued.seq, issued.at));
        }
    }

    fn published_at(seq: u64) -> Self {
        Publication {
            first: None,
            published: seq,
        }
    }
}

/// A walk in progress when its root was replaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct OldRootWalk {
    pub(super) root: u32,
    pub(super) space: u32,
    pub(super) tag: u16,
    /// Sequence number of the replacement. The walk may have read any link that existed then.
    pub(super) since: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct LaterCpu {
    /// Writes not published to every walker.
    everywhere: Publication,
    /// Writes not published to its own walker.
    here: Publication,
    pub(super) local: Vec<Pending>,
    pub(super) root: Option<WrittenRoot>,
    /// Walks by replaced roots that no barrier has waited for.
    pub(super) old_root_walks: Vec<OldRootWalk>,
    /// Invalidations issued once, with the number of the next synchronisation; for processors that need each twice.
    recent: VecDeque<(Invalidation, u64)>,
    /// Its synchronisations so far.
    syncs: u64,
    /// Pages (number, tag) that it has cached as unmapped; oldest first.
    unmapped: VecDeque<(u64, u16)>,
}

/// The record of a machine that is not x86.
#[derive(Debug, Clone)]
pub(super) struct Later {
    pub(super) cpus: Vec<LaterCpu>,
    pub(super) late: Vec<Late>,
    /// Oldest first.
    pub(super) unpublished: Vec<Unpublished>,
}

/// Cached "not mapped" of one CPU.
const UNMAPPED: usize = 32;

/// Number of single invalidations of one CPU that are remembered. More never lie between one and its repetition.
const RECENT: usize = 1024;

/// Longest time until a local invalidation takes effect by itself, cycles. Far longer than any pipeline, since only the
/// barrier bounds it.
pub(super) const LONGEST_LOCAL: u64 = 300;

impl Later {
    pub(super) fn new(cpus: usize) -> Box<Later> {
        Box::new(Later {
            cpus: vec![LaterCpu::default(); cpus],
            late: Vec::new(),
            unpublished: Vec::new(),
        })
    }

    /// Whether the issuing CPU has not published the store to every walker; and whether not even to its own.
    pub(super) fn unpublished_by(&self, issued: Stamp) -> (bool, bool) {
        let cpu = self.cpus.get(issued.cpu as usize);
        let unpublished = |of: Publication| of.published < issued.seq;
        cpu.map_or((false, false), |cpu| {
            (unpublished(cpu.everywhere), unpublished(cpu.here))
        })
    }
}

impl Hw {
    /// A store took a translation, or a link, away.
    pub(super) fn withdrew(&mut self, issued: Stamp) {
        if let Some(later) = &mut self.later
            && let Some(cpu) = later.cpus.get_mut(issued.cpu as usize)
        {
            cpu.everywhere.withdrew(issued);
            cpu.here.withdrew(issued);
        }
    }

    /// Table writes of this CPU are ordered before its invalidations from here on, on every CPU.
    pub(super) fn published(&mut self, cpu: usize) {
        let seq = self.tick();
        if let Some(later) = &mut self.later {
            let publication = Publication::published_at(seq);
            (later.cpus[cpu].everywhere, later.cpus[cpu].here) = (publication, publication);
        }
        self.published_by(cpu);
    }

    /// The same, as far as its own walker and its local invalidations are concerned.
    pub(super) fn published_here(&mut self, cpu: usize) {
        let seq = self.tick();
        if let Some(later) = &mut self.later {
            later.cpus[cpu].here = Publication::published_at(seq);
        }
        self.published_by_to_itself(cpu);
    }

    /// The moment at which an invalidation took effect that the CPU carried out before the table writes that precede
    /// it: an invalidation on this CPU only, or on all.
    pub(super) fn overtakes(&mut self, cpu: usize, only_here: bool, now: u64) -> Option<u64> {
        let cpu = &self.later.as_ref()?.cpus[cpu];
        let (seq, at) = if only_here {
            cpu.here.first
        } else {
            cpu.everywhere.first
        }?;
        (now < at + LONGEST_STORE && self.random() & 1 == 1).then_some(seq)
    }

    /// The CPU takes an exception: its later invalidations cannot have begun before. This does not make its stores
    /// visible.
    pub(super) fn begins_anew(&mut self, cpu: usize) {
        if let Some(later) = &mut self.later {
            let cpu = &mut later.cpus[cpu];
            (cpu.everywhere.first, cpu.here.first) = (None, None);
        }
    }

    /// Issues a local invalidation that is complete at the next synchronisation of this CPU.
    pub(super) fn defer_local(&mut self, cpu: usize, what: Local, now: u64) {
        self.long_unpublished(now);
        if let Some(delayed_to) = self.overtakes(cpu, true, now) {
            return self.invalidate_on(cpu, what, delayed_to);
        }
        let seq = self.tick();
        let due = now + 1 + mix(self.config.seed ^ seq.wrapping_mul(0x1_0003)) % LONGEST_LOCAL;
        if let Some(later) = &mut self.later {
            later.cpus[cpu].local.push(Pending { what, seq, due });
        }
        self.cpus[cpu].next_due = 0;
    }

    /// Completes the local invalidations of this CPU.
    pub(super) fn complete_local(&mut self, cpu: usize) {
        let Some(later) = &mut self.later else { return };
        for op in std::mem::take(&mut later.cpus[cpu].local) {
            self.invalidate_on(cpu, op.what, op.seq);
            self.fence_ends_walks(cpu, op.what);
        }
    }

    /// Carries out due invalidations on a CPU; returns the next time to check.
    pub(super) fn carry_out_later(&mut self, cpu: usize, now: u64) -> u64 {
        let Some(later) = &mut self.later else { return u64::MAX };
        let mut next = u64::MAX;
        let mut due = Vec::new();
        later.cpus[cpu].local.retain(|op| {
            let keep = op.due > now;
            if keep {
                next = next.min(op.due);
            } else {
                due.push(op.what);
            }
            keep
        });
        let mut arrived = Vec::new();
        later.late.retain(|op| {
            let keep = op.cpu as usize != cpu || op.due > now;
            if !keep {
                arrived.push(*op);
            } else if op.cpu as usize == cpu {
                next = next.min(op.due);
            }
            keep
        });
        for what in due {
            self.invalidate_on(cpu, what, u64::MAX);
        }
        for op in arrived {
            self.broadcast_on(cpu, op.what, op.seq);
        }
        if self.later.as_ref().is_some_and(|later| later.cpus[cpu].root.is_some()) {
            if self.random() & 1 == 1 {
                self.root_takes_effect(cpu, now);
            } else {
                next = now + 1;
            }
        }
        next
    }

    /// An invalidation that missed its synchronisation takes effect on this CPU now.
    pub(super) fn late_arrives(&mut self, cpu: usize) {
        let Some(later) = &mut self.later else { return };
        if later.late.is_empty() {
            return;
        }
        let (arrived, rest) = later.late.drain(..).partition(|op| op.cpu as usize == cpu);
        later.late = rest;
        let arrived: Vec<Late> = arrived;
        for op in arrived {
            self.broadcast_on(cpu, op.what, op.seq);
        }
    }

    /// From here on the root written last is in use.
    pub(super) fn root_takes_effect(&mut self, cpu: usize, now: u64) {
        let written = self.later.as_mut().and_then(|later| later.cpus[cpu].root.take());
        if let Some(WrittenRoot { root, tag, space }) = written {
            let _ = self.load_root(cpu, root, tag, true, space, now);
        }
    }

    /// Whether a CPU issues the same invalidation for the second time, with a synchronisation between; records the
    /// first.
    pub(super) fn is_repeated(&mut self, cpu: usize, what: Invalidation) -> bool {
        let Some(later) = &mut self.later else { return false };
        let cpu = &mut later.cpus[cpu];
        let earlier = cpu
            .recent
            .iter()
            .position(|&(earlier, syncs)| earlier == what && syncs < cpu.syncs);
        match earlier {
            Some(index) => {
                cpu.recent.remove(index);
            }
            None => {
                if cpu.recent.len() == RECENT {
                    cpu.recent.pop_front();
                }
                cpu.recent.push_back((what, cpu.syncs));
            }
        }
        earlier.is_some()
    }

    /// A synchronisation of this CPU.
    pub(super) fn synchronised(&mut self, cpu: usize) {
        if let Some(later) = &mut self.later {
            later.cpus[cpu].syncs += 1;
        }
    }

    /// One local invalidation takes effect. Entries filled before `before` are dropped, all with `u64::MAX`.
    pub(super) fn invalidate_on(&mut self, cpu: usize, what: Local, before: u64) {
        let excluded = self.spare_unpublished(cpu);
        self.invalidate_all_of(cpu, what, before);
        self.fill_again(excluded);
    }

    fn invalidate_all_of(&mut self, cpu: usize, what: Local, before: u64) {
        let riscv = matches!(self.config.isa, super::Isa::Riscv64(_));
        let all = before == u64::MAX;
        match what {
            Local::Page {
                address,
                tag,
                leaf_only,
                ..
            } => {
                let of = if riscv { Of::Tag(tag.0) } else { Of::TagAndGlobal(tag.0) };
                self.drop_page(cpu, address, of, before);
                // RISC-V: with an address only leaves are dropped.
                if !leaf_only && !riscv {
                    self.drop_links_for(cpu, address, Some(tag.0), before);
                }
                self.forget_unmapped(cpu, |page, of| page == address >> 12 && of == tag.0);
            }
            Local::Tag(tag) => {
                let seq = if all { self.tick() } else { before };
                let state = self.cpus[cpu].tag_state_mut(tag.0);
                state.flushed = state.flushed.max(seq);
                self.refresh(cpu);
                self.forget_unmapped(cpu, |_, of| of == tag.0);
            }
            Local::Kernel { address, .. } => {
                self.drop_page(cpu, address, Of::Any, before);
                self.forget_unmapped(cpu, |page, _| page == address >> 12);
            }
            Local::All => {
                let seq = if all { self.tick() } else { before };
                let c = &mut self.cpus[cpu];
                c.flushed_all = c.flushed_all.max(seq);
                c.flushed_links = c.flushed_links.max(seq);
                self.refresh(cpu);
                self.forget_unmapped(cpu, |_, _| true);
            }
        }
    }

    /// One broadcast takes effect on one CPU: entries filled before `before` are dropped.
    pub(super) fn broadcast_on(&mut self, cpu: usize, what: Broadcast, before: u64) {
        match what {
            Broadcast::Pages {
                address,
                stride,
                count,
                tag,
                leaf_only,
            } => {
                for address in super::broadcast::pages(address, stride, count) {
                    let what = Local::Page {
                        address,
                        stride,
                        tag,
                        leaf_only,
                    };
                    self.invalidate_on(cpu, what, before);
                }
            }
            Broadcast::Kernel {
                address,
                stride,
                count,
                leaf_only,
            } => {
                for address in super::broadcast::pages(address, stride, count) {
                    self.invalidate_on(cpu, Local::Kernel { address, stride }, before);
                    if !leaf_only && !matches!(self.config.isa, super::Isa::Riscv64(_)) {
                        self.drop_links_for(cpu, address, None, before);
                    }
                }
            }
            Broadcast::Tag(tag) => self.invalidate_on(cpu, Local::Tag(tag), before),
            Broadcast::NonGlobal => {
                let seq = if before == u64::MAX { self.tick() } else { before };
                let c = &mut self.cpus[cpu];
                c.flushed_nonglobal = c.flushed_nonglobal.max(seq);
                self.refresh(cpu);
                self.forget_unmapped(cpu, |_, _| true);
            }
            Broadcast::All => self.invalidate_on(cpu, Local::All, before),
        }
    }

    /// Whether this CPU has cached that the page is not mapped.
    #[inline]
    pub(super) fn knows_unmapped(&self, cpu: usize, va: u64) -> bool {
        self.later.as_ref().is_some_and(|later| {
            let page = (va >> 12, self.cpus[cpu].tag);
            later.cpus[cpu].unmapped.contains(&page)
        })
    }

    /// The walker found nothing: a RISC-V hart may cache that.
    #[inline]
    pub(super) fn found_unmapped(&mut self, cpu: usize, va: u64) {
        if self.later.is_none() || !matches!(self.config.isa, super::Isa::Riscv64(_)) {
            return;
        }
        let page = (va >> 12, self.cpus[cpu].tag);
        if self.random() & 1 == 1
            && let Some(later) = &mut self.later
        {
            let unmapped = &mut later.cpus[cpu].unmapped;
            if unmapped.len() == UNMAPPED {
                unmapped.pop_front();
            }
            unmapped.push_back(page);
        }
    }

    fn forget_unmapped(&mut self, cpu: usize, which: impl Fn(u64, u16) -> bool) {
        if let Some(later) = &mut self.later {
            later.cpus[cpu].unmapped.retain(|&(page, tag)| !which(page, tag));
        }
    }
}
