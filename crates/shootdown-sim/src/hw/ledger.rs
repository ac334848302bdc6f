//! The oracle's ledger: for every page of every space, which translation the tables hold, when they last withdrew one,
//! and up to which moment completed requests have made withdrawals binding.
//!
//! Owns history only. It is keyed by (space, page, page size), not by where an entry is stored, so that moving,
//! freeing and reusing page-table pages cannot confuse it. It never touches a cache.

use super::entry::Entry;
use std::collections::{BTreeMap, VecDeque};

/// A moment in the machine's order of events, taken by a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    pub(super) seq: u64,
    pub(super) at: u64,
    pub(super) cpu: u32,
}

/// The translation of one page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slot {
    /// Content of linked tables, visible stores only.
    pub(super) held: u64,
    /// When a translation was last withdrawn (visible), 0 never.
    pub(super) withdrawn: u64,
    /// Withdrawals issued up to here are binding.
    pub(super) enforced: u64,
    /// The newest record about this slot.
    pub(super) record: u32,
    /// TLB entries filled from it, machine-wide, flushed ones included until they are found.
    pub(super) copies: u32,
}

/// One withdrawal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) slot: u32,
    /// The record before this one for the same slot.
    pub(super) before: u32,
    /// The withdrawn entry, and its replacement.
    pub(super) old: Entry,
    pub(super) new: Entry,
    /// When the store was issued.
    pub(super) issued: Stamp,
    /// When it became visible: sequence and time.
    pub(super) seen: u64,
    pub(super) at: u64,
}

/// One completed request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Completion {
    pub(super) space: u32,
    /// First byte, and last byte.
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) begun: Stamp,
    pub(super) cpu: u32,
    pub(super) at: u64,
}

/// 512 slots: one page-table page's worth of leaves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chunk {
    pub(super) space: u32,
    /// 1: 4 KiB pages, 2: 2 MiB, 3: 1 GiB.
    pub(super) level: u8,
    pub(super) base: u64,
    copies: u32,
    /// Last withdrawal in it (visible).
    pub(super) withdrawn: u64,
    /// Whole-chunk completions up to here.
    pub(super) enforced: u64,
    /// Issue time of the store that last unlinked the table of these leaves from here.
    pub(super) unlinked: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Space {
    pub(super) known: bool,
    pub(super) ended: bool,
    pub(super) root: u32,
    /// Whole-space completions up to here.
    pub(super) enforced: u64,
    /// Links filled up to here are void (`perfect_invalidate`).
    pub(super) psc_floor: u64,
    /// Chunks with TLB copies, which keep the history of an ended space.
    copies: u32,
    /// Table pages allocated for it.
    pub(super) tables: u32,
    /// CPUs that ever loaded the space.
    pub(super) cpus: Vec<u64>,
    chunks: BTreeMap<u64, u32>,
    last: (u64, u32),
    /// Highest level a chunk exists for.
    pub(super) levels: u8,
}

const RECORDS: usize = 1 << 17;
const COMPLETIONS: usize = 1 << 14;

/// The ledger.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    pub(super) slots: Vec<Slot>,
    pub(super) chunks: Vec<Chunk>,
    free: Vec<u32>,
    pub(super) spaces: Vec<Space>,
    /// Numbers of spaces whose history is gone, the oldest first.
    over: VecDeque<u32>,
    words: usize,
    records: Vec<Record>,
    written: u32,
    completions: Vec<Completion>,
    completed: usize,
}

fn chunk_key(level: u8, va: u64) -> u64 {
    ((level as u64) << 56) | (va & super::tlb::VA_MASK) >> super::psc::span_shift(level as u32)
}

impl Ledger {
    pub(super) fn new(cpus: usize) -> Ledger {
        Ledger {
            // Slot 0 means "none".
            slots: vec![Slot::default(); 512],
            chunks: vec![Chunk::default()],
            free: Vec::new(),
            spaces: Vec::new(),
            over: VecDeque::new(),
            words: cpus.div_ceil(64),
            records: Vec::new(),
            written: 0,
            completions: Vec::new(),
            completed: 0,
        }
    }

