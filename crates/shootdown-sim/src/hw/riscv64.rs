//! RISC-V: SFENCE.VMA, Svinval, the firmware's remote fences, and "not mapped" that a hart may cache.
//!
//! Owns when an invalidation is complete: SFENCE.VMA at once, on this hart only; SINVAL.VMA at SFENCE.INVAL.IR of the
//! same hart, and only SFENCE.W.INVAL orders it after table writes. With an address only leaves are dropped; forms with
//! a tag skip global entries. `deferred.rs` carries the invalidations out.

use super::{HardwareFault, Hw};
use shootdown::{Broadcast, Local};

/// RISC-V properties of a machine, beyond those that every machine has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Riscv64 {
    /// Invalidations in three steps (Svinval).
    pub svinval: bool,
    /// Cost of a call into the firmware for remote fences, cycles, sending excluded.
    pub sbi_call: u32,
    /// Firmware time for each hart that it fences, cycles.
    pub sbi_per_hart: u32,
    /// No walk by the old root is in progress after a write of satp. The privileged specification lets a hart read only
    /// tables that the current satp leads to (`norm:sfence_vma_implicit_access`). It does not say when a walk that has
    /// begun must end, and says nothing of its writes to accessed and dirty bits.
    pub root_load_ends_walks: bool,
}

impl Hw {
    /// SFENCE.VMA: complete on return, this hart only; earlier stores of the hart are visible first. Returns its cost.
    ///
    /// # Errors
    /// [`HardwareFault::GeneralProtection`] for a tag the machine does not have.
    pub fn sfence(&mut self, cpu: usize, what: Local, now: u64) -> Result<u32, HardwareFault> {
        self.look_at_broadcasts(cpu, now);
        let cost = self.cost_of(what)?;
        self.invalidate_on(cpu, what, u64::MAX);
        self.fence_ends_walks(cpu, what);
        Ok(cost)
    }

    /// SINVAL.VMA: takes effect by [`sfence_inval_ir`](Hw::sfence_inval_ir) at the latest. Returns its cost.
    ///
    /// # Errors
    /// [`HardwareFault::Undefined`] without Svinval; else as [`sfence`](Hw::sfence).
    pub fn sinval(&mut self, cpu: usize, what: Local, now: u64) -> Result<u32, HardwareFault> {
        if !matches!(self.config.isa, super::Isa::Riscv64(Riscv64 { svinval: true, .. })) {
            return Err(HardwareFault::Undefined);
        }
        let cost = self.cost_of(what)?;
        self.defer_local(cpu, what, now);
        Ok(cost)
    }

    /// SFENCE.W.INVAL: fills after later SINVAL.VMAs see the table writes before it.
    pub fn sfence_w_inval(&mut self, cpu: usize) {
        self.published(cpu);
    }

    /// SFENCE.INVAL.IR: earlier SINVAL.VMAs of this hart are complete.
    pub fn sfence_inval_ir(&mut self, cpu: usize) {
        self.complete_local(cpu);
    }

    /// The firmware fences every hart and returns when it is done (SBI RFENCE, with and without ASID).
    ///
    /// # Errors
    /// As [`sfence`](Hw::sfence).
    pub fn sbi_remote_fence(&mut self, what: Broadcast) -> Result<(), HardwareFault> {
        // The firmware has one fence for pages, which keeps links. To drop links, fence the whole tag.
        let what = match what {
            Broadcast::Pages {
                tag, leaf_only: false, ..
            } => Broadcast::Tag(tag),
            Broadcast::Kernel { leaf_only: false, .. } => Broadcast::All,
            other => other,
        };
        if let Broadcast::Pages { tag, .. } | Broadcast::Tag(tag) = what {
            self.check_tag(tag.0)?;
        }
        for cpu in 0..self.config.cpus {
            self.broadcast_on(cpu, what, u64::MAX);
            self.broadcast_ends_walks(cpu, what);
        }
        Ok(())
    }
}
