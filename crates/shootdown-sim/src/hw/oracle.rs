//! C1, C2 and C4 of translations, checked exactly: at every access, completion and catch-up. Freeing is in
//! `freeing.rs`.
//!
//! A cached translation may be used while the tables hold it (or more), and after that until a request that began after
//! the store was *issued* has completed. An entry that its CPU cannot use (lazy, offline, other tag loaded, in a
//! handler that has answered early) is tolerated, and checked again by [`Hw::caught_up`] or [`Hw::came_online`]. Where
//! the kept history is too short, only a request binds that began after the page's last withdrawal was visible. In
//! doubt the oracle stays silent: it never reports an allowed use.

use super::cpu::Reason;
use super::ledger::{Completion, Record, Stamp};
use super::psc::span_shift;
use super::tlb::{At, Body, GLOBAL, Tlb, key_tag};
use super::violation::Rule;
use super::{Defect, Entry, Hw, is_kernel};
use shootdown::Stride;
use std::ops::Range;

impl Hw {
    /// A flush request begins: after its entry writes were issued, before any other action of the flush.
    pub fn request_begins(&self, cpu: usize, now: u64) -> Stamp {
        Stamp {
            seq: self.seq,
            at: now,
            cpu: cpu as u32,
        }
    }

    /// The request that began at `stamp` for the bytes `range` of `space` (0: the kernel's) is complete: every
    /// withdrawal in the range issued before it is binding from here on, and all TLBs are checked for it.
    pub fn completed(&mut self, space: u32, range: Range<u64>, stamp: Stamp, cpu: usize, now: u64) {
        if range.is_empty() {
            return;
        }
        let (first, last) = (range.start, range.end - 1);
        self.ledger.complete(Completion {
            space,
            first,
            last,
            begun: stamp,
            cpu: cpu as u32,
            at: now,
        });
        for level in 1..=self.ledger.spaces[space as usize].levels {
            let span = span_shift(level as u32);
            if first >> span == last >> span {
                if let Some(chunk) = self.ledger.find_chunk(space, level, first) {
                    self.completed_in(chunk, first, last, stamp, cpu, now);
                }
            } else {
                for chunk in self.ledger.chunks_in(space, level, first, last) {
                    self.completed_in(chunk, first, last, stamp, cpu, now);
                }
            }
        }
    }

    fn completed_in(&mut self, chunk: u32, first: u64, last: u64, stamp: Stamp, cpu: usize, now: u64) {
        let c = self.ledger.chunks[chunk as usize];
        let page = span_shift(c.level as u32 - 1);
        let from = first.saturating_sub(c.base) >> page;
        let to = ((last - c.base) >> page).min(511);
        let before = c.enforced.max(self.ledger.spaces[c.space as usize].enforced);
        if from == 0 && to == 511 {
            let c = &mut self.ledger.chunks[chunk as usize];
            c.enforced = c.enforced.max(stamp.seq);
            if c.withdrawn <= before {
                return;
            }
        }
        for slot in chunk * 512 + from as u32..=chunk * 512 + to as u32 {
            let s = &mut self.ledger.slots[slot as usize];
            let before = before.max(s.enforced);
            s.enforced = s.enforced.max(stamp.seq);
            if s.copies > 0 && s.withdrawn > before {
                self.examine_slot(slot, cpu, Reason::Stale, now);
            }
        }
    }

    /// Like [`completed`](Hw::completed), for the whole of a space.
    pub fn completed_space(&mut self, space: u32, stamp: Stamp, cpu: usize, now: u64) {
        let s = &mut self.ledger.spaces[space as usize];
        let before = s.enforced;
        s.enforced = s.enforced.max(stamp.seq);
        let levels = s.levels;
        self.ledger.complete(Completion {
            space,
            first: 0,
            last: u64::MAX,
            begun: stamp,
            cpu: cpu as u32,
            at: now,
        });
        for level in 1..=levels {
            for chunk in self.ledger.chunks_in(space, level, 0, u64::MAX) {
                let c = self.ledger.chunks[chunk as usize];
                if !self.ledger.chunk_has_copies(chunk) || c.withdrawn <= before.max(c.enforced) {
                    continue;
                }
                for slot in chunk * 512..(chunk + 1) * 512 {
                    let s = &self.ledger.slots[slot as usize];
                    if s.copies > 0 && s.withdrawn > before.max(s.enforced) {
                        self.examine_slot(slot, cpu, Reason::Stale, now);
                    }
                }
            }
        }
    }

