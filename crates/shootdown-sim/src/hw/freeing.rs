//! Giving memory back: the checks of C2 (frames) and C3 (tables), at the free and at every later load and walk.
//!
//! Owns the frees. Translations are judged in `oracle.rs`.

use super::cpu::Reason;
use super::frames::FrameKind;
use super::oracle::bits_of;
use super::violation::Rule;
use super::{Defect, Hw};

impl Hw {
    /// Returns a data frame to the allocator (C2).
    ///
    /// # Panics
    /// If the frame is free or holds a table.
    pub fn free_data(&mut self, frame: u32, cpu: usize, now: u64) {
        let f = *self.frames.get(frame);
        assert_eq!(f.kind, FrameKind::Data, "frame {frame} freed as data");
        if f.mapped > 0 {
            let va = if f.slot == 0 { 0 } else { self.ledger.va(f.slot) };
            self.report(Rule::C2, cpu, va, now, |_| {
                vec![format!(
                    "frame {frame} is freed at {now} by CPU {cpu} while {} entries map it",
                    f.mapped
                )]
            });
        }
        self.check_quarantined_frame(frame, cpu, now);
        if f.copies > 0 && !self.has(Defect::OracleIgnoresFrees) {
            let reason = Reason::Freed(frame, f.life);
            if f.shared {
                for other in 0..self.cpus.len() {
                    for at in self.tlb.positions(other) {
                        if self.tlb.key(at) != 0 && self.tlb.body(at).frame == frame {
                            self.examine_entry(other, at, reason, now);
                        }
                    }
                }
            } else if f.slot != 0 {
                self.examine_slot(f.slot, cpu, reason, now);
            }
        }
        self.frames.give_back(frame);
    }

    /// Returns a page-table page, or a root, to the allocator (C3). CPUs that have its space loaded and are in lazy TLB
    /// mode, or going offline, make one speculative walk through its old place.
    ///
    /// # Panics
    /// If the frame holds no table.
    pub fn free_table(&mut self, frame: u32, cpu: usize, now: u64) {
        let f = *self.frames.get(frame);
        let t = self
            .table(frame)
            .unwrap_or_else(|| panic!("frame {frame} freed as a table"));
        let (level, base, space, home, linked) = (t.level as u32, t.base, t.space, t.home, t.linked);
        let unlinked = t.unlinked;
        if level < 4 && linked > 0 {
            self.report(Rule::C3, cpu, base, now, |_| {
                vec![format!(
                    "page-table page {frame} (level {level}) is freed at {now} by CPU {cpu} while linked"
                )]
            });
        }
        if f.loaded > 0 {
            let holder = (0..self.cpus.len())
                .find(|&c| self.cpus[c].root == frame)
                .unwrap_or(cpu);
            self.report(Rule::C3, holder, 0, now, |_| {
                vec![format!(
                    "root {frame} is freed at {now} by CPU {cpu} while CPU {holder} has it loaded"
                )]
            });
        }
        self.check_software_walks(frame, base, cpu, now);
        self.check_old_root_walks(frame, space, unlinked, now);
        *self.bodies[f.body as usize].entries = [0; 512];
        self.free_bodies.push(f.body);
        self.frames.give_back(frame);
        if f.links > 0 && !self.has(Defect::OracleIgnoresLinks) {
            self.examine_links(frame, f.life, level, base, space, f.links, now);
        }
        let home = &mut self.ledger.spaces[home as usize];
        home.tables -= 1;
        if home.ended && home.tables == 0 {
            let space = self.bodies[f.body as usize].home;
            self.ledger.retire(space);
        }
    }

    /// Moves an unlinked page-table page to another space directly, without the allocator. The rules for a freed page
    /// apply (C3). Returns it, empty.
    ///
    /// # Panics
    /// If the frame holds no table.
    pub fn reuse_table(&mut self, frame: u32, space: u32, cpu: usize, now: u64) -> u32 {
        let level = self.table(frame).expect("a page-table page is reused").level;
        self.free_table(frame, cpu, now);
        let again = self.alloc_table(level, space);
        assert_eq!(again, frame, "the last frame freed is the first reused");
        again
    }

