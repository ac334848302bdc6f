//! How often each instruction that invalidates was executed. Only in the kernel that is built for tests (`--features
//! known-bugs`): counting costs instructions itself. Broadcasts are counted by CPU (`cpu.rs`).

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// What is counted, in this order.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Instruction {
    /// SFENCE.VMA or SINVAL.VMA: a tag, because tables of it are freed.
    TagForPage,
    /// A page of a tag.
    Page,
    /// A tag.
    Tag,
    /// A page under every tag.
    Kernel,
    /// Everything.
    All,
    /// A root, and what is under its tag goes.
    RootFlushed,
    /// A root, and what is under its tag is kept.
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

/// It is executed here and now.
#[inline(always)]
pub fn note(what: Instruction) {
    if cfg!(feature = "known-bugs") {
        COUNTS[what as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The counts, as JSON; `null` where nothing is counted.
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
