//! Page tables: four levels of 512 entries, and the moment a store to one becomes visible.
//!
//! Owns table contents and which tables are linked where. Every visible change of a translation reachable from a root
//! is entered in the ledger. Supported are tables linked at one place of one space (by any number of roots of that
//! space); page-table pages shared between spaces are not.

use super::cpu::Reason;
use super::entry::Entry;
use super::frames::FrameKind;
use super::ledger::{Record, Stamp};
use super::psc::span_shift;
use super::{Hw, is_kernel};

/// Contents of one page-table page.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) entries: Box<[u64; 512]>,
    pub(super) level: u8,
    /// Space it belongs to.
    pub(super) space: u32,
    /// Space it was allocated for.
    pub(super) home: u32,
    /// Links to it from linked tables; a root always has one.
    pub(super) linked: u32,
    /// First address it spans, where it is linked.
    pub(super) base: u64,
    /// Sequence number when its last link was seen to disappear; 0: never.
    pub(super) unlinked: u64,
    /// Present entries.
    present: u32,
    /// The ledger's chunk for its leaves, 0 until needed.
    chunk: u32,
}

/// The index that a walk of `va` uses in a table of `level` (1 to 4).
#[inline]
pub const fn table_index(va: u64, level: u32) -> u32 {
    (va >> (3 + 9 * level)) as u32 & 511
}

impl Hw {
    fn new_table(&mut self, level: u8, space: u32) -> u32 {
        let frame = self.frames.take(FrameKind::Table(level));
        let table = Table {
            entries: Box::new([0; 512]),
            level,
            space,
            home: space,
            linked: 0,
            base: 0,
            unlinked: 0,
            present: 0,
            chunk: 0,
        };
        let body = match self.free_bodies.pop() {
            Some(body) => {
                self.bodies[body as usize] = table;
                body
            }
            None => {
                self.bodies.push(table);
                (self.bodies.len() - 1) as u32
            }
        };
        self.frames.get_mut(frame).body = body;
        self.ledger.spaces[space as usize].tables += 1;
        frame
    }

    pub(super) fn new_root(&mut self, space: u32) -> u32 {
        let root = self.new_table(4, space);
        let body = self.frames.get(root).body;
        self.bodies[body as usize].linked = 1;
        root
    }

    /// Makes a space, numbered by the caller and never reused; returns its root. The kernel's half is shared with
    /// space 0, which exists from the start.
    ///
    /// # Panics
    /// If the number is in use: see [`spare_space`](Hw::spare_space).
    pub fn new_space(&mut self, space: u32) -> u32 {
        self.ledger.open(space);
        let root = self.new_root(space);
        self.ledger.spaces[space as usize].root = root;
        root
    }

    /// A second root for a space with split user and kernel tables. It starts empty; link the user half's tables
    /// from both roots. Its kernel half is the kernel's.
    pub fn new_split_root(&mut self, space: u32) -> u32 {
        self.new_root(space)
    }

    /// The first root of a space.
    pub fn root(&self, space: u32) -> u32 {
        self.ledger.spaces[space as usize].root
    }

    /// The number of an ended space without remaining history, for reuse. So the live spaces bound the oracle's memory.
    pub fn spare_space(&mut self) -> Option<u32> {
        let written = |cpu: usize| Some(self.later.as_ref()?.cpus.get(cpu)?.root?.space);
        let mut loaded = self.cpus.iter().map(|cpu| cpu.space).collect::<Vec<_>>();
        loaded.extend((0..self.cpus.len()).filter_map(written));
        loaded.extend(self.spaces_walked());
        let quarantines = &self.quarantines;
        self.ledger
            .spare(|space| loaded.contains(&space) || quarantines.concern(space))
    }

    /// Declares that a space has ended. The caller frees its tables, before or after. Its history is kept until the
    /// last table is freed and the last TLB entry filled from it has gone.
    pub fn end_space(&mut self, space: u32) {
        self.ledger.end(space);
    }

    /// Allocates an empty page-table page for a table of `level` (1 to 3), the last frame freed if any.
    pub fn alloc_table(&mut self, level: u8, space: u32) -> u32 {
        assert!((1..=3).contains(&level), "roots come from new_space");
        self.new_table(level, space)
    }

