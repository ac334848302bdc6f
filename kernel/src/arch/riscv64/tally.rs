//! Counts of each invalidating instruction. Only in the test kernel (`--features known-bugs`), because counting costs
//! instructions. Broadcasts are counted by CPU (`cpu.rs`).

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

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

const NAMES: [&str; 7] = [
    "tag_for_page",
    "page",
    "tag",
    "kernel",
    "all",
    "root_flushed",
    "root_kept",
];

static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Counts one execution.
#[inline(always)]
pub fn note(what: Instruction) {
    if cfg!(feature = "known-bugs") {
        COUNTS[what as usize].fetch_add(1, Ordering::Relaxed);
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
