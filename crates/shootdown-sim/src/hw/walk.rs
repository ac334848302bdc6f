//! Using the tables: hits, walks, fills, speculation.
//!
//! Owns the effects of an access. `oracle.rs` judges every hit.

use super::entry::Entry;
use super::psc::Link;
use super::tlb::{self, At, Body, GLOBAL, SUSPECT};
use super::{Defect, Hw, Reason, is_kernel, table_index};
use shootdown::Stride;

/// Kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A load or an instruction fetch.
    Read,
    /// A store.
    Write,
}

/// Privilege of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// User mode: needs the user bit.
    User,
    /// The kernel: may use user pages too.
    Kernel,
}

/// A successful access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translation {
    /// Frame reached (for a large page, the frame number in its entry).
    pub frame: u32,
    /// Cost, cycles.
    pub cost: u32,
    /// Whether tables were read.
    pub walked: bool,
}

/// Why an access faulted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// No translation.
    NotPresent,
    /// A translation without the right.
    Protection,
}

/// An access that faulted; always after a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFault {
    /// Why.
    pub kind: FaultKind,
    /// Cost up to the fault, cycles.
    pub cost: u32,
}

/// A leaf that a walk found.
pub(super) struct Leaf {
    pub(super) entry: Entry,
    pub(super) level: u32,
    body: usize,
    /// The table is not linked where the walk found it.
    suspect: bool,
}

impl Hw {
    /// One access: translation by hit or walk, checked by the oracle.
    ///
    /// A write that hits an entry without write permission or without the dirty bit, and a user access that hits one
    /// without user permission, drop the entry and walk again; with
    /// [`HwConfig::stale_faults`](super::HwConfig::stale_faults) they may fault instead, and walk the next time.
    ///
    /// # Errors
    /// [`PageFault`] when the tables grant nothing or not enough.
    #[inline]
    pub fn translate(
        &mut self,
        cpu: usize,
        va: u64,
        access: Access,
        privilege: Privilege,
        now: u64,
    ) -> Result<Translation, PageFault> {
        self.accesses += 1;
        self.look_at_broadcasts(cpu, now);
        self.until_speculation -= 1;
        if self.until_speculation == 0 {
            self.speculate_nearby(cpu, va, now);
        }
        let need = match (access, privilege) {
            (Access::Read, Privilege::Kernel) => 0,
            (Access::Read, Privilege::User) => Entry::USER,
            (Access::Write, Privilege::Kernel) => Entry::WRITE | Entry::DIRTY,
            (Access::Write, Privilege::User) => Entry::USER | Entry::WRITE | Entry::DIRTY,
        } as u32;
        let c = &self.cpus[cpu];
        if let Some(at) = self.tlb.find_small(cpu, tlb::key(va, Stride::Size4K, c.tag)) {
            let body = self.tlb.body(at);
            let floor = if self.tlb.key(at) & GLOBAL == 0 {
                c.floor
            } else {
                c.floor_global
            };
            // One compare each: live, allowed, ours, and not withdrawn since.
            if body.fill > floor
                && (body.bits & need) == need
                && (body.space == c.space || body.space == 0)
                && body.bits & SUSPECT == 0
                && body.fill >= self.ledger.slots[body.slot as usize].withdrawn
            {
                return Ok(Translation {
                    frame: body.frame,
                    cost: self.config.costs.tlb_hit,
                    walked: false,
                });
            }
        }
        self.translate_slowly(cpu, va, need, now)
    }