    /// Contents of the table in a frame; `None` if the frame holds no table.
    #[inline]
    pub(super) fn table(&self, frame: u32) -> Option<&Table> {
        let f = self.frames.get(frame);
        matches!(f.kind, FrameKind::Table(_)).then(|| &self.bodies[f.body as usize])
    }

    fn body_of(&self, frame: u32, index: u32) -> usize {
        let f = self.frames.get(frame);
        let FrameKind::Table(level) = f.kind else {
            panic!("frame {frame} holds no table")
        };
        // The kernel's half of every root is the kernel root's.
        let body = if level == 4 && index >= 256 {
            self.frames.get(self.kernel_root).body
        } else {
            f.body
        };
        body as usize
    }

    /// Reads an entry.
    ///
    /// # Panics
    /// If the frame holds no table or the index exceeds 511.
    #[inline]
    pub fn entry(&self, table: u32, index: u32) -> Entry {
        Entry(self.bodies[self.body_of(table, index)].entries[index as usize])
    }

    /// The moment a CPU *issues* a store to a page table (program order). Pass the result to [`Hw::set_entry`] when the
    /// store becomes visible. A request that begins later covers the store even while it is in a store buffer.
    pub fn store_issued(&mut self, cpu: usize, now: u64) -> Stamp {
        Stamp {
            seq: self.tick(),
            at: now,
            cpu: cpu as u32,
        }
    }

    /// [`store_issued`](Hw::store_issued) and [`set_entry`](Hw::set_entry) in one: a store visible at once.
    pub fn store_entry(&mut self, table: u32, index: u32, value: Entry, cpu: usize, now: u64) {
        let issued = self.store_issued(cpu, now);
        self.set_entry(table, index, value, issued, now);
    }

    /// A store to a page table becomes visible to every CPU and walker, at `now` cycles.
    ///
    /// # Panics
    /// If the frame holds no table or the index exceeds 511.
    pub fn set_entry(&mut self, table: u32, index: u32, value: Entry, issued: Stamp, now: u64) {
        let body = self.body_of(table, index);
        let t = &mut self.bodies[body];
        let old = Entry(std::mem::replace(&mut t.entries[index as usize], value.0));
        t.present = t.present + value.is_present() as u32 - old.is_present() as u32;
        if t.linked > 0 {
            self.changed(body, index, old, value, issued, now);
        }
    }

    /// One entry of a linked table went from `old` to `new`.
    fn changed(&mut self, body: usize, index: u32, old: Entry, new: Entry, issued: Stamp, now: u64) {
        let level = self.bodies[body].level as u32;
        let (was_leaf, is_leaf) = (old.is_leaf(level), new.is_leaf(level));
        if self.later.is_some() {
            if old.is_present() && !new.covers(old) {
                self.withdrew(issued);
            }
            let change = super::aarch64::Change {
                old,
                new,
                leaf: (was_leaf, is_leaf),
                slot: is_leaf.then(|| self.slot_of(body, index)),
            };
            let base = self.bodies[body].base + ((index as u64) << span_shift(level - 1));
            self.check_break_before_make(super::canonical(base), change, issued, now);
        }
        if was_leaf || is_leaf {
            let or_none = |leaf: bool, e: Entry| if leaf { e } else { Entry::NONE };
            self.translation_changed(body, index, or_none(was_leaf, old), or_none(is_leaf, new), issued, now);
        }
        let link = |leaf: bool, e: Entry| (e.is_present() && !leaf).then(|| e.frame());
        let (from, to) = (link(was_leaf, old), link(is_leaf, new));
        if from != to {
            // Link first: a table that one store moves is never unlinked.
            let base = self.bodies[body].base + ((index as u64) << span_shift(level - 1));
            let space = if is_kernel(base) { 0 } else { self.bodies[body].space };
            if let Some(child) = to {
                self.link(child, space, super::canonical(base), issued, now);
            }
            if let Some(child) = from {
                self.unlink(child, issued, now);
            }
        }
    }

