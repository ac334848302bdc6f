//! Local invalidations and root loads: `shootdown-cpu` executes them. This module counts them and keeps the loaded
//! root.

use crate::arch::features;
pub use crate::arch::invalidate::sync;
use crate::arch::invalidate::{MAY_CACHE_DENIALS, execute, of_local, of_root};
use crate::counters::count;
use crate::cpu::Cpu;
use crate::memory::USER_END;
use core::sync::atomic::Ordering;
use shootdown::{Local, Root, Stride, Tag};

/// Carries out a local invalidation. Complete when [`sync`] returns.
// Always inline: the caller's operation is constant, so this becomes one or two instructions.
#[inline(always)]
pub fn here(cpu: &Cpu, what: Local) {
    let loaded = Tag(cpu.loaded_tag.get());
    count(|| of_local(loaded, what));
    execute(loaded, what);
}

/// An access that the tables allow has failed: this CPU may have cached an entry that allows less, and may keep it
/// until it is invalidated.
pub fn forget(cpu: &Cpu, address: u64) {
    if !MAY_CACHE_DENIALS {
        return;
    }
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
    count(|| Some(of_root(tag, keep)));
    // SAFETY: the caller's promise.
    unsafe { features::get().processor.load_root(root, tag, keep) };
    cpu.loaded_root.store(root.0, Ordering::Release);
    cpu.loaded_tag.set(tag.0);
}
