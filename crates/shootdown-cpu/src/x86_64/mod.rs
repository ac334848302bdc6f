//! x86-64 in 64-bit mode: PCIDs in CR3, INVLPG and INVPCID, INVLPGB, local APICs.

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
