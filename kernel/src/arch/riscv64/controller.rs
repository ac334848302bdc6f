//! Interrupts to other harts, by the firmware.

use super::{boot, features};
use crate::cpu::{self, controller_id};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use shootdown_cpu::{Controller, ControllerId};

/// Finds the harts, the running one first.
pub fn set_up(told: &boot::Told) -> Vec<ControllerId> {
    features::read(told.tree);
    told.tree.cpus(told.running)
}

/// Enables this hart's part: none is needed.
pub fn enable() {}

/// Raises an interrupt on these CPUs. Earlier stores are visible before it arrives.
#[inline]
pub fn send(cpus: impl IntoIterator<Item = usize>, interrupt: u8) {
    let harts = cpus.into_iter().map(|cpu| {
        // Release: the request comes before. Pairs with the acquire in `traps.rs`.
        cpu::all()[cpu].local.asked.fetch_or(1 << interrupt, Ordering::Release);
        controller_id(cpu)
    });
    Controller::Sbi.send(harts, interrupt);
}