    fn link(&mut self, child: u32, space: u32, base: u64, issued: Stamp, now: u64) {
        if self.table(child).is_none() {
            return; // A link to a free frame: reported by the first walk that follows it.
        }
        let body = self.frames.get(child).body as usize;
        let t = &mut self.bodies[body];
        t.linked += 1;
        if t.linked > 1 {
            return;
        }
        if (t.space, t.base) != (space, base) {
            t.chunk = 0;
        }
        (t.space, t.base) = (space, base);
        if t.level == 1 {
            // Here, not at the first leaf: a request may complete while that leaf's store is in a buffer.
            self.slot_of(body, 0);
        }
        let t = &self.bodies[body];
        if t.present > 0 {
            for index in 0..512 {
                let e = Entry(self.bodies[body].entries[index]);
                if e.is_present() {
                    self.changed(body, index as u32, Entry::NONE, e, issued, now);
                }
            }
        }
    }

    fn unlink(&mut self, child: u32, issued: Stamp, now: u64) {
        let Some(t) = self.table(child) else { return };
        let (present, last) = (t.present, t.linked == 1);
        let body = self.frames.get(child).body as usize;
        if last && present > 0 {
            for index in 0..512 {
                let e = Entry(self.bodies[body].entries[index]);
                if e.is_present() {
                    self.changed(body, index as u32, e, Entry::NONE, issued, now);
                }
            }
        }
        let t = &mut self.bodies[body];
        if last && t.chunk != 0 {
            self.ledger.chunks[t.chunk as usize].unlinked = issued.seq;
        }
        t.unlinked = self.seq;
        t.linked = t.linked.saturating_sub(1);
    }

    /// The ledger slot of a leaf of a linked table.
    #[inline]
    pub(super) fn slot_of(&mut self, body: usize, index: u32) -> u32 {
        let t = &mut self.bodies[body];
        if t.chunk == 0 {
            t.chunk = self.ledger.chunk(t.space, t.level, t.base);
        }
        t.chunk * 512 + index
    }

    fn translation_changed(&mut self, body: usize, index: u32, old: Entry, new: Entry, issued: Stamp, now: u64) {
        let slot = self.slot_of(body, index);
        self.ledger.slots[slot as usize].held = new.0;
        if old.is_present() {
            self.frames.get_mut(old.frame()).mapped -= 1;
        }
        if new.is_present() {
            let f = self.frames.get_mut(new.frame());
            f.mapped += 1;
            f.shared |= f.slot != 0 && f.slot != slot;
            f.slot = slot;
            if !self.nothing_quarantined() {
                let space = self.ledger.chunks[slot as usize >> 9].space;
                self.check_quarantined_range(space, self.ledger.va(slot), issued.cpu as usize, now);
            }
        }
        if old.is_present() && !new.covers(old) {
            let seen = self.tick();
            self.ledger.record(Record {
                slot,
                before: 0,
                old,
                new,
                issued,
                seen,
                at: now,
            });
            self.withdrew_from(slot, issued);
            if issued.seq <= self.ledger.enforced(slot) {
                // The request that should cover this store completed while it was in a store buffer.
                self.examine_slot(slot, issued.cpu as usize, Reason::Stale, now);
            }
        }
    }

    /// The table of `level` (1 to 4) on the path to `va` from `root`, if the path exists.
    pub fn table_at(&self, root: u32, va: u64, level: u32) -> Option<u32> {
        let mut table = root;
        for l in (level + 1..=4).rev() {
            let e = self.entry(table, table_index(va, l));
            if !e.is_present() || e.is_leaf(l) {
                return None;
            }
            table = e.frame();
        }
        Some(table)
    }

    /// Like [`table_at`](Hw::table_at), allocating and linking missing tables with stores visible at once.
    ///
    /// # Panics
    /// If a large page is in the way.
    pub fn ensure_table(&mut self, root: u32, va: u64, level: u32, cpu: usize, now: u64) -> u32 {
        let space = self.table(root).expect("a root").space;
        let space = if is_kernel(va) { 0 } else { space };
        let mut table = root;
        for l in (level + 1..=4).rev() {
            let index = table_index(va, l);
            let e = self.entry(table, index);
            assert!(!e.is_leaf(l), "a large page is mapped at {va:#x}");
            table = if e.is_present() {
                e.frame()
            } else {
                let child = self.alloc_table(l as u8 - 1, space);
                self.store_entry(table, index, Entry::table(child), cpu, now);
                child
            };
        }
        table
    }
}
