//! The window between a change of page tables and its flush, held open for a test: other CPUs then run whole turns of
//! the emulator in it, with their old translations. `linger=` on the command line.

use core::sync::atomic::{AtomicU64, Ordering};

/// PAUSEs before each flush of an address space.
static LINGER: AtomicU64 = AtomicU64::new(0);

/// From here on windows are open for that many PAUSEs.
pub fn set(linger: u64) {
    LINGER.store(linger, Ordering::Relaxed);
}

/// Entries are changed, and not flushed yet.
#[inline]
pub fn hold_open() {
    for _ in 0..LINGER.load(Ordering::Relaxed) {
        crate::time::relax();
    }
}
