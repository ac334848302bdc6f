//! The features of the harts and of the firmware, read once.

use crate::arch::device_tree::Tree;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shootdown::Root;
use shootdown_cpu::Processor;
use spin::Once;

pub use crate::arch::generic_features::*;

/// The features that are used.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// ASIDs, Svinval, remote fences.
    pub processor: Processor,
}

static FEATURES: Once<Features> = Once::new();
/// Every hart has Svinval.
static SVINVAL: AtomicBool = AtomicBool::new(false);
/// Every hart has Sstc.
static SSTC: AtomicBool = AtomicBool::new(false);
static TIMER_HERTZ: AtomicU64 = AtomicU64::new(0);

/// Stores the features that only the device tree lists. Before any use.
///
/// # Panics
/// If it does not state the counter's frequency.
pub fn read(tree: Tree) {
    let all = tree.text_of_cpus("riscv,isa");
    let have = |name| all.iter().all(|isa| isa.split('_').any(|extension| extension == name));
    SVINVAL.store(have("svinval"), Ordering::Relaxed);
    SSTC.store(have("sstc"), Ordering::Relaxed);
    let hertz = tree.number("/cpus", "timebase-frequency");
    TIMER_HERTZ.store(
        hertz.expect("the device tree says how fast time passes"),
        Ordering::Relaxed,
    );
}

/// Cycles of the counter per second.
pub fn timer_hertz() -> u64 {
    TIMER_HERTZ.load(Ordering::Relaxed)
}

/// Whether a register sets the timer.
#[inline]
pub fn has_timer_register() -> bool {
    SSTC.load(Ordering::Relaxed)
}

/// The features of the first hart; the others are assumed to be equal.
#[inline]
pub fn get() -> &'static Features {
    FEATURES.call_once(|| {
        let processor = Processor::discover(Root(super::boot::root()));
        Features {
            processor: if SVINVAL.load(Ordering::Relaxed) {
                processor.with_svinval()
            } else {
                processor
            },
        }
    })
}

/// How broadcasts are carried out.
pub fn broadcast_in_words(processor: &Processor, _emulated: bool) -> &'static str {
    match processor.broadcast_limits() {
        Some(_) => "firmware",
        None => "none",
    }
}

/// The same for a table's last line.
pub fn in_words(broadcast: &str) -> &'static str {
    match broadcast {
        "firmware" => "remote fences of the firmware",
        _ => "none",
    }
}

/// The tags, for a table's last line.
pub fn tags_in_words() -> &'static str {
    if has_tags() { "ASIDs" } else { "none" }
}
