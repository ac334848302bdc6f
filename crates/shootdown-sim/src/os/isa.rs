//! The hooks on AArch64 and RISC-V: the instructions and firmware calls behind them, and their costs.
//!
//! Owns the mapping of the engine's hooks and barriers to the machine's operations. `hooks.rs` calls it first, and
//! implements x86 itself.

use super::hooks::SimKernel;
use crate::hw::{Aarch64, HardwareFault, Hw, Isa, Riscv64, Scope};
use crate::machine::{self, Barrier};
use shootdown::{Broadcast, Local, Stride, Tag};
use shootdown_arch::aarch64::{Asid, AsidWidth, Cover, Granule, Level};
use std::cell::RefCell;
use std::rc::Rc;

/// Additional effect of a named barrier here, beyond x86's; `None` on x86.
pub(super) fn barrier(hw: &Rc<RefCell<Hw>>) -> Option<Box<dyn Fn(Barrier)>> {
    let hw = hw.clone();
    let isa = hw.borrow().config().isa;
    match isa {
        Isa::X86_64 => None,
        Isa::Aarch64(arm) => Some(Box::new(move |barrier| {
            if !machine::on_cpu() {
                return;
            }
            machine::drain_stores();
            match barrier {
                Barrier::PublishTables => {
                    if arm.store_barrier_drains {
                        let ready = hw.borrow().sync_ready_at(machine::cpu(), machine::now());
                        machine::pass_until(ready);
                        hw.borrow_mut()
                            .dsb(machine::cpu(), Scope::InnerShareable, machine::now());
                    }
                    machine::charge(u64::from(arm.store_barrier));
                    hw.borrow_mut().dsb_stores(machine::cpu(), Scope::InnerShareable);
                }
                Barrier::BeforeRootLoad => {
                    machine::charge(u64::from(arm.local_barrier));
                    hw.borrow_mut()
                        .dsb(machine::cpu(), Scope::InnerShareable, machine::now());
                }
            }
        })),
        Isa::Riscv64(_) => Some(Box::new(move |barrier| {
            // `fence rw, rw`; with Svinval table writes are published by SFENCE.W.INVAL.
            if machine::on_cpu() {
                machine::drain_stores();
                if barrier == Barrier::PublishTables {
                    hw.borrow_mut().sfence_w_inval(machine::cpu());
                }
            }
        })),
    }
}

impl SimKernel {
    /// A local invalidation on AArch64 and RISC-V; false on x86.
    #[inline]
    pub(super) fn invalidate_by_isa(&self, what: Local) -> Option<Result<u32, HardwareFault>> {
        match self.isa {
            Isa::X86_64 => None,
            Isa::Aarch64(_) => {
                machine::synchronise();
                Some(self.hw.borrow_mut().tlbi(machine::cpu(), what, machine::now()))
            }
            Isa::Riscv64(riscv) => Some(self.fence(riscv, what)),
        }
    }

    /// SFENCE.VMA, or SINVAL.VMA where the hart has it. A fence with an address keeps links; to drop links it fences
    /// the whole tag.
    fn fence(&self, riscv: Riscv64, what: Local) -> Result<u32, HardwareFault> {
        let what = match what {
            Local::Page {
                tag, leaf_only: false, ..
            } => Local::Tag(tag),
            what => what,
        };
        if !riscv.svinval {
            machine::drain_stores();
        }
        machine::synchronise();
        let (cpu, now) = (machine::cpu(), machine::now());
        let mut hw = self.hw.borrow_mut();
        if riscv.svinval {
            hw.sinval(cpu, what, now)
        } else {
            hw.sfence(cpu, what, now)
        }
    }

    /// Completes local invalidations.
    #[inline]
    pub(super) fn local_sync_by_isa(&self) {
        match self.isa {
            Isa::X86_64 => {}
            Isa::Aarch64(Aarch64 { local_barrier, .. }) => {
                machine::drain_stores();
                machine::charge(u64::from(local_barrier));
                machine::synchronise();
                self.hw.borrow_mut().dsb(machine::cpu(), Scope::Local, machine::now());
            }
            Isa::Riscv64(riscv) => {
                machine::synchronise();
                if riscv.svinval {
                    self.hw.borrow_mut().sfence_inval_ir(machine::cpu());
                }
            }
        }
    }

