//! What orders memory, walkers, invalidations and interrupts, by architecture.
//!
//! | | x86 | Arm | RISC-V |
//! | --- | --- | --- | --- |
//! | `full_barrier` | `mfence` | `dmb ish` | `fence rw,rw` |
//! | `publish_tables` | `mfence` | `dsb ishst`: walkers find what this CPU has written | `fence rw,rw` |
//! | `before_ipi` | `mfence` | `dsb ishst` | `fence rw,o` |
//! | `before_root_load` | nothing | `dsb ish` | `fence rw,rw` |
//! | local invalidation | drains, at once | TLBI, until `dsb nsh` | SFENCE.VMA: walkers see what the hart knows |
//! | broadcast | in progress until synchronised | the same; `dsb ish` | firmware's SFENCE.VMA on every hart |
//!
//! A data memory barrier of Arm orders only loads and stores. An interrupt, a root load and a TLBI may take effect
//! before accesses that a DMB orders before it. The CPU that takes the interrupt may then miss them. The walker may
//! find older values under the new root, or after the TLBI. Only a DSB orders all of these. A TLBI and a root load wait
//! for the loads that they depend on; all earlier loads are assumed to be such.
//!
//! Stronger than the architectures: an SFENCE.VMA makes all stores of its hart visible, and a RISC-V hart caches no
//! invalid entries (an extra fault breaks no rule).

use crate::architecture::Architecture;
use crate::machine::Machine;
use crate::tlb::{Covers, Owner};

impl Machine {
    /// The walkers of all CPUs.
    fn all_walkers(&self) -> u8 {
        (1 << self.cpus.len()) - 1
    }

    /// Orders everything before it before everything after it, for other CPUs' loads and stores.
    pub(crate) fn full_barrier(&mut self) {
        self.drain_all();
        if self.architecture.is_weak() {
            self.memory.views.order_all(self.current);
        }
        if self.architecture == Architecture::RiscV {
            self.memory.views.order_walks(self.current);
        }
    }

    /// Orders table writes before later invalidations.
    pub(crate) fn publish_tables(&mut self) {
        match self.architecture {
            Architecture::X86 | Architecture::RiscV => self.full_barrier(),
            Architecture::Arm => self.complete(false),
        }
    }

    /// Orders stores before later interrupts.
    pub(crate) fn before_ipi(&mut self) {
        match self.architecture {
            Architecture::X86 => self.full_barrier(),
            Architecture::Arm => self.complete(false),
            Architecture::RiscV => {
                self.full_barrier();
                self.memory.views.order_interrupts(self.current);
            }
        }
    }

    /// Orders everything before it before the next root load, and walks under that root.
    pub(crate) fn before_root_load(&mut self) {
        match self.architecture {
            // Serialising.
            Architecture::X86 => {}
            Architecture::RiscV => self.full_barrier(),
            Architecture::Arm => self.complete(true),
        }
    }

    /// A DSB. With `loads`, what this CPU has seen is included, not only what it has written.
    fn complete(&mut self, loads: bool) {
        self.drain_all();
        let (cpu, all) = (self.current, self.all_walkers());
        let views = &mut self.memory.views;
        views.publish(cpu, all, loads);
        views.order_now(cpu);
        views.order_interrupts(cpu);
        views.order_walks(cpu);
        self.refill();
    }

    /// Whether a barrier of the current CPU could affect other CPUs.
    pub(crate) fn has_to_publish(&self) -> bool {
        self.has_buffered() || self.memory.views.are_walkers_behind()
    }

    /// An SFENCE.VMA on a hart, without its invalidation: the walker finds everything that the hart knows.
    fn fence_walker(&mut self, hart: usize) {
        self.memory.views.publish(hart, 1 << hart, true);
    }

    pub(crate) fn invalidate(&mut self, covers: Covers) {
        self.acts(2);
        match self.architecture {
            Architecture::X86 => {
                self.drain_all();
                self.cpu().tlb.invalidate(covers);
            }
            Architecture::Arm => {
                self.cpu().tlb.doom_here(covers);
                self.fill_since(self.memory.views.walks_since(self.current));
            }
            Architecture::RiscV => {
                self.full_barrier();
                self.fence_walker(self.current);
                self.cpu().tlb.invalidate(covers);
            }
        }
        self.trace(|| format!("invalidates {covers:?}"));
        self.refill();
    }

    /// Completes the local invalidations of the current CPU.
    pub(crate) fn local_sync(&mut self) {
        self.acts(13);
        self.cpu().tlb.synchronise_here();
        if self.architecture.is_weak() {
            self.memory.views.order_walks(self.current);
        }
        self.trace(|| "synchronises: its own invalidations are complete".into());
        self.refill();
    }

    pub(crate) fn load_root(&mut self, root: Owner, tag: u16, keep: bool) {
        self.acts(3);
        let cpu = self.current;
        if self.architecture == Architecture::X86 {
            self.drain_all();
        }
        self.cpus[cpu].tlb.load(root, tag, keep);
        match self.architecture {
            Architecture::X86 => {}
            // The invalidation includes a DSB, which waits for walks that were too early.
            Architecture::Arm if !keep => self.complete(false),
            Architecture::RiscV if !keep => self.fence_walker(cpu),
            Architecture::Arm => self.fill_since(self.memory.views.walks_since(cpu)),
            Architecture::RiscV => {
                self.memory.views.publish_to_root(cpu);
                self.fill_since(self.memory.views.walks_since(cpu));
            }
        }
        self.trace(|| {
            format!(
                "loads root {root} under tag {tag}{}",
                if keep { ", keeping its entries" } else { "" }
            )
        });
        self.refill();
    }

    pub(crate) fn broadcast(&mut self, covers: Covers) {
        self.acts(4);
        let issuer = self.current;
        if self.architecture == Architecture::RiscV {
            // Firmware does it on every hart, and each hart then knows what the issuer knew.
            let all = self.all_walkers();
            self.memory.views.publish(issuer, all, true);
        }
        if self.architecture.is_weak() {
            self.memory.views.order_walks_everywhere(issuer);
        }
        for cpu in &mut self.cpus {
            cpu.tlb.doom(covers, issuer);
        }
        self.trace(|| format!("broadcasts {covers:?}"));
        self.refill();
    }

    pub(crate) fn broadcast_sync(&mut self) {
        self.acts(5);
        let issuer = self.current;
        for cpu in &mut self.cpus {
            cpu.tlb.synchronise(issuer);
        }
        if self.architecture == Architecture::Arm {
            self.complete(true);
        }
        self.trace(|| "synchronises: its broadcasts are complete".into());
        self.refill();
    }

    pub(crate) fn send(&mut self, cpu: usize) {
        self.acts(6);
        self.memory.sharing.interrupts(cpu);
        if self.architecture.is_weak() {
            self.memory.views.send(self.current, cpu);
        }
        self.cpus[cpu].pending = true;
        self.trace(|| format!("interrupts CPU {cpu}"));
    }
}
