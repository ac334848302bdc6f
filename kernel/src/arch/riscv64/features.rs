//! The features of the harts and of the firmware, read once.

use crate::arch::device_tree::Tree;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
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
/// Bits of ASIDs that are used, if the harts have them.
static ASID_BITS: AtomicU32 = AtomicU32::new(16);
static TIMER_HERTZ: AtomicU64 = AtomicU64::new(0);

/// Stores the features that only the device tree lists. Before any use.
pub fn read(tree: Tree) {
    let all = tree.text_of_cpus("riscv,isa");
    let have = |name| all.iter().all(|isa| isa.split('_').any(|extension| extension == name));
    SVINVAL.store(have("svinval"), Ordering::Relaxed);
    SSTC.store(have("sstc"), Ordering::Relaxed);
    let hertz = tree.number("/cpus", "timebase-frequency");
    let hertz = hertz.unwrap_or_else(|| {
        crate::serial::give_up(format_args!(
            "device tree: /cpus has no timebase-frequency; use another device tree"
        ))
    });
    TIMER_HERTZ.store(hertz, Ordering::Relaxed);
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
        let bits = ASID_BITS.load(Ordering::Relaxed);
        let processor = Processor::discover(Root(super::boot::root())).with_asid_bits(bits);
        Features {
            processor: if SVINVAL.load(Ordering::Relaxed) {
                processor.with_svinval()
            } else {
                processor
            },
        }
    })
}

/// The same as [`get`], without its check, which costs a barrier in each invalidation.
///
/// # Safety
/// [`enable`] has run on this hart.
#[inline]
pub unsafe fn get_enabled() -> &'static Features {
    // SAFETY: `enable` has read them.
    unsafe { FEATURES.get_unchecked() }
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
    match get().processor.tag_limit() {
        0 | 1 => "none",
        0x1_0000 => "ASIDs of 16 bits",
        _ => "ASIDs of fewer than 16 bits",
    }
}

/// Uses ASIDs of at most `bits` bits, or none. Before [`enable`].
///
/// # Errors
/// The numbers of bits that there are.
pub fn limit_asids(bits: u32) -> Result<(), &'static str> {
    if !matches!(bits, 0 | 4..=16) {
        return Err("RISC-V has ASIDs of up to 16 bits; fewer than 4 are not used, 0 is for none");
    }
    ASID_BITS.store(bits, Ordering::Relaxed);
    Ok(())
}

/// Enables the used features on this hart.
pub fn enable() {
    super::boot::load_root();
    // SAFETY: none is needed.
    unsafe { get().processor.enable() };
}
