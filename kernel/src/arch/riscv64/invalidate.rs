//! The invalidating instructions: executed by `shootdown-cpu`, named for `counters.rs`.

use super::features;
use shootdown::{Local, Tag};
use shootdown_cpu::Processor;

pub use super::fences::broadcast;

/// Whether an entry that denied an access may stay cached after the fault, until it is invalidated.
pub const MAY_CACHE_DENIALS: bool = true;

#[inline(always)]
fn processor() -> &'static Processor {
    // SAFETY: `smp::set_up_this_cpu` enables the features, before anything is invalidated on this hart.
    unsafe { &features::get_enabled().processor }
}

/// Carries out a local invalidation. Complete after `local_sync`.
#[inline(always)]
pub fn execute(_loaded: Tag, what: Local) {
    processor().invalidate(what);
}

/// Waits for the local invalidations of this CPU.
#[inline(always)]
pub fn sync() {
    processor().local_sync();
}

/// The counted instructions, in this order.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Instruction {
    /// SFENCE.VMA or SINVAL.VMA: a tag, because its tables are freed.
    TagForPage,
    /// A page of a tag.
    Page,
    /// A tag.
    Tag,
    /// A page under every tag.
    Kernel,
    /// Everything.
    All,
    /// A root load with a flush of its tag.
    RootFlushed,
    /// A root load that keeps the entries of its tag.
    RootKept,
}

/// Their names, in the same order.
pub const NAMES: [&str; 7] = [
    "tag_for_page",
    "page",
    "tag",
    "kernel",
    "all",
    "root_flushed",
    "root_kept",
];

/// The instruction for a local invalidation.
#[inline(always)]
pub fn of_local(_loaded: Tag, what: Local) -> Option<Instruction> {
    Some(match what {
        Local::Page { leaf_only: true, .. } => Instruction::Page,
        Local::Page { .. } => Instruction::TagForPage,
        Local::Tag(_) => Instruction::Tag,
        Local::Kernel { .. } => Instruction::Kernel,
        Local::All => Instruction::All,
    })
}

/// The root load.
#[inline(always)]
pub fn of_root(_tag: Tag, keep: bool) -> Instruction {
    if keep {
        Instruction::RootKept
    } else {
        Instruction::RootFlushed
    }
}
