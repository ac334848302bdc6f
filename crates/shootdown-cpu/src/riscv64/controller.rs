//! Interrupts to other harts.

use super::instructions::{clear_software_interrupt, fence_iorw_iorw};
use super::sbi;
use shootdown_arch::riscv64::{HartMask, ipi};

/// How the controller identifies a CPU: its hart id.
pub type ControllerId = u64;

/// The mechanism that raises the software interrupt.
#[derive(Debug, Clone, Copy)]
pub enum Controller {
    /// The firmware, by its IPI extension.
    Sbi,
    /// A device with a word for each hart, mapped at this address: an SSWI of the ACLINT in supervisor mode, a CLINT's
    /// MSWI in machine mode.
    Clint(*mut u32),
}

// SAFETY: the address belongs to a device to which every CPU may write, one word at a time.
unsafe impl Send for Controller {}
// SAFETY: as for `Send`.
unsafe impl Sync for Controller {}

impl Controller {
    /// Raises the software interrupt on `cpus`. Ascending numbers share calls of the firmware. `_interrupt` is for
    /// other instruction sets: a hart has one software interrupt.
    ///
    /// # Panics
    /// If the firmware refuses (a number of no hart): a target that is never interrupted would be waited for forever.
    #[inline]
    pub fn send(&self, cpus: impl IntoIterator<Item = ControllerId>, _interrupt: u8) {
        // Orders earlier stores before the interrupt, whether a store or the firmware raises it.
        fence_iorw_iorw();
        match self {
            Controller::Sbi => HartMask::covering(cpus).for_each(|harts| {
                let [mask, base] = ipi::arguments(harts);
                // SAFETY: interrupts are harmless.
                let sent = unsafe { sbi::call(ipi::EXTENSION, 0, [mask, base, 0, 0, 0]) };
                sent.expect("the firmware knows the harts");
            }),
            Controller::Clint(base) => cpus.into_iter().for_each(|hart| {
                let register = base.wrapping_byte_add(ipi::software_interrupt_register(hart) as usize);
                // SAFETY: the hart's word of the device.
                unsafe { register.write_volatile(1) };
            }),
        }
    }

    /// Clears the software interrupt of this hart (SSIP). Call it before `Engine::on_ipi`, never after: a request that
    /// arrives between the two would be lost with its interrupt.
    #[inline]
    pub fn acknowledge(&self) {
        clear_software_interrupt();
    }
}
