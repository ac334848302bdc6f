//! Software that reads page tables without a lock: the page-table pages that each CPU's walk holds, and the check that
//! none of them is freed (C3).
//!
//! A walk holds the root and every page-table page to which it has read a link, until it ends: the contract lets it
//! read them again until then. Freeing or reusing such a page is a violation at that moment, and so is reading one that
//! was freed. `freeing.rs` judges hardware walks.

use super::entry::Entry;
use super::frames::FrameKind;
use super::violation::Rule;
use super::{Hw, table_index};
use std::collections::HashMap;

/// A page-table page as a walk sees it: the frame, and the life in which its link was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableLink {
    /// The frame.
    pub frame: u32,
    life: u32,
}

/// A link that a walk in progress has read.
#[derive(Debug, Clone, Copy)]
struct Held {
    link: TableLink,
    at: u64,
}

/// The walk of one CPU.
#[derive(Debug, Clone, Default)]
struct Walk {
    /// Guards held, nested walks included.
    depth: u32,
    began: u64,
    held: Vec<Held>,
}

/// All software walks.
#[derive(Debug, Clone, Default)]
pub(super) struct SoftwareWalks {
    walks: Vec<Walk>,
    active: u32,
    checked: u64,
    /// Which CPU freed a page-table page last, and when; kept from the first walk on.
    freed: HashMap<u32, (usize, u64)>,
}

impl Hw {
    /// A software walk begins on `cpu`; walks nest.
    pub fn software_walk_begins(&mut self, cpu: usize, now: u64) {
        if self.software.walks.is_empty() {
            self.software.walks = vec![Walk::default(); self.config.cpus];
        }
        let walk = &mut self.software.walks[cpu];
        walk.depth += 1;
        if walk.depth == 1 {
            walk.began = now;
            self.software.active += 1;
        }
    }

    /// The walk ends: the page-table pages that it held may be freed.
    pub fn software_walk_ends(&mut self, cpu: usize) {
        let walk = &mut self.software.walks[cpu];
        walk.depth -= 1;
        if walk.depth == 0 {
            walk.held.clear();
            self.software.active -= 1;
        }
    }

    /// The root of a space, for a walk that begins there.
    pub fn software_root(&mut self, cpu: usize, root: u32, now: u64) -> TableLink {
        let link = TableLink {
            frame: root,
            life: self.frames.get(root).life,
        };
        self.hold(cpu, link, now);
        link
    }

    /// The walk on `cpu` reads the entry for `va` in a page-table page of `level` (1 to 4). `None` when the page was
    /// freed since its link was read, which is reported.
    pub fn software_read(&mut self, cpu: usize, table: TableLink, va: u64, level: u32, now: u64) -> Option<Entry> {
        self.software.checked += 1;
        let frame = self.frames.get(table.frame);
        if frame.life == table.life && frame.kind == FrameKind::Table(level as u8) {
            return Some(self.entry(table.frame, table_index(va, level)));
        }
        self.report(Rule::C3, cpu, va, now, |hw| {
            let mut lines = hw.describe_walk(cpu, table);
            lines.push(format!(
                "CPU {cpu} reads it at {now}, and finds {:?}",
                hw.frames.get(table.frame).kind
            ));
            lines
        });
        None
    }

    /// The page-table page that an entry of an upper table, read by the walk on `cpu`, links to.
    pub fn software_follow(&mut self, cpu: usize, entry: Entry, now: u64) -> TableLink {
        let frame = entry.frame();
        let link = TableLink {
            frame,
            life: self.frames.get(frame).life,
        };
        self.hold(cpu, link, now);
        link
    }

    /// Table entries read by software walks so far.
    pub fn software_reads(&self) -> u64 {
        self.software.checked
    }

    /// Whether a walk in progress on any CPU holds the page-table page in `frame`; for the `ideal` design.
    pub fn software_holds(&self, frame: u32) -> bool {
        let life = self.frames.get(frame).life;
        let held = |held: &Held| held.link == TableLink { frame, life };
        self.software.active > 0 && self.software.walks.iter().any(|walk| walk.held.iter().any(held))
    }

    fn hold(&mut self, cpu: usize, link: TableLink, at: u64) {
        let held = &mut self.software.walks[cpu].held;
        if !held.iter().any(|other| other.link == link) {
            held.push(Held { link, at });
        }
    }

    /// The page-table page in `frame` is about to be freed or reused: no walk may hold it.
    pub(super) fn check_software_walks(&mut self, frame: u32, base: u64, cpu: usize, now: u64) {
        if self.software.walks.is_empty() {
            return;
        }
        self.software.freed.insert(frame, (cpu, now));
        if self.software.active == 0 {
            return;
        }
        let link = TableLink {
            frame,
            life: self.frames.get(frame).life,
        };
        for walker in 0..self.software.walks.len() {
            if self.software.walks[walker].held.iter().any(|held| held.link == link) {
                self.report(Rule::C3, walker, base, now, |hw| hw.describe_walk(walker, link));
                // Reported once.
                self.software.walks[walker].held.retain(|held| held.link != link);
            }
        }
    }

    fn describe_walk(&self, cpu: usize, link: TableLink) -> Vec<String> {
        let walk = &self.software.walks[cpu];
        let mut lines = vec![format!("walk:      by software on CPU {cpu}, begun at {}", walk.began)];
        if let Some(held) = walk.held.iter().find(|held| held.link == link) {
            lines.push(format!(
                "link:      to page-table page {}, read at {}",
                link.frame, held.at
            ));
        }
        if let Some((by, at)) = self.software.freed.get(&link.frame) {
            lines.push(format!(
                "freed:     page-table page {} by CPU {by} at {at}, during the walk",
                link.frame
            ));
        }
        lines
    }
}
