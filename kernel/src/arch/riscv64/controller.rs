//! Interrupts to other harts, by the firmware.

use super::{boot, features};
use crate::cpu::{self, controller_id};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use shootdown_arch::riscv64::{Fence, HartMask, RemoteFence, rfence};
use shootdown_cpu::{Controller, ControllerId, sbi};

/// Finds the harts, the running one first.
pub fn set_up(boot_info: &boot::BootInfo) -> Vec<ControllerId> {
    features::read(boot_info.tree);
    boot_info.tree.cpus(boot_info.running)
}

/// Enables this hart's part: none is needed.
pub fn enable() {}

/// Raises an interrupt on these CPUs. Earlier stores are visible before it arrives.
#[inline]
pub fn send(cpus: impl IntoIterator<Item = usize>, interrupt: u8) {
    let harts = cpus.into_iter().map(|cpu| {
        // Release: the request comes before. Pairs with the acquire in `traps.rs`.
        cpu::all()[cpu]
            .local
            .pending_ipis
            .fetch_or(1 << interrupt, Ordering::Release);
        controller_id(cpu)
    });
    Controller::Sbi.send(harts, interrupt);
}

/// Fences leaves in `address..address + bytes` on these harts, for tests: the engine's broadcasts name every hart.
///
/// # Errors
/// The firmware's error number. Harts of an earlier mask may have been fenced.
pub fn fence_pages(harts: impl IntoIterator<Item = u64>, address: u64, bytes: u64) -> Result<(), i64> {
    for harts in HartMask::covering(harts) {
        let fence = Fence::Leaf(address);
        let (arguments, function) = RemoteFence { harts, fence, bytes }.arguments();
        // SAFETY: dropping cached translations is always correct.
        unsafe { sbi::call(rfence::EXTENSION, function, arguments) }.map_err(|sbi::Error(why)| why)?;
    }
    Ok(())
}