    /// Waits for walks by the previously loaded root, under `tag`: a root load does not.
    #[inline]
    pub(super) fn await_old_walks(&self, tag: Tag) {
        match self.isa {
            // MOV to CR3 does.
            Isa::X86_64 => {}
            Isa::Aarch64(_) => self.local_sync_by_isa(),
            Isa::Riscv64(riscv) if riscv.root_load_ends_walks => {}
            Isa::Riscv64(riscv) => {
                // SFENCE.VMA, also where the hart has Svinval: one fence, complete at once.
                let whole = Riscv64 {
                    svinval: false,
                    ..riscv
                };
                let cost = self.fence(whole, Local::Tag(tag));
                machine::charge(u64::from(cost.unwrap_or(0)));
            }
        }
    }

    /// A broadcast on AArch64 and RISC-V: its number of instructions, and the cost of issuing them.
    pub(super) fn broadcast_by_isa(&self, what: Broadcast) -> Option<(u64, Result<u32, HardwareFault>)> {
        match self.isa {
            Isa::X86_64 => None,
            Isa::Aarch64(arm) => {
                let instructions = if arm.range { instructions(what) } else { 1 };
                let (cpu, now) = (machine::cpu(), machine::now());
                let issued = self.hw.borrow_mut().tlbi_is(cpu, what, now);
                Some((instructions, issued.map(|cost| cost * instructions as u32)))
            }
            Isa::Riscv64(riscv) => {
                // The firmware interrupts every hart, which fences and answers; the call returns when all have.
                machine::drain_stores();
                let harts = self.hw.borrow().config().cpus as u32;
                let me = machine::cpu();
                machine::send_ipi((0..harts as usize).filter(|&hart| hart != me));
                self.enter_firmware();
                machine::charge(u64::from(riscv.sbi_call + riscv.sbi_per_hart * harts));
                self.leave_firmware();
                machine::synchronise();
                let fenced = self.hw.borrow_mut().sbi_remote_fence(what);
                Some((1, fenced.map(|()| 0)))
            }
        }
    }

    /// This hart calls the firmware.
    fn enter_firmware(&self) {
        self.in_firmware.set(self.in_firmware.get() | 1 << machine::cpu());
    }

    /// All harts have carried out their fences; one that is in the firmware does it there.
    fn leave_firmware(&self) {
        let others = !(1_u64 << machine::cpu());
        self.in_firmware.set(self.in_firmware.get() & others);
    }

    /// Whether the firmware carries out broadcasts, by interrupting every hart.
    pub(super) fn broadcast_interrupts_by_isa(&self) -> bool {
        matches!(self.isa, Isa::Riscv64(_))
    }

    /// Added cost of a synchronisation for other CPUs that broadcast at the same time, cycles.
    pub(super) fn crowd(&self, now: u64) -> u64 {
        match self.isa {
            Isa::Aarch64(Aarch64 { sync_per_cpu, .. }) if sync_per_cpu > 0 => {
                let done = self.broadcast_done.borrow();
                u64::from(sync_per_cpu) * done.iter().filter(|&&done| done > now).count() as u64
            }
            _ => 0,
        }
    }

    /// Completes the broadcasts of this CPU; false on x86, which has its own instruction.
    pub(super) fn broadcast_sync_by_isa(&self) -> bool {
        match self.isa {
            Isa::X86_64 => false,
            Isa::Aarch64(_) => {
                machine::drain_stores();
                self.hw
                    .borrow_mut()
                    .dsb(machine::cpu(), Scope::InnerShareable, machine::now());
                true
            }
            Isa::Riscv64(_) => true,
        }
    }

    /// After a page fault that made `va` valid: a hart that has cached "not mapped" must fence, and only this one
    /// faulted. Under every ASID, as Linux fences there: the space may not be loaded at this moment.
    #[inline]
    pub(super) fn after_fault(&self, va: u64) {
        if let Isa::Riscv64(riscv) = self.isa {
            let page = Local::Kernel {
                address: va,
                stride: Stride::Size4K,
            };
            let cost = self.fence(riscv, page);
            machine::charge(u64::from(cost.unwrap_or(0)));
            self.local_sync_by_isa();
        }
    }
}

/// Number of instructions of a broadcast with range operations, from the encoder.
fn instructions(what: Broadcast) -> u64 {
    let (Broadcast::Pages {
        address, stride, count, ..
    }
    | Broadcast::Kernel {
        address, stride, count, ..
    }) = what
    else {
        return 1;
    };
    let granules = u64::from(count) << (stride.shift() - 12);
    let asid = Asid::new(0, AsidWidth::Bits16);
    let cover = asid.and_then(|asid| Cover::new(asid, address, granules, Granule::Size4K, Level::Unknown, false));
    cover.map_or(1, |cover| cover.count() as u64)
}
