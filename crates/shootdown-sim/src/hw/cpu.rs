//! The loaded root of a CPU, and its flush horizons: an entry is live while its fill is younger than all that concern
//! it.
//!
//! Owns liveness and root loads. Does not touch tables; `oracle.rs` does the checks that a load needs.

use super::tlb::{At, Body, GLOBAL, key_tag};
use super::{Defect, Hw, Isa, psc};
use std::collections::HashMap;

/// An operation the hardware refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardwareFault {
    /// The instruction does not exist on this machine (#UD).
    Undefined,
    /// An operand is out of bounds (#GP): a tag without tags or too wide, a broadcast count of 0 or above the limit.
    GeneralProtection,
}

/// Why the oracle checks an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// A withdrawal became binding (C1).
    Stale,
    /// Its frame, in this life, is being freed (C2).
    Freed(u32, u32),
}

/// State of a tag on a CPU. All numbers are machine sequence numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TagState {
    pub(super) flushed: u64,
    pub(super) psc_flushed: u64,
    /// When the oracle last tolerated a stale entry under it because the CPU could not use it; 0: never.
    pub(super) tolerated: u64,
    /// The same for links to freed tables.
    pub(super) links_tolerated: u64,
    /// The space last loaded under it, plus 1.
    pub(super) space: u32,
}

/// Per-CPU tags are small, with bit 11 set for the other half of a split pair.
const DENSE: usize = 32;

#[inline]
fn dense(tag: u16) -> Option<usize> {
    (tag & !0x80f == 0).then_some((tag as usize & 15) | (tag as usize >> 11) << 4)
}

#[derive(Debug, Clone)]
pub(super) struct Cpu {
    /// Cached horizons for the loaded tag: non-global, global, links.
    pub(super) floor: u64,
    pub(super) floor_global: u64,
    pub(super) floor_links: u64,
    /// The machine version and the time up to which these are valid.
    pub(super) version: u64,
    pub(super) next_due: u64,
    pub(super) space: u32,
    pub(super) root: u32,
    pub(super) tag: u16,
    /// Runs kernel code only.
    pub(super) lazy: bool,
    pub(super) online: bool,
    /// Between a root load, or the end of lazy TLB mode, and `caught_up`: entries under the tag are judged only when
    /// used.
    pub(super) settling: bool,
    /// In a handler that may have answered before it invalidates, and that touches no user address until `caught_up`.
    pub(super) answering: bool,
    /// Between coming online and `came_online`.
    pub(super) booting: bool,
    /// A virtual CPU that the hypervisor has descheduled: it keeps its cached entries, and uses none.
    pub(super) descheduled: bool,
    pub(super) flushed_nonglobal: u64,
    pub(super) flushed_all: u64,
    pub(super) flushed_links: u64,
    /// When the oracle last tolerated a stale global entry.
    pub(super) global_tolerated: u64,
    /// When broadcasts that are due were last carried out.
    pub(super) checked: u64,
    /// The last operation issued by then: younger ones are due even if this CPU's clock has passed their time.
    pub(super) checked_seq: u64,
    /// Pages recently walked, for speculation.
    pub(super) recent: [u64; 4],
    pub(super) recent_next: u8,
    small: Vec<TagState>,
    big: HashMap<u16, TagState>,
}

impl Cpu {
    pub(super) fn new(root: u32) -> Cpu {
        Cpu {
            floor: 0,
            floor_global: 0,
            floor_links: 0,
            version: 0,
            next_due: 0,
            space: 0,
            root,
            tag: 0,
            lazy: false,
            online: true,
            settling: false,
            answering: false,
            booting: false,
            descheduled: false,
            flushed_nonglobal: 0,
            flushed_all: 0,
            flushed_links: 0,
            global_tolerated: 0,
            checked: 0,
            checked_seq: 0,
            recent: [0; 4],
            recent_next: 0,
            small: Vec::new(),
            big: HashMap::new(),
        }
    }

    /// Fully offline. A CPU that goes offline may still walk the tables of the space that it has loaded, until it has
    /// left that space (C3).
    #[inline]
    pub(super) fn is_off(&self) -> bool {
        !self.online && self.space == 0
    }

    #[inline]
    pub(super) fn tag_state(&self, tag: u16) -> TagState {
        match dense(tag) {
            Some(i) => self.small.get(i).copied().unwrap_or_default(),
            None => self.big.get(&tag).copied().unwrap_or_default(),
        }
    }

