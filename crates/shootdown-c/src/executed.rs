//! Instructions that the library executes.

use crate::settings::{shootdown_settings, shootdown_status};
use shootdown::{Broadcast, BroadcastLimits, Local, Machine, Root, Tag};
use shootdown_cpu::Processor;

/// The processor. The kernel's hooks of these names are not used.
#[derive(Clone, Copy)]
pub struct Instructions(Processor);

impl Instructions {
    /// Of these hooks none is required.
    pub fn check(_settings: &shootdown_settings) -> Result<(), shootdown_status> {
        Ok(())
    }

    /// # Safety
    /// Always sound. Unsafe because it is where the kernel's hooks execute instructions (`hooked.rs`).
    pub unsafe fn of(settings: &shootdown_settings) -> Instructions {
        Instructions(Processor::discover(Root(settings.kernel_root)))
    }

    /// The machine, if the kernel does not describe one.
    pub fn machine(kernel_root: Root) -> Option<Machine> {
        Some(Processor::discover(kernel_root).machine())
    }

    /// Called before this CPU goes online.
    pub fn enable(&self) {
        // SAFETY: the caller of `shootdown_cpu_online` promises that the kernel's root is loaded.
        unsafe { self.0.enable() }
    }

    #[inline]
    pub fn interrupts_off(&self) -> u64 {
        shootdown_cpu::interrupts_off()
    }

    #[inline]
    pub fn interrupts_restore(&self, saved: u64) {
        shootdown_cpu::interrupts_restore(saved);
    }

    #[inline]
    pub fn interrupts_are_off(&self) -> bool {
        shootdown_cpu::interrupts_are_off()
    }

    #[inline(always)]
    pub fn invalidate(&self, what: Local) {
        self.0.invalidate(what);
    }

    #[inline]
    pub fn local_sync(&self) {
        self.0.local_sync();
    }

    #[inline]
    pub fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        // SAFETY: interrupts are off, and the header requires roots with the same kernel mappings.
        unsafe { self.0.load_root(root, tag, keep) }
    }

    #[inline]
    pub fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        self.0.broadcast_limits()
    }

    #[inline]
    pub fn broadcast_interrupts(&self) -> bool {
        self.0.broadcast_interrupts()
    }

    pub fn broadcast(&self, what: Broadcast) {
        // Nothing was flushed, and there is no fallback here.
        assert!(self.0.broadcast(what).is_ok(), "the firmware has refused a broadcast");
    }

    #[inline]
    pub fn broadcast_sync(&self) {
        self.0.broadcast_sync();
    }
}
