//! AArch64: TLBI, DSB and ISB with their scopes, break-before-make, and processors with errata.
//!
//! Owns when an invalidation is complete: local TLBI at a DSB of the same CPU, inner-shareable TLBI at an
//! inner-shareable DSB of the CPU that issued it. Until then either may have taken effect or not. A DSB also publishes
//! table writes; a DMB or an atomic operation does not order a TLBI. `deferred.rs` carries the invalidations out.

use super::broadcast::Outstanding;
use super::deferred::{Invalidation, Late, WrittenRoot};
use super::entry::Entry;
use super::ledger::Stamp;
use super::violation::Rule;
use super::{HardwareFault, Hw, Isa, mix};
use shootdown::{Broadcast, Local};

/// AArch64 properties of a machine, beyond those that every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aarch64 {
    /// Range operations (FEAT_TLBIRANGE): a broadcast of many pages is a few instructions.
    pub range: bool,
    /// A store barrier (DSB ISHST) also waits for invalidations broadcast earlier by the same CPU, as on many cores.
    pub store_barrier_drains: bool,
    /// Cost of a store barrier with nothing to wait for, cycles.
    pub store_barrier: u32,
    /// Cost of a local DSB and its ISB after local invalidations, cycles.
    pub local_barrier: u32,
    /// Added cost of a synchronisation for every further CPU that has broadcasts in progress, cycles.
    pub sync_per_cpu: u32,
    /// Its erratum.
    pub errata: ArmErrata,
}

/// Errata that the simulated processor can have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArmErrata {
    /// An invalidation may be lost unless it is repeated after a synchronisation (A76 1286807 and its kind).
    pub repeat: bool,
    /// A synchronisation may be acknowledged before another CPU has finished with the old translation; an exception
    /// taken there finishes it (C1-Pro 4193714).
    pub early_sync: bool,
}

impl Default for Aarch64 {
    fn default() -> Self {
        Aarch64 {
            range: false,
            store_barrier_drains: false,
            store_barrier: 20,
            local_barrier: 30,
            sync_per_cpu: 0,
            errata: ArmErrata::default(),
        }
    }
}

/// How far a DSB reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// This CPU (DSB NSH).
    Local,
    /// All CPUs (DSB ISH).
    InnerShareable,
}

/// How long an old translation stays in use after a synchronisation that was acknowledged too early, cycles.
const LATE: u64 = 50_000;

impl Hw {
    /// TLBI, local form. Asynchronous until [`dsb`](Hw::dsb) of either scope on this CPU. Returns its cost in cycles.
    ///
    /// # Errors
    /// [`HardwareFault::GeneralProtection`] for a tag the machine does not have.
    pub fn tlbi(&mut self, cpu: usize, what: Local, now: u64) -> Result<u32, HardwareFault> {
        self.look_at_broadcasts(cpu, now);
        let cost = self.cost_of(what)?;
        if !self.loses(cpu, Invalidation::Here(what)) {
            self.defer_local(cpu, what, now);
        }
        Ok(cost)
    }

    /// TLBI, inner-shareable form. Asynchronous until a [`dsb`](Hw::dsb) of inner-shareable scope on this CPU. Returns
    /// the cost of issuing, in cycles.
    ///
    /// # Errors
    /// As [`broadcast`](Hw::broadcast).
    pub fn tlbi_is(&mut self, cpu: usize, what: Broadcast, now: u64) -> Result<u32, HardwareFault> {
        let cost = self.broadcast(cpu, what, now)?;
        let Some(mut op) = self.outstanding.pop_back() else {
            return Ok(cost);
        };
        if self.loses(cpu, Invalidation::Everywhere(what)) {
            return Ok(cost);
        }
        if let Some(delayed_to) = self.overtakes(cpu, false, now) {
            op.seq = delayed_to;
            self.apply_everywhere(op);
            return Ok(cost);
        }
        if self.errata().early_sync && self.config.cpus > 1 {
            let drawn = mix(self.config.seed ^ op.seq.wrapping_mul(0x1_0007));
            let other = drawn as usize % self.config.cpus;
            if other != cpu && self.is_in_user_code(other) {
                op.excluded = other as u32;
            }
        }
        self.outstanding.push_back(op);
        Ok(cost)
    }

    /// DSB for stores. Inner shareable (ISHST): every walker sees the table writes of this CPU, and those of others
    /// that it may have read, before later invalidations take effect. Local (NSHST): this CPU's own walker sees its own
    /// table writes.
    pub fn dsb_stores(&mut self, cpu: usize, scope: Scope) {
        match scope {
            Scope::Local => self.published_here(cpu),
            Scope::InnerShareable => {
                self.published(cpu);
                self.all_published();
            }
        }
    }

