//! Local invalidations and root loads: `shootdown-cpu` executes them. This module counts them and keeps the loaded
//! root.

use super::features;
use super::tally::{self, Instruction};
use crate::cpu::Cpu;
use crate::memory::USER_END;
use core::sync::atomic::Ordering;
use shootdown::{Local, Root, Stride, Tag};

/// Carries out a local invalidation. Complete when [`sync`] returns.
#[inline(always)]
pub fn here(_cpu: &Cpu, what: Local) {
    tally::note(match what {
        Local::Page { leaf_only: true, .. } => Instruction::Vale1,
        Local::Page { .. } => Instruction::Vae1,
        Local::Tag(_) => Instruction::Aside1,
        Local::Kernel { .. } => Instruction::Vaale1,
        Local::All => Instruction::Vmalle1,
    });
    features::get().processor.invalidate(what);
}

/// Waits for the local invalidations of this CPU.
#[inline(always)]
pub fn sync() {
    features::get().processor.local_sync();
}

/// An access that the tables allow has failed: this CPU may have cached an entry that allows less, and keeps it until
/// it is invalidated.
pub fn forget(cpu: &Cpu, address: u64) {
    let stride = Stride::Size4K;
    here(
        cpu,
        if address < USER_END {
            Local::Page {
                address,
                stride,
                tag: Tag(cpu.loaded_tag.get()),
                leaf_only: true,
            }
        } else {
            Local::Kernel { address, stride }
        },
    );
    sync();
}

/// Loads a root under a tag.
///
/// # Safety
/// The tables map the kernel like all others, and stay until another root is loaded. Interrupts are off.
#[inline]
pub unsafe fn load_root(cpu: &Cpu, root: Root, tag: Tag, keep: bool) {
    tally::note(if keep {
        Instruction::RootKept
    } else {
        Instruction::RootFlushed
    });
    // SAFETY: the caller's promise.
    unsafe { features::get().processor.load_root(root, tag, keep) };
    cpu.loaded_root.store(root.0, Ordering::Release);
    cpu.loaded_tag.set(tag.0);
}