    #[allow(clippy::too_many_arguments)] // One call, because each argument is a different fact about the freed table.
    fn examine_links(&mut self, frame: u32, life: u32, level: u32, base: u64, space: u32, links: u32, now: u64) {
        let mut left = links;
        for word in 0..self.cpus.len().div_ceil(64) {
            let bits = self.cpus_word(space, word);
            for cpu in bits_of(word, bits) {
                if left == 0 {
                    return;
                }
                let c = &self.cpus[cpu];
                if (c.lazy || !c.online) && c.space == space && level < 4 {
                    self.speculate(cpu, base, now);
                }
                for position in self.psc.positions(cpu) {
                    let Some(link) = self.psc.link(position) else { continue };
                    if (link.frame, link.life) != (frame, life) {
                        continue;
                    }
                    left = left.saturating_sub(1);
                    self.examine_link(cpu, position, now);
                }
            }
        }
    }

    fn link_is_live(&self, cpu: usize, position: usize) -> bool {
        self.psc.link(position).is_some_and(|link| {
            link.fill > self.floor_links(cpu, link.tag) && link.fill > self.ledger.spaces[link.space as usize].psc_floor
        })
    }

    /// A link to a freed table: dropped if dead, a violation if a walk can use it, else remembered.
    fn examine_link(&mut self, cpu: usize, position: usize, now: u64) {
        let Some(link) = self.psc.link(position) else { return };
        if !self.link_is_live(cpu, position) {
            self.drop_link(position);
            return;
        }
        let c = &self.cpus[cpu];
        if c.is_off() || c.booting || c.descheduled || link.tag != c.tag {
            let seq = self.seq;
            self.cpus[cpu].tag_state_mut(link.tag).links_tolerated = seq;
            return;
        }
        self.report_link(cpu, position, now, "can walk it");
    }

    fn report_link(&mut self, cpu: usize, position: usize, now: u64, how: &str) {
        let base = self.psc.base(position);
        let Some(link) = self.psc.take(position) else { return };
        self.report(Rule::C3, cpu, base, now, |hw| {
            let c = &hw.cpus[cpu];
            vec![
                format!(
                    "cached:    link to page-table page {}, tag {}, space {}",
                    link.frame, link.tag, link.space
                ),
                format!(
                    "CPU {cpu}:     space {} under tag {}{}",
                    c.space,
                    c.tag,
                    if c.lazy { ", lazy (it speculates)" } else { "" }
                ),
                format!("frame:     {} is {:?} now", link.frame, hw.frames.get(link.frame).kind),
                format!("the page-table page was freed, and CPU {cpu} {how} at {now}"),
            ]
        });
    }

    /// Checks the links of the loaded tag, because a load makes tolerated ones walkable.
    pub(super) fn check_links(&mut self, cpu: usize, now: u64) {
        let tag = self.cpus[cpu].tag;
        self.check_all_links(cpu, Some(tag), now);
        self.cpus[cpu].tag_state_mut(tag).links_tolerated = 0;
    }

    pub(super) fn check_all_links(&mut self, cpu: usize, tag: Option<u16>, now: u64) {
        for position in self.psc.positions(cpu) {
            let Some(link) = self.psc.link(position) else { continue };
            if tag.is_some_and(|tag| link.tag != tag) || self.frames.get(link.frame).life == link.life {
                continue;
            }
            if self.link_is_live(cpu, position) {
                self.report_link(cpu, position, now, "can walk it again");
            } else {
                self.drop_link(position);
            }
        }
    }

    /// Checks a link that a walk is about to follow; drops it and returns `false` if it must not.
    #[inline]
    pub(super) fn check_link_use(&mut self, cpu: usize, va: u64, position: usize, now: u64) -> bool {
        let Some(link) = self.psc.link(position) else {
            return false;
        };
        if self.frames.get(link.frame).life != link.life && !self.has(Defect::OracleIgnoresLinks) {
            self.report_link(cpu, position, now, "walks through it");
            return false;
        }
        if link.space != 0 && link.space != self.cpus[cpu].space {
            self.report(Rule::C4, cpu, va, now, |hw| {
                vec![
                    format!(
                        "cached:    link to page-table page {}, tag {}, space {}",
                        link.frame, link.tag, link.space
                    ),
                    format!("CPU {cpu} walks through it at {now} for space {}", hw.cpus[cpu].space),
                ]
            });
            self.drop_link(position);
            return false;
        }
        true
    }

    /// A walk followed an entry (or a root register) to a frame that holds no table.
    pub(super) fn walked_into_freed(&mut self, cpu: usize, va: u64, frame: u32, now: u64) {
        self.report(Rule::C3, cpu, va, now, |hw| {
            vec![format!(
                "CPU {cpu} walks into page-table page {frame} at {now}, which was freed and is {:?} now",
                hw.frames.get(frame).kind
            )]
        });
    }
}
