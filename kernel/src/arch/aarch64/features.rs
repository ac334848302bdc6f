//! The processor's features, read once.

use shootdown::Root;
use shootdown_cpu::Processor;
use spin::Once;

pub use crate::arch::generic_features::*;

/// The features that are used.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// ASIDs, range operations, workarounds.
    pub processor: Processor,
}

static FEATURES: Once<Features> = Once::new();

/// The features of the first CPU; the others are assumed to be equal.
#[inline]
pub fn get() -> &'static Features {
    FEATURES.call_once(|| Features {
        processor: Processor::discover(Root(super::boot::root())),
    })
}

/// How broadcasts are carried out.
pub fn broadcast_in_words(_processor: &Processor, _emulated: bool) -> &'static str {
    "hardware"
}

/// The same for a table's last line.
pub fn in_words(_broadcast: &str) -> &'static str {
    "TLBI of the processor"
}

/// The tags, for a table's last line.
pub fn tags_in_words() -> &'static str {
    if get().processor.tag_limit() > 256 {
        "ASIDs of 16 bits"
    } else {
        "ASIDs of 8 bits"
    }
}
