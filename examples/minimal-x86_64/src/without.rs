//! The negative control: the space is loaded, and nothing is flushed.

use shootdown_cpu::Controller;

/// The local APIC of each CPU.
pub const CONTROLLER: Controller = Controller::XApic(0xFEE0_0000 as *mut u32);

static ROOT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// Stores the root.
pub fn start(_kernel_root: u64, root: u64) {
    ROOT.store(root, core::sync::atomic::Ordering::Release);
}

/// Loads the root.
pub fn join() {
    // SAFETY: it maps the kernel like the previous one.
    unsafe { core::arch::asm!("mov cr3, {}", in(reg) ROOT.load(core::sync::atomic::Ordering::Acquire)) };
}

/// Does nothing.
pub fn flush(_page: u64) {}

/// Does nothing.
pub fn on_ipi() {}
