//! The negative control: the space is run, and nothing is flushed.

/// The software-generated interrupt, which nobody raises.
pub const IPI: u8 = 1;

static ROOT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// Keeps the root.
pub fn start(_kernel_root: u64, root: u64) {
    ROOT.store(root, core::sync::atomic::Ordering::Release);
}

/// Loads it.
pub fn join() {
    let root = ROOT.load(core::sync::atomic::Ordering::Acquire);
    // SAFETY: it maps the kernel as the one before does.
    unsafe { core::arch::asm!("msr ttbr0_el1, {}", "isb", in(reg) root) };
}

/// Nothing.
pub fn flush(_page: u64) {}

/// Nothing.
pub fn on_ipi() {}
