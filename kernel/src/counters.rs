//! Counts of each invalidating instruction. Only in the test kernel (`--features known-bugs`), because counting costs
//! instructions. Broadcasts are counted by CPU (`cpu.rs`).

use crate::arch::invalidate::{Instruction, NAMES};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Counts one execution.
#[inline(always)]
pub fn count(what: impl FnOnce() -> Option<Instruction>) {
    if cfg!(feature = "known-bugs")
        && let Some(what) = what()
    {
        COUNTS[what as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The counts, as JSON; `null` if nothing is counted.
pub struct Counters;

impl fmt::Display for Counters {
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