    #[inline(never)]
    fn translate_slowly(&mut self, cpu: usize, va: u64, need: u32, now: u64) -> Result<Translation, PageFault> {
        while let Some(at) = self.lookup(cpu, va) {
            let body = self.tlb.body(at);
            if body.bits & need != need {
                self.drop_entry(cpu, at);
                let lacks_right = !body.bits & need & !(Entry::DIRTY as u32) != 0;
                if lacks_right && self.config.stale_faults && self.random() & 1 == 1 {
                    return Err(PageFault {
                        kind: FaultKind::Protection,
                        cost: self.config.costs.tlb_hit,
                    });
                }
            } else if self.check_use(cpu, va, at, now) {
                return Ok(Translation {
                    frame: body.frame,
                    cost: self.config.costs.tlb_hit,
                    walked: false,
                });
            }
        }
        let costs = self.config.costs;
        let write = need & Entry::WRITE as u32 != 0;
        let c = &mut self.cpus[cpu];
        c.recent[c.recent_next as usize & 3] = va;
        c.recent_next = c.recent_next.wrapping_add(1);
        if self.knows_unmapped(cpu, va) {
            return Err(PageFault {
                kind: FaultKind::NotPresent,
                cost: costs.tlb_hit,
            });
        }
        let (leaf, steps) = self.walk(cpu, va, now);
        let cost = costs.tlb_hit + costs.walk_step * steps;
        let Some(mut leaf) = leaf else {
            self.found_unmapped(cpu, va);
            return Err(PageFault {
                kind: FaultKind::NotPresent,
                cost,
            });
        };
        if leaf.entry.0 as u32 & (need & !(Entry::DIRTY as u32)) != need & !(Entry::DIRTY as u32) {
            return Err(PageFault {
                kind: FaultKind::Protection,
                cost,
            });
        }
        let dirty = if write { Entry::DIRTY } else { 0 };
        self.mark_used(&mut leaf, va, dirty);
        let frame = leaf.entry.frame();
        let at = self.fill(cpu, va, &leaf, now);
        if leaf.suspect {
            self.check_use(cpu, va, at, now);
        }
        Ok(Translation {
            frame,
            cost,
            walked: true,
        })
    }

    /// The live entry that an access to `va` hits. Dead entries in its way are removed.
    pub(super) fn lookup(&mut self, cpu: usize, va: u64) -> Option<At> {
        loop {
            let tag = self.cpus[cpu].tag;
            let small = self.tlb.find_small(cpu, tlb::key(va, Stride::Size4K, tag));
            let at = small.or_else(|| self.tlb.find_large(cpu, va, tag))?;
            if self.is_live(cpu, self.tlb.key(at), &self.tlb.body(at)) {
                return Some(at);
            }
            self.drop_entry(cpu, at);
        }
    }

    /// Reads the tables, from the lowest cached link. Returns the leaf, if present, and how many tables were read.
    fn walk(&mut self, cpu: usize, va: u64, now: u64) -> (Option<Leaf>, u32) {
        let c = &self.cpus[cpu];
        let (tag, floor, mut table, mut level) = (c.tag, c.floor_links, c.root, 4);
        for l in 1..=3 {
            let Some(position) = self.psc.find(cpu, l, va, tag) else {
                continue;
            };
            let Some(link) = self.psc.link(position) else { continue };
            if link.fill <= floor || link.fill <= self.ledger.spaces[link.space as usize].psc_floor {
                self.drop_link(position);
            } else if self.check_link_use(cpu, va, position, now) {
                (table, level) = (link.frame, l);
                break;
            }
        }
        let mut steps = 0;
        loop {
            let Some(t) = self.table(table) else {
                self.walked_into_freed(cpu, va, table, now);
                return (None, steps);
            };
            steps += 1;
            let index = table_index(va, level);
            let body = if level == 4 && index >= 256 {
                self.frames.get(self.kernel_root).body
            } else {
                self.frames.get(table).body
            };
            let (base, linked) = (t.base, t.linked > 0);
            let entry = Entry(self.bodies[body as usize].entries[index as usize]);
            if !entry.is_present() {
                return (None, steps);
            }
            if entry.is_leaf(level) {
                let shift = super::psc::span_shift(level);
                let suspect = !linked || base >> shift != super::canonical(va) >> shift;
                return (
                    Some(Leaf {
                        entry,
                        level,
                        body: body as usize,
                        suspect,
                    }),
                    steps,
                );
            }
            table = entry.frame();
            let withdrawn = !self.outstanding.is_empty()
                && level < 4
                && (!linked || (base ^ super::canonical(va)) >> super::psc::span_shift(level) != 0);
            level -= 1;
            let life = self.frames.get(table).life;
            if self.table(table).is_some() {
                let fill = self.tick();
                let space = if is_kernel(va) { 0 } else { self.cpus[cpu].space };
                self.frames.get_mut(table).links += 1;
                if let Some(old) = self.psc.put(
                    cpu,
                    level,
                    va,
                    Link {
                        fill,
                        frame: table,
                        life,
                        space,
                        tag,
                    },
                ) {
                    self.uncount_link(old);
                }
                if withdrawn {
                    self.note_withdrawn_link(cpu, va, level, fill, now);
                }
            }
        }
    }

