//! Counts of each invalidating instruction. Only in the test kernel (`--features known-bugs`), because counting costs
//! instructions.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown::{Local, Tag};

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

const NAMES: [&str; 8] = [
    "invlpg",
    "invpcid_address",
    "invpcid_tag",
    "invpcid_non_global",
    "invpcid_all",
    "root_tagged",
    "root_kept",
    "root_untagged",
];

static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Counts one execution.
#[inline(always)]
pub fn note(what: Instruction) {
    if cfg!(feature = "known-bugs") {
        COUNTS[what as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a local invalidation, with tags or without, while `loaded` is the loaded tag.
#[inline(always)]
pub fn invalidation(has_tags: bool, loaded: Tag, what: Local) {
    match what {
        Local::Page { tag, .. } if tag == loaded => note(Instruction::Invlpg),
        Local::Kernel { .. } => note(Instruction::Invlpg),
        Local::Page { .. } if has_tags => note(Instruction::InvpcidAddress),
        Local::Tag(_) if has_tags => note(Instruction::InvpcidTag),
        Local::All if has_tags => note(Instruction::InvpcidAll),
        // By registers, or none.
        Local::Page { .. } | Local::Tag(_) | Local::All => {}
    }
}

/// The counts, as JSON; `null` if nothing is counted.
pub struct Tally;

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !cfg!(feature = "known-bugs") {
            return write!(f, "null");
        }
        for (index, (name, count)) in NAMES.iter().zip(&COUNTS).enumerate() {
            let before = if index == 0 { "{" } else { "," };
            write!(f, "{before}\"{name}\":{}", count.load(Ordering::Relaxed))?;
        }
        write!(f, "}}")
    }
}
