//! The invalidating instructions: executed by `shootdown-cpu`, named for `counters.rs`.

use super::features;
use shootdown::{Broadcast, Local, Tag};
use shootdown_cpu::{Processor, Refused};

/// Whether an entry that denied an access may stay cached after the fault, until it is invalidated.
pub const MAY_CACHE_DENIALS: bool = true;

#[inline(always)]
fn processor() -> &'static Processor {
    // SAFETY: `smp::set_up_this_cpu` enables the features, before anything is invalidated on this CPU.
    unsafe { &features::get_enabled().processor }
}

/// Carries out a local invalidation. Complete after `local_sync`.
#[inline(always)]
pub fn execute(_loaded: Tag, what: Local) {
    processor().invalidate(what);
}

/// Carries out a broadcast; complete after `broadcast_sync`.
///
/// # Errors
/// Never: the processor does it.
#[inline(always)]
pub fn broadcast(processor: &Processor, what: Broadcast) -> Result<(), Refused> {
    processor.broadcast(what)
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
    Vae1,
    Vale1,
    Aside1,
    Vaale1,
    Vmalle1,
    /// A root load with a flush of its tag.
    RootFlushed,
    /// A root load that keeps the entries of its tag.
    RootKept,
}

/// Their names, in the same order.
pub const NAMES: [&str; 7] = [
    "vae1",
    "vale1",
    "aside1",
    "vaale1",
    "vmalle1",
    "root_flushed",
    "root_kept",
];

/// The instruction for a local invalidation.
#[inline(always)]
pub fn of_local(_loaded: Tag, what: Local) -> Option<Instruction> {
    Some(match what {
        Local::Page { leaf_only: true, .. } => Instruction::Vale1,
        Local::Page { .. } => Instruction::Vae1,
        Local::Tag(_) => Instruction::Aside1,
        Local::Kernel { .. } => Instruction::Vaale1,
        Local::All => Instruction::Vmalle1,
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