    /// The withdrawal of a cached translation that the tables no longer hold.
    pub(super) fn withdrawal_of(&self, body: &Body) -> Option<&Record> {
        let cached = body.entry();
        if Entry(self.ledger.slots[body.slot as usize].held).covers(cached) {
            return None;
        }
        let mut newest = None;
        for record in self.ledger.records(body.slot) {
            if record.old.covers(cached) {
                return Some(record);
            }
            newest.get_or_insert(record);
        }
        // Filled from a table that was not linked: never held here, at best before the oldest kept record. Or the
        // history is too short. The newest withdrawal is the latest that applies.
        newest
    }

    /// Whether using this entry is forbidden by a completed request.
    pub(super) fn is_stale(&self, body: &Body) -> bool {
        let slot = &self.ledger.slots[body.slot as usize];
        let suspect = body.bits & super::tlb::SUSPECT != 0;
        if !(body.fill < slot.withdrawn || suspect) || Entry(slot.held).covers(body.entry()) {
            return false;
        }
        let enforced = self.ledger.enforced(body.slot);
        match self.withdrawal_of(body) {
            Some(w) => w.issued.seq <= enforced || self.has(Defect::OracleBindsAtOnce),
            // The records are gone: the withdrawal was issued before the last of them was visible.
            None if slot.withdrawn != 0 => slot.withdrawn <= enforced,
            // Never held here: filled through a link that outlived its table's place.
            None => {
                let unlinked = self.ledger.chunks[body.slot as usize >> 9].unlinked;
                suspect && unlinked != 0 && unlinked <= enforced
            }
        }
    }

    fn frame_was_freed(&self, body: &Body) -> bool {
        self.frames.get(body.frame).life as u16 != (body.bits >> 16) as u16
    }

    /// Checks an entry that is used; drops it and returns `false` if its use is forbidden.
    pub(super) fn check_use(&mut self, cpu: usize, va: u64, at: At, now: u64) -> bool {
        if self.has(Defect::OracleIgnoresUse) {
            return true;
        }
        let (key, body) = (self.tlb.key(at), self.tlb.body(at));
        let rule = if body.space != 0 && body.space != self.cpus[cpu].space {
            Rule::C4
        } else if self.is_stale(&body) {
            Rule::C1
        } else if self.frame_was_freed(&body) {
            Rule::C2
        } else {
            return true;
        };
        self.report(rule, cpu, va, now, |hw| {
            let mut lines = hw.describe_entry(cpu, key, &body);
            lines.push(format!("used:      at {now}, by an access of CPU {cpu}"));
            lines
        });
        self.drop_entry(cpu, at);
        false
    }

    /// Checks every TLB entry filled from a slot: first those of `first`, then of the other CPUs that may have one,
    /// until all counted copies were seen.
    pub(super) fn examine_slot(&mut self, slot: u32, first: usize, reason: Reason, now: u64) {
        let chunk = self.ledger.chunks[slot as usize >> 9];
        let mut left = self.ledger.slots[slot as usize].copies;
        self.examine_slot_on(slot, first, reason, &mut left, now);
        for word in 0..self.cpus.len().div_ceil(64) {
            let bits = self.cpus_word(chunk.space, word);
            for cpu in bits_of(word, bits).filter(|&cpu| cpu != first) {
                if left == 0 {
                    return;
                }
                self.examine_slot_on(slot, cpu, reason, &mut left, now);
            }
        }
    }

    /// A word of the set of CPUs that may hold entries of a space: those that ever loaded it; for the kernel's space,
    /// all.
    pub(super) fn cpus_word(&self, space: u32, word: usize) -> u64 {
        let cpus = self.cpus.len();
        let existing = if (word + 1) * 64 <= cpus {
            u64::MAX
        } else {
            (1 << (cpus % 64)) - 1
        };
        match space {
            0 => existing,
            _ => self.ledger.spaces[space as usize].cpus.get(word).copied().unwrap_or(0),
        }
    }

    fn examine_slot_on(&mut self, slot: u32, cpu: usize, reason: Reason, left: &mut u32, now: u64) {
        let level = self.ledger.chunks[slot as usize >> 9].level;
        let size = [Stride::Size4K, Stride::Size2M, Stride::Size1G][level as usize - 1];
        let key = super::tlb::key(self.ledger.va(slot), size, 0);
        let mut way = 0;
        while let Some((found, at)) = self.tlb.find_page(cpu, size, key, way) {
            way = found + 1;
            if self.tlb.body(at).slot == slot {
                *left = left.saturating_sub(1);
                self.examine_entry(cpu, at, reason, now);
            }
        }
    }