    fn mark_used(&mut self, leaf: &mut Leaf, va: u64, dirty: u64) {
        leaf.entry = leaf.entry.with(Entry::ACCESSED | dirty);
        self.bodies[leaf.body].entries[table_index(va, leaf.level) as usize] = leaf.entry.0;
    }

    fn fill(&mut self, cpu: usize, va: u64, leaf: &Leaf, now: u64) -> At {
        let (level, entry) = (leaf.level, leaf.entry);
        let size = [Stride::Size4K, Stride::Size2M, Stride::Size1G][level as usize - 1];
        let space = if is_kernel(va) { 0 } else { self.cpus[cpu].space };
        let index = table_index(va, level);
        let slot = if leaf.suspect {
            self.ledger.chunk(space, level as u8, va) * 512 + index
        } else {
            self.slot_of(leaf.body, index)
        };
        let fill = self.tick();
        if leaf.suspect {
            self.note_withdrawn_page(cpu, va, leaf, fill, now);
        }
        let f = self.frames.get_mut(entry.frame());
        f.copies += 1;
        let bits = (entry.0 as u32 & 0xfff) | if leaf.suspect { SUSPECT } else { 0 } | f.life << 16;
        self.ledger.copy_made(slot);
        let global = entry.has(Entry::GLOBAL);
        let tag = self.cpus[cpu].tag;
        let key = if global {
            tlb::key(va, size, 0) | GLOBAL
        } else {
            tlb::key(va, size, tag)
        };
        let body = Body {
            fill,
            at: now,
            slot,
            frame: entry.frame(),
            space,
            bits,
        };
        if let Some(old) = self.tlb.put(cpu, size, key, body) {
            self.uncount(&old);
        }
        let probe = tlb::key(va, size, tag);
        let at = if size == Stride::Size4K {
            self.tlb.find_small(cpu, probe)
        } else {
            self.tlb.find_large(cpu, va, tag)
        };
        at.expect("the entry just filled")
    }

    /// The CPU speculatively fills the translation of `va`, through its loaded root and cached links, in lazy TLB mode
    /// too. Never faults, never sets the dirty bit. The oracle sees such a fill; it is not an access.
    pub fn speculate(&mut self, cpu: usize, va: u64, now: u64) {
        let c = &self.cpus[cpu];
        if c.is_off() || c.descheduled || (c.lazy && self.has(Defect::NoSpeculationWhenLazy)) {
            return;
        }
        self.look_at_broadcasts(cpu, now);
        if self.lookup(cpu, va).is_some() {
            return;
        }
        if let (Some(mut leaf), _) = self.walk(cpu, va, now) {
            self.mark_used(&mut leaf, va, 0);
            let at = self.fill(cpu, va, &leaf, now);
            if leaf.suspect {
                self.examine_entry(cpu, at, Reason::Stale, now);
            }
        }
    }

    /// Draws when the next speculative fill happens.
    pub(super) fn draw_speculation(&mut self) {
        let p = self.config.speculation;
        self.until_speculation = if p > 0.0 {
            let longest = (2.0 / p).round().max(2.0) as u64 - 1;
            1 + self.random() % longest
        } else {
            u64::MAX
        };
    }

    /// Whether a CPU speculates at a moment outside of accesses, with the same probability as at an access.
    /// [`speculate_recent`](Hw::speculate_recent) follows.
    #[inline]
    pub fn turn_to_speculate(&mut self) -> bool {
        self.until_speculation -= 1;
        let turn = self.until_speculation == 0;
        if turn {
            self.draw_speculation();
        }
        turn
    }

    /// The CPU [speculates](Hw::speculate) about a page that it has walked for recently.
    pub fn speculate_recent(&mut self, cpu: usize, now: u64) {
        let drawn = self.random() as usize & 3;
        let va = self.cpus[cpu].recent[drawn];
        self.speculate(cpu, super::canonical(va & tlb::VA_MASK), now);
    }

    #[inline(never)]
    fn speculate_nearby(&mut self, cpu: usize, va: u64, now: u64) {
        self.draw_speculation();
        let r = self.random();
        let target = match r & 3 {
            0 => va.wrapping_add(4096),
            1 => va.wrapping_sub(4096),
            _ => self.cpus[cpu].recent[(r >> 2) as usize & 3],
        };
        self.speculate(cpu, super::canonical(target & tlb::VA_MASK), now);
    }
}
