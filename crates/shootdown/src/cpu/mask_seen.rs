//! Whether a CPU had interrupts off when the engine last saw it, for the report of a CPU that does not answer (C7).
//!
//! Debug builds only. Not a `Word`: nothing of the protocol depends on it, and accesses are not steps of the protocol.

#[cfg(debug_assertions)]
use core::sync::atomic::{AtomicU8, Ordering};

#[cfg(debug_assertions)]
const NEVER_SEEN: u8 = 0;
#[cfg(debug_assertions)]
const ON: u8 = 1;
#[cfg(debug_assertions)]
const OFF: u8 = 2;

/// Written by its own CPU, read by any CPU that waits for it.
#[repr(transparent)]
pub(crate) struct MaskSeen(#[cfg(debug_assertions)] AtomicU8);

impl MaskSeen {
    pub(crate) const fn new() -> Self {
        MaskSeen(
            #[cfg(debug_assertions)]
            AtomicU8::new(NEVER_SEEN),
        )
    }

    /// Notes whether interrupts are off. Does nothing in a release build.
    #[inline]
    pub(crate) fn note(&self, off: bool) {
        #[cfg(debug_assertions)]
        AtomicU8::store(&self.0, if off { OFF } else { ON }, Ordering::Relaxed);
        #[cfg(not(debug_assertions))]
        let _ = off;
    }

    /// What was noted last. `None` before the first note, and in a release build.
    pub(crate) fn get(&self) -> Option<bool> {
        #[cfg(debug_assertions)]
        return match self.0.load(Ordering::Relaxed) {
            NEVER_SEEN => None,
            seen => Some(seen == OFF),
        };
        #[cfg(not(debug_assertions))]
        None
    }
}