    /// DSB for loads and stores: publishes table writes to the walkers that `scope` covers, completes the invalidations
    /// of this CPU that it covers, and waits for walks in progress on this CPU.
    pub fn dsb(&mut self, cpu: usize, scope: Scope, now: u64) {
        match scope {
            Scope::Local => self.published_here(cpu),
            Scope::InnerShareable => self.published(cpu),
        }
        self.no_old_root_walks(cpu);
        self.late_arrives(cpu);
        self.complete_local(cpu);
        if scope == Scope::InnerShareable {
            let mut i = 0;
            while let Some(&op) = self.outstanding.get(i) {
                if op.issuer != cpu as u32 {
                    i += 1;
                    continue;
                }
                self.outstanding.remove(i);
                if op.excluded == Outstanding::NO_CPU {
                    self.apply_everywhere(op);
                } else {
                    self.apply_but_for(op, now);
                }
                self.complete_withdrawn(op);
                for other in (0..self.config.cpus).filter(|&other| other != op.excluded as usize) {
                    self.broadcast_ends_walks(other, op.what);
                }
            }
        }
        self.synchronised(cpu);
    }

    /// Writes the root register without an ISB: until [`isb`](Hw::isb) either the old or the new one is in use.
    pub fn write_root(&mut self, cpu: usize, root: u32, tag: u16, space: u32) {
        if let Some(later) = &mut self.later {
            later.cpus[cpu].root = Some(WrittenRoot { root, tag, space });
            self.cpus[cpu].next_due = 0;
        }
    }

    /// ISB: later instructions of this CPU use the root that it wrote.
    pub fn isb(&mut self, cpu: usize, now: u64) {
        self.root_takes_effect(cpu, now);
    }

    /// The CPU takes an exception, which synchronises its context.
    #[inline]
    pub fn exception_taken(&mut self, cpu: usize, now: u64) {
        if self.later.is_some() {
            self.begins_anew(cpu);
            self.late_arrives(cpu);
            self.root_takes_effect(cpu, now);
        }
    }

    fn errata(&self) -> ArmErrata {
        match self.config.isa {
            Isa::Aarch64(arm) => arm.errata,
            Isa::X86_64 | Isa::Riscv64(_) => ArmErrata::default(),
        }
    }

    /// Whether an invalidation has no effect, by the erratum that requires a second one.
    fn loses(&mut self, cpu: usize, what: Invalidation) -> bool {
        self.errata().repeat && !self.is_repeated(cpu, what) && self.random() & 3 == 0
    }

    /// Whether a CPU may be in the middle of accesses to user addresses. A CPU in lazy TLB mode has taken an exception
    /// since.
    fn is_in_user_code(&self, cpu: usize) -> bool {
        let c = &self.cpus[cpu];
        c.online && !c.booting && !c.lazy
    }

    /// Completes a broadcast on every CPU except the spared one, where it takes effect later.
    fn apply_but_for(&mut self, op: Outstanding, now: u64) {
        for cpu in (0..self.config.cpus).filter(|&cpu| cpu != op.excluded as usize) {
            self.broadcast_on(cpu, op.what, op.seq);
        }
        if !self.is_in_user_code(op.excluded as usize) {
            return self.broadcast_on(op.excluded as usize, op.what, op.seq);
        }
        let late = Late {
            cpu: op.excluded,
            what: op.what,
            seq: op.seq,
            due: now + LATE,
        };
        if let Some(later) = &mut self.later {
            later.late.push(late);
        }
        self.cpus[op.excluded as usize].next_due = 0;
    }

    /// Break before make. An entry that maps something must become "not mapped", with a completed flush, before it maps
    /// another address, another size, or changes between global and not global. This holds whichever CPUs store the
    /// two. `entry` is at `va`; `slot` is its page, where it is a leaf.
    #[inline]
    pub(super) fn check_break_before_make(&mut self, va: u64, change: Change, issued: Stamp, now: u64) {
        if matches!(self.config.isa, Isa::Aarch64(_)) {
            self.check_change(va, change, issued, now);
        }
    }

    fn check_change(&mut self, va: u64, change: Change, issued: Stamp, now: u64) {
        let Change { old, new, leaf, slot } = change;
        if !new.is_present() {
            return;
        }
        let why = if old.is_present() {
            // Rights may change in place; so may bits for software or the walker.
            let global = |entry: Entry| entry.has(Entry::GLOBAL);
            let same = leaf.0 == leaf.1 && old.frame() == new.frame() && global(old) == global(new);
            (!same).then(|| format!("{old:?} became {new:?} at once"))
        } else {
            let record = slot.and_then(|slot| {
                let enforced = self.ledger.enforced(slot);
                let newest = self.ledger.records(slot).next()?;
                let same = new.covers(newest.old) && new.has(Entry::GLOBAL) == newest.old.has(Entry::GLOBAL);
                (newest.issued.seq > enforced && !same).then_some(*newest)
            });
            record.map(|record| {
                format!(
                    "{:?} was withdrawn at {} and {new:?} put in its place before a flush was complete",
                    record.old, record.at
                )
            })
        };
        if let Some(why) = why {
            let cpu = issued.cpu as usize;
            self.report(Rule::BreakBeforeMake, cpu, va, now, |_| {
                vec![format!("by a store of CPU {cpu}, visible at {now}: {why}")]
            });
        }
    }
}

/// One change of an entry of a linked table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) old: Entry,
    pub(super) new: Entry,
    /// Whether the old and the new entry are leaves.
    pub(super) leaf: (bool, bool),
    /// The page, where the new entry is a leaf.
    pub(super) slot: Option<u32>,
}