    pub(super) fn open(&mut self, space: u32) {
        if self.spaces.len() <= space as usize {
            self.spaces.resize_with(space as usize + 1, Space::default);
        }
        let words = if space == 0 { 0 } else { self.words };
        let s = &mut self.spaces[space as usize];
        assert!(!s.known, "space {space} exists already");
        *s = Space {
            known: true,
            cpus: vec![0; words],
            last: (u64::MAX, 0),
            // Links of a former space with this number may still be cached; they are void.
            psc_floor: s.psc_floor,
            ..Space::default()
        };
    }

    /// The chunk of the page at `va` of size class `level`, created if missing.
    pub(super) fn chunk(&mut self, space: u32, level: u8, va: u64) -> u32 {
        if let Some(chunk) = self.find_chunk(space, level, va) {
            return chunk;
        }
        let shift = super::psc::span_shift(level as u32);
        let new = Chunk {
            space,
            level,
            base: super::canonical(va >> shift << shift),
            ..Chunk::default()
        };
        let chunk = match self.free.pop() {
            Some(chunk) => {
                self.slots[chunk as usize * 512..][..512].fill(Slot::default());
                self.chunks[chunk as usize] = new;
                chunk
            }
            None => {
                self.slots.resize(self.slots.len() + 512, Slot::default());
                self.chunks.push(new);
                (self.chunks.len() - 1) as u32
            }
        };
        let s = &mut self.spaces[space as usize];
        s.levels = s.levels.max(level);
        s.chunks.insert(chunk_key(level, va), chunk);
        s.last = (chunk_key(level, va), chunk);
        chunk
    }

    #[inline]
    pub(super) fn find_chunk(&mut self, space: u32, level: u8, va: u64) -> Option<u32> {
        let s = &mut self.spaces[space as usize];
        let key = chunk_key(level, va);
        if s.last.0 != key {
            s.last = (key, *s.chunks.get(&key)?);
        }
        Some(s.last.1)
    }

    /// The slot of a page, if it has a history.
    #[inline]
    pub(super) fn find(&mut self, space: u32, level: u8, va: u64) -> Option<u32> {
        let index = super::table_index(va, level as u32);
        self.find_chunk(space, level, va).map(|c| c * 512 + index)
    }

    /// The chunks of one size class that overlap a range of addresses (first and last byte, same half).
    pub(super) fn chunks_in(&self, space: u32, level: u8, first: u64, last: u64) -> Vec<u32> {
        let keys = chunk_key(level, first)..=chunk_key(level, last);
        self.spaces[space as usize]
            .chunks
            .range(keys)
            .map(|(_, &c)| c)
            .collect()
    }

    /// First byte of a slot's page.
    #[inline]
    pub(super) fn va(&self, slot: u32) -> u64 {
        let c = &self.chunks[slot as usize >> 9];
        c.base + ((slot as u64 & 511) << super::psc::span_shift(c.level as u32 - 1))
    }

    /// Withdrawals issued up to here are binding for a slot.
    #[inline]
    pub(super) fn enforced(&self, slot: u32) -> u64 {
        let chunk = &self.chunks[slot as usize >> 9];
        let space = self.spaces[chunk.space as usize].enforced;
        self.slots[slot as usize].enforced.max(chunk.enforced).max(space)
    }

    #[inline]
    pub(super) fn copy_made(&mut self, slot: u32) {
        let s = &mut self.slots[slot as usize];
        s.copies += 1;
        if s.copies == 1 {
            let c = &mut self.chunks[slot as usize >> 9];
            c.copies += 1;
            if c.copies == 1 {
                self.spaces[c.space as usize].copies += 1;
            }
        }
    }

