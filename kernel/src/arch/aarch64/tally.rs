//! How often each instruction that invalidates was executed. Only in the kernel that is built for tests (`--features
//! known-bugs`): counting costs instructions itself. Broadcasts are counted by CPU (`cpu.rs`).

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// What is counted, in this order.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Instruction {
    Vae1,
    Vale1,
    Aside1,
    Vaale1,
    Vmalle1,
    /// A root, and what is under its tag goes.
    RootFlushed,
    /// A root, and what is under its tag is kept.
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