    #[inline]
    pub(super) fn tag_state_mut(&mut self, tag: u16) -> &mut TagState {
        match dense(tag) {
            Some(i) => {
                if self.small.is_empty() {
                    self.small = vec![TagState::default(); DENSE];
                }
                &mut self.small[i]
            }
            None => self.big.entry(tag).or_default(),
        }
    }
}

impl Hw {
    /// Non-global entries of `tag` filled up to here are dead on this CPU.
    pub(super) fn floor(&self, cpu: usize, tag: u16) -> u64 {
        let c = &self.cpus[cpu];
        let local = c.tag_state(tag).flushed.max(c.flushed_nonglobal).max(c.flushed_all);
        if self.is_device(cpu) {
            return local;
        }
        local.max(self.epochs.tag(tag)).max(self.epochs.nonglobal)
    }

    /// Links of `tag` filled up to here are dead on this CPU.
    pub(super) fn floor_links(&self, cpu: usize, tag: u16) -> u64 {
        let c = &self.cpus[cpu];
        let local = c
            .tag_state(tag)
            .psc_flushed
            .max(c.flushed_links)
            .max(self.floor(cpu, tag));
        if self.is_device(cpu) {
            return local;
        }
        local.max(self.epochs.links(tag)).max(self.epochs.all_links)
    }

    /// Global entries filled up to here are dead on this CPU.
    pub(super) fn floor_global(&self, cpu: usize) -> u64 {
        let local = self.cpus[cpu].flushed_all;
        if self.is_device(cpu) {
            return local;
        }
        local.max(self.epochs.all)
    }

    /// Recomputes the cached horizons of the loaded tag.
    pub(super) fn refresh(&mut self, cpu: usize) {
        let tag = self.cpus[cpu].tag;
        let (floor, links, global) = (self.floor(cpu, tag), self.floor_links(cpu, tag), self.floor_global(cpu));
        let c = &mut self.cpus[cpu];
        (c.floor, c.floor_links, c.floor_global) = (floor, links, global);
    }

    /// Whether the entry is still live on its CPU.
    pub(super) fn is_live(&self, cpu: usize, key: u64, body: &Body) -> bool {
        let floor = if key & GLOBAL != 0 {
            self.floor_global(cpu)
        } else {
            self.floor(cpu, key_tag(key))
        };
        body.fill > floor
    }

    /// Removes a TLB entry and its counts.
    #[inline]
    pub(super) fn drop_entry(&mut self, cpu: usize, at: At) -> Body {
        let body = self.tlb.take(cpu, at);
        self.uncount(&body);
        body
    }

    #[inline]
    pub(super) fn uncount(&mut self, body: &Body) {
        self.ledger.copy_dropped(body.slot);
        self.frames.get_mut(body.frame).copies -= 1;
    }

    /// Removes a link and its count.
    pub(super) fn drop_link(&mut self, position: usize) {
        if let Some(link) = self.psc.take(position) {
            self.uncount_link(link);
        }
    }

    pub(super) fn uncount_link(&mut self, link: psc::Link) {
        let f = self.frames.get_mut(link.frame);
        if f.life == link.life {
            f.links -= 1;
        }
    }

    /// The largest tag there is.
    pub(super) fn check_tag(&self, tag: u16) -> Result<(), HardwareFault> {
        let ok = if self.config.tags {
            (tag as u32) < 1 << self.config.tag_bits
        } else {
            tag == 0
        };
        if ok {
            Ok(())
        } else {
            Err(HardwareFault::GeneralProtection)
        }
    }