    #[inline]
    pub(super) fn copy_dropped(&mut self, slot: u32) {
        let s = &mut self.slots[slot as usize];
        s.copies -= 1;
        if s.copies == 0 {
            let c = &mut self.chunks[slot as usize >> 9];
            c.copies -= 1;
            if c.copies == 0 {
                let space = c.space;
                self.spaces[space as usize].copies -= 1;
                self.retire(space);
            }
        }
    }

    /// Marks a space as ended. Its history is dropped with the last TLB entry filled from it.
    pub(super) fn end(&mut self, space: u32) {
        self.spaces[space as usize].ended = true;
        self.retire(space);
    }

    pub(super) fn retire(&mut self, space: u32) {
        let s = &mut self.spaces[space as usize];
        if s.known && s.ended && s.copies == 0 && s.tables == 0 {
            s.known = false;
            self.over.push_back(space);
            self.free.extend(std::mem::take(&mut s.chunks).into_values());
            s.last = (u64::MAX, 0);
            s.cpus = Vec::new();
        }
    }

    /// Whether the CPU has ever loaded the space; of the kernel's own, always.
    #[inline]
    pub(super) fn has_loaded(&self, space: u32, cpu: usize) -> bool {
        let word = self.spaces[space as usize].cpus.get(cpu / 64);
        space == 0 || word.is_some_and(|word| word >> (cpu % 64) & 1 != 0)
    }

    /// The number of an ended space whose history is gone; the caller may reuse it.
    pub(super) fn spare(&mut self, in_use: impl Fn(u32) -> bool) -> Option<u32> {
        if in_use(*self.over.front()?) {
            return None;
        }
        self.over.pop_front()
    }

    /// Whether a TLB may still hold entries of the space, flushed or not.
    pub(super) fn may_be_cached(&self, space: u32) -> bool {
        let s = &self.spaces[space as usize];
        !s.ended || s.copies > 0
    }

    /// Whether any chunk of this space has copies in a TLB.
    pub(super) fn chunk_has_copies(&self, chunk: u32) -> bool {
        self.chunks[chunk as usize].copies > 0
    }

    pub(super) fn record(&mut self, mut record: Record) {
        let slot = &mut self.slots[record.slot as usize];
        record.before = slot.record;
        slot.withdrawn = record.seen;
        self.chunks[record.slot as usize >> 9].withdrawn = record.seen;
        let at = self.written as usize % RECORDS;
        if at == self.records.len() {
            self.records.push(record);
        } else {
            self.records[at] = record;
        }
        self.written = self.written.wrapping_add(1);
        slot.record = self.written;
    }

    /// The records of a slot, newest first, as far back as they are kept.
    pub(super) fn records(&self, slot: u32) -> impl Iterator<Item = &Record> {
        let mut next = self.slots[slot as usize].record;
        let mut seen = u64::MAX;
        std::iter::from_fn(move || {
            if next == 0 || self.written.wrapping_sub(next) as usize >= self.records.len() {
                return None;
            }
            let r = &self.records[next.wrapping_sub(1) as usize % RECORDS];
            if r.slot != slot || r.seen >= seen {
                return None;
            }
            (next, seen) = (r.before, r.seen);
            Some(r)
        })
    }

    pub(super) fn complete(&mut self, completion: Completion) {
        let at = self.completed % COMPLETIONS;
        if at == self.completions.len() {
            self.completions.push(completion);
        } else {
            self.completions[at] = completion;
        }
        self.completed += 1;
    }

    /// The first completed request that made a withdrawal issued at `issued` binding for this page.
    pub(super) fn completion_of(&self, space: u32, va: u64, issued: u64) -> Option<&Completion> {
        let n = self.completions.len();
        (0..n)
            .map(|i| &self.completions[(self.completed + i) % n])
            .find(|c| c.space == space && (c.first..=c.last).contains(&va) && c.begun.seq >= issued)
    }
}
