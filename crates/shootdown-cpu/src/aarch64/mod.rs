//! AArch64 at EL1: ASIDs in TTBR0_EL1, TLBI, GICv3.

mod barriers;
mod controller;
mod instructions;
mod interrupts;
mod processor;
#[cfg(test)]
mod tests;

pub use barriers::BareMetal;
pub use controller::{Controller, ControllerId};
pub use interrupts::{interrupts_are_off, interrupts_off, interrupts_restore, relax};
pub use processor::Processor;