    /// Loads a root under a tag, for `space` (as the kernel understands it; the hardware only sees root and tag). With
    /// `keep`, the tag's entries survive; on x86 without tags no non-global entry survives. Returns the cost in cycles.
    ///
    /// The oracle then expects a [`caught_up`](Hw::caught_up) before the CPU touches user addresses; links to freed
    /// tables are judged at once, since the CPU may speculate through them.
    ///
    /// # Errors
    /// [`HardwareFault::GeneralProtection`] for a tag that the machine does not have; nothing is loaded.
    pub fn load_root(
        &mut self,
        cpu: usize,
        root: u32,
        tag: u16,
        keep: bool,
        space: u32,
        now: u64,
    ) -> Result<u32, HardwareFault> {
        self.check_tag(tag)?;
        let seq = self.tick();
        let tagged = self.config.tags;
        let keep = keep && !self.has(Defect::LoadFlushes);
        // A space whose number was in use before has been loaded by no CPU, regardless of the tag's earlier use.
        let known = self.ledger.has_loaded(space, cpu);
        let c = &mut self.cpus[cpu];
        let (left, left_tag, left_space) = (std::mem::replace(&mut c.root, root), c.tag, c.space);
        c.next_due = 0;
        (c.tag, c.space, c.settling) = (tag, space, true);
        let state = c.tag_state_mut(tag);
        let new_user = state.space != space + 1 || !known;
        if new_user && state.space != 0 {
            state.tolerated = seq; // C4: entries of another space may be left; `caught_up` checks.
        }
        state.space = space + 1;
        let keeps = tagged || matches!(self.config.isa, Isa::Riscv64(_));
        let cost = if keeps && keep {
            self.config.costs.root_load_keep
        } else {
            if tagged {
                state.flushed = seq;
            } else {
                c.flushed_nonglobal = seq;
            }
            self.config.costs.root_load_flush
        };
        if left != root {
            self.root_replaced(cpu, left, left_tag, left_space);
        }
        if !keep {
            self.flush_at_load_ends_walks(cpu, tag);
        }
        let f = self.frames.get_mut(left);
        f.loaded = f.loaded.saturating_sub(1);
        self.frames.get_mut(root).loaded += 1;
        if new_user {
            self.tag_used(cpu, tag, space);
        }
        if !self.outstanding.is_empty() && !self.has(Defect::AwayStaysStale) {
            self.reached_while_away(cpu);
        }
        self.refresh(cpu);
        self.look_at_broadcasts(cpu, now);
        let links_tolerated = self.cpus[cpu].tag_state(tag).links_tolerated;
        if links_tolerated > self.cpus[cpu].floor_links {
            self.check_links(cpu, now);
        }
        Ok(cost)
    }

    /// Declares that the CPU runs kernel code only (`true`), or may touch user addresses again (`false`; the oracle
    /// then expects a [`caught_up`](Hw::caught_up) before it does).
    pub fn set_lazy(&mut self, cpu: usize, lazy: bool) {
        if lazy && self.later.is_some() {
            self.late_arrives(cpu);
        }
        let c = &mut self.cpus[cpu];
        c.settling |= c.lazy && !lazy;
        c.lazy = lazy;
    }

    /// The tag of the root that is loaded.
    pub fn loaded_tag(&self, cpu: usize) -> shootdown::Tag {
        shootdown::Tag(self.cpus[cpu].tag)
    }

    /// Whether the kernel has declared that the CPU touches no user address.
    pub fn is_lazy(&self, cpu: usize) -> bool {
        self.cpus[cpu].lazy
    }

    /// The CPU takes an interrupt whose handler may acknowledge before it invalidates. It promises to touch no user
    /// address before [`caught_up`](Hw::caught_up), which must follow. User translations that a completed request
    /// forbids may stay cached meanwhile. Using one is a violation, and so are stale kernel addresses and links to
    /// freed tables.
    pub fn answers(&mut self, cpu: usize) {
        self.cpus[cpu].answering = true;
    }

    /// The CPU goes offline, or starts to come online. It touches neither user addresses nor dynamic kernel ones, and
    /// its cached translations are not checked until [`came_online`](Hw::came_online). Links are an exception: the CPU
    /// may walk them speculatively, so they are checked until it loads the kernel's root.
    pub fn set_online(&mut self, cpu: usize, online: bool) {
        let c = &mut self.cpus[cpu];
        c.booting = online && (c.booting || !c.online);
        c.online = online;
    }

    /// The hypervisor deschedules a virtual CPU: until [`entered`](Hw::entered) its cached translations stay, and are
    /// not used.
    pub fn deschedule(&mut self, cpu: usize) {
        self.cpus[cpu].descheduled = true;
    }

    /// The virtual CPU runs again, after any pending flush by the hypervisor: it must hold no stale translation that it
    /// can use.
    pub fn entered(&mut self, cpu: usize, now: u64) {
        let c = &mut self.cpus[cpu];
        c.descheduled = false;
        let settling = c.settling;
        if !settling {
            self.caught_up(cpu, now);
        }
        self.check_links(cpu, now);
    }

    /// The root, tag and space that a CPU has loaded.
    pub fn loaded(&self, cpu: usize) -> (u32, u16, u32) {
        let c = &self.cpus[cpu];
        (c.root, c.tag, c.space)
    }
}
