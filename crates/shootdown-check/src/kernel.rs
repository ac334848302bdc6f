//! The kernel's side of the engine's hooks: each carries out its operation on the machine, after other CPUs had a
//! chance to run.

use crate::architecture::Architecture;
use crate::machine::{PAGES, with};
use crate::ordering_sites::{Order, is_kept};
use crate::tlb::{Covers, KERNEL_PAGE};
use crate::world::{CheckWorld, point_in_script};
use shootdown::{Broadcast, BroadcastLimits, CpuId, CpuMask, Kernel, Local, Root, Tag};
use std::panic::Location;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// The address of the kernel's page.
pub(crate) const KERNEL: u64 = 0xFFFF_8000_0000_0000;

/// The hooks.
#[derive(Debug)]
pub struct CheckKernel {
    /// Whether there are broadcast instructions.
    pub(crate) broadcasts: bool,
}

fn page(address: u64) -> u8 {
    match address {
        KERNEL => KERNEL_PAGE,
        address => (address / PAGE).min(PAGES as u64) as u8,
    }
}

// SAFETY: the explored machine's masks, CPUs and caches.
unsafe impl Kernel<1> for CheckKernel {
    const PREEMPTIBLE: bool = false;
    type Facade = CheckWorld;

    fn cpu(&self) -> CpuId {
        with(|machine| machine.current)
    }

    fn interrupts_off(&self) -> u64 {
        with(|machine| {
            let cpu = &mut machine.cpus[machine.current];
            u64::from(std::mem::replace(&mut cpu.masked, true))
        })
    }

    fn interrupts_restore(&self, saved: u64) {
        with(|machine| machine.cpus[machine.current].masked = saved != 0);
    }

    fn interrupts_are_off(&self) -> bool {
        with(|machine| machine.cpus[machine.current].masked)
    }

    fn send_ipi(&self, targets: &CpuMask<1>) {
        for cpu in targets.iter() {
            point_in_script();
            with(|machine| machine.send(cpu));
        }
    }

    fn invalidate(&self, what: Local) {
        point_in_script();
        let covers = match what {
            Local::Page {
                address,
                tag,
                leaf_only,
                ..
            } => Covers::Pages {
                tag: tag.0,
                first: page(address),
                count: 1,
                leaf_only,
            },
            Local::Tag(tag) => Covers::Tag(tag.0),
            Local::Kernel { address, .. } => Covers::AnyTag {
                first: page(address),
                count: 1,
                leaf_only: true,
            },
            Local::All => Covers::All,
        };
        with(|machine| machine.invalidate(covers));
    }

    #[track_caller]
    fn local_sync(&self) {
        let kept = is_kept(Location::caller(), Order::Barrier);
        // On other architectures each is complete on return.
        if kept && with(|machine| machine.architecture == Architecture::Arm) {
            point_in_script();
            with(crate::machine::Machine::local_sync);
        }
    }

    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        point_in_script();
        with(|machine| machine.load_root(root.0 as u8, tag.0, keep));
    }

    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        self.broadcasts.then_some(BroadcastLimits {
            max_pages: 8,
            max_large_pages: 8,
        })
    }

    fn broadcast(&self, what: Broadcast) {
        point_in_script();
        let covers = match what {
            Broadcast::Pages {
                address,
                count,
                tag,
                leaf_only,
                ..
            } => Covers::Pages {
                tag: tag.0,
                first: page(address),
                count: count.min(u32::from(u8::MAX)) as u8,
                leaf_only,
            },
            Broadcast::Tag(tag) => Covers::Tag(tag.0),
            Broadcast::Kernel {
                address,
                count,
                leaf_only,
                ..
            } => Covers::AnyTag {
                first: page(address),
                count: count.min(u32::from(u8::MAX)) as u8,
                leaf_only,
            },
            Broadcast::NonGlobal => Covers::NonGlobal,
            Broadcast::All => Covers::All,
        };
        with(|machine| machine.broadcast(covers));
    }

    fn broadcast_sync(&self) {
        point_in_script();
        with(crate::machine::Machine::broadcast_sync);
    }
}
