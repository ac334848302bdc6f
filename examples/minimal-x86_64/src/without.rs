//! The negative control: the space is run, and nothing is flushed.

use shootdown_cpu::Controller;

/// A vector that nobody raises.
pub const IPI: u8 = 0xF0;
/// The local APIC of each CPU.
pub const CONTROLLER: Controller = Controller::XApic(0xFEE0_0000 as *mut u32);

static ROOT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// Keeps the root.
pub fn start(_kernel_root: u64, root: u64) {
    ROOT.store(root, core::sync::atomic::Ordering::Release);
}

/// Loads it.
pub fn join() {
    // SAFETY: it maps the kernel as the one before does.
    unsafe { core::arch::asm!("mov cr3, {}", in(reg) ROOT.load(core::sync::atomic::Ordering::Acquire)) };
}

/// Nothing.
pub fn flush(_page: u64) {}

/// Nothing.
pub fn on_ipi() {}
