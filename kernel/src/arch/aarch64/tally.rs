//! Counts of each invalidating instruction. Only in the test kernel (`--features known-bugs`), because counting costs
//! instructions. Broadcasts are counted by CPU (`cpu.rs`).

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

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

const NAMES: [&str; 7] = [
    "vae1",
    "vale1",
    "aside1",
    "vaale1",
    "vmalle1",
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
