//! Local invalidations and root loads: `shootdown-cpu` executes them. This module counts them and keeps the loaded
//! root.

use super::features;
use super::tally::{self, Instruction};
use crate::cpu::Cpu;
use core::sync::atomic::Ordering;
use shootdown::{Local, Root, Tag};

/// Carries out a local invalidation. Complete on return.
// Always inline: the caller's operation is constant, so this becomes one or two instructions.
#[inline(always)]
pub fn here(cpu: &Cpu, what: Local) {
    let processor = &features::get().processor;
    let loaded = Tag(cpu.loaded_tag.get());
    tally::invalidation(processor.has_tags(), loaded, what);
    processor.invalidate_under(Some(loaded), what);
}

/// Drops every non-global translation under every tag.
pub fn all_non_global() {
    tally::note(Instruction::InvpcidNonGlobal);
    features::get().processor.all_non_global();
}

/// Loads a root under a tag.
///
/// # Safety
/// The tables map the kernel like all others, and stay until another root is loaded. Interrupts are off.
#[inline]
pub unsafe fn load_root(cpu: &Cpu, root: Root, tag: Tag, keep: bool) {
    tally::note(match (tag, keep) {
        (Tag(0), _) => Instruction::RootUntagged,
        (_, true) => Instruction::RootKept,
        (_, false) => Instruction::RootTagged,
    });
    // SAFETY: the caller's promise.
    unsafe { features::get().processor.load_root(root, tag, keep) };
    cpu.loaded_root.store(root.0, Ordering::Release);
    cpu.loaded_tag.set(tag.0);
}

/// Waits for the local invalidations of this CPU: each is complete on return.
#[inline(always)]
pub fn sync() {}

/// An access that the tables allow has failed: the fault itself has dropped its entry.
pub fn forget(_cpu: &Cpu, _address: u64) {}
