//! The negative control: the space is loaded, and nothing is flushed.

static ROOT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// Stores the root.
pub fn start(_kernel_root: u64, root: u64) {
    ROOT.store(root, core::sync::atomic::Ordering::Release);
}

/// Loads the root.
pub fn join() {
    let root = ROOT.load(core::sync::atomic::Ordering::Acquire);
    // SAFETY: it maps the kernel like the previous one.
    unsafe { core::arch::asm!("msr ttbr0_el1, {}", "isb", in(reg) root) };
}

/// Does nothing.
pub fn flush(_page: u64) {}

/// Does nothing.
pub fn on_ipi() {}