    /// Checks one entry: a dead one is dropped, a forbidden one is reported if the CPU can use it and remembered if
    /// not.
    pub(super) fn examine_entry(&mut self, cpu: usize, at: At, reason: Reason, now: u64) {
        let (key, body) = (self.tlb.key(at), self.tlb.body(at));
        if !self.is_live(cpu, key, &body) {
            self.drop_entry(cpu, at);
            return;
        }
        let (rule, bad) = match reason {
            Reason::Stale => (Rule::C1, self.is_stale(&body)),
            Reason::Freed(frame, life) => (Rule::C2, body.frame == frame && (body.bits >> 16) as u16 == life as u16),
        };
        if !bad {
            return;
        }
        let (va, _) = Tlb::page_of(key);
        if !self.is_usable(cpu, key, va) {
            let (seq, c) = (self.seq, &mut self.cpus[cpu]);
            if key & GLOBAL != 0 {
                c.global_tolerated = seq;
            } else {
                c.tag_state_mut(key_tag(key)).tolerated = seq;
            }
            return;
        }
        self.report(rule, cpu, va, now, |hw| {
            let mut lines = hw.describe_entry(cpu, key, &body);
            lines.push(match reason {
                Reason::Stale => format!("still usable on CPU {cpu} at {now}"),
                Reason::Freed(frame, _) => format!("frame {frame} is freed at {now} while CPU {cpu} can still use it"),
            });
            lines
        });
        self.drop_entry(cpu, at);
    }

    /// Whether the CPU could use the entry in its present state.
    fn is_usable(&self, cpu: usize, key: u64, va: u64) -> bool {
        let c = &self.cpus[cpu];
        let global = key & GLOBAL != 0;
        let reachable = global || (key_tag(key) == c.tag && !c.settling);
        c.online
            && !c.booting
            && !c.descheduled
            && reachable
            && (is_kernel(va) || !(c.lazy || c.settling || c.answering))
    }

    /// The kernel has finished a switch, or the end of lazy TLB mode, on this CPU: from here on it may touch user
    /// addresses (unless lazy). A stale entry that was tolerated under the loaded tag and is still there is a
    /// violation.
    pub fn caught_up(&mut self, cpu: usize, now: u64) {
        self.look_at_broadcasts(cpu, now);
        let c = &mut self.cpus[cpu];
        (c.settling, c.answering) = (false, false);
        let tag = c.tag;
        // A mark older than the last flush of the tag concerns entries that no longer exist.
        let marked = c.tag_state(tag).tolerated > c.floor || c.global_tolerated > c.floor_global;
        if marked && !self.has(Defect::OracleForgetsTolerated) {
            self.scan(cpu, Some(tag), now);
            let c = &mut self.cpus[cpu];
            if !c.lazy {
                c.global_tolerated = 0;
                c.tag_state_mut(tag).tolerated = 0;
            }
        }
    }

    /// The CPU has done what C5 requires before it uses any mapping: no stale entry may survive, global entries and
    /// links to freed tables included. Also ends the grace of [`set_online`](Hw::set_online).
    pub fn came_online(&mut self, cpu: usize, now: u64) {
        let c = &mut self.cpus[cpu];
        (c.online, c.booting) = (true, false);
        self.scan(cpu, None, now);
        self.check_all_links(cpu, None, now);
    }

    /// Checks every live entry of a CPU, or only those that a tag reaches.
    fn scan(&mut self, cpu: usize, tag: Option<u16>, now: u64) {
        for at in self.tlb.positions(cpu) {
            let key = self.tlb.key(at);
            if key == 0 || tag.is_some_and(|tag| key & GLOBAL == 0 && key_tag(key) != tag) {
                continue;
            }
            let body = self.tlb.body(at);
            if !self.is_live(cpu, key, &body) {
                self.drop_entry(cpu, at);
                continue;
            }
            let (va, _) = Tlb::page_of(key);
            if tag.is_some() && !self.is_usable(cpu, key, va) {
                continue; // A CPU in lazy TLB mode: user addresses are checked later.
            }
            let rule = if self.is_stale(&body) {
                Rule::C1
            } else if self.frame_was_freed(&body) {
                Rule::C2
            } else if tag.is_some() && body.space != 0 && body.space != self.cpus[cpu].space {
                Rule::C4
            } else {
                continue;
            };
            self.report(rule, cpu, va, now, |hw| {
                let mut lines = hw.describe_entry(cpu, key, &body);
                lines.push(match tag {
                    Some(tag) => format!("CPU {cpu} can use tag {tag} again from {now} on, without having caught up"),
                    None => format!("CPU {cpu} is online from {now} on, without having flushed it"),
                });
                lines
            });
            self.drop_entry(cpu, at);
        }
    }
}

/// The numbers of the bits set in a word of a bit set.
pub(super) fn bits_of(word: usize, mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let bit = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        Some(word * 64 + bit)
    })
}
