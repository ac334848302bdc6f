//! The invalidating instructions: executed by `shootdown-cpu`, named for `counters.rs`.

use super::features;
use shootdown::{Broadcast, Local, Tag};
use shootdown_cpu::{Processor, Refused};

/// Whether an entry that denied an access may stay cached after the fault: no, the fault drops it.
pub const MAY_CACHE_DENIALS: bool = false;

/// Carries out a local invalidation while `loaded` is the loaded tag. Complete on return.
// Always inline: the caller's operation is constant, so this becomes one or two instructions.
#[inline(always)]
pub fn execute(loaded: Tag, what: Local) {
    features::get().processor.invalidate_under(Some(loaded), what);
}

/// Carries out a broadcast; complete after `broadcast_sync`.
///
/// # Errors
/// Never: the processor does it.
#[inline(always)]
pub fn broadcast(processor: &Processor, what: Broadcast) -> Result<(), Refused> {
    processor.broadcast(what)
}

/// Waits for the local invalidations of this CPU: each is complete on return, so there is nothing to look up.
#[inline(always)]
pub fn sync() {}

/// Drops every non-global translation under every tag.
pub fn all_non_global() {
    crate::counters::count(|| Some(Instruction::InvpcidNonGlobal));
    features::get().processor.all_non_global();
}

/// The counted instructions, in this order.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Instruction {
    Invlpg,
    InvpcidAddress,
    InvpcidTag,
    InvpcidNonGlobal,
    InvpcidAll,
    /// A root load under a tag other than 0, with a flush of the tag.
    RootTagged,
    /// The same, with the tag's entries kept.
    RootKept,
    /// A root load under tag 0.
    RootUntagged,
}

/// Their names, in the same order.
pub const NAMES: [&str; 8] = [
    "invlpg",
    "invpcid_address",
    "invpcid_tag",
    "invpcid_non_global",
    "invpcid_all",
    "root_tagged",
    "root_kept",
    "root_untagged",
];

/// The instruction for a local invalidation while `loaded` is the loaded tag.
#[inline(always)]
pub fn of_local(loaded: Tag, what: Local) -> Option<Instruction> {
    let has_tags = features::has_tags();
    match what {
        Local::Page { tag, .. } if tag == loaded => Some(Instruction::Invlpg),
        Local::Kernel { .. } => Some(Instruction::Invlpg),
        Local::Page { .. } if has_tags => Some(Instruction::InvpcidAddress),
        Local::Tag(_) if has_tags => Some(Instruction::InvpcidTag),
        Local::All if has_tags => Some(Instruction::InvpcidAll),
        // By registers, or none.
        Local::Page { .. } | Local::Tag(_) | Local::All => None,
    }
}

/// The root load.
#[inline(always)]
pub fn of_root(tag: Tag, keep: bool) -> Instruction {
    match (tag, keep) {
        (Tag(0), _) => Instruction::RootUntagged,
        (_, true) => Instruction::RootKept,
        (_, false) => Instruction::RootTagged,
    }
}
